// Latency and bandwidth of the communicator: ring_shift from 1 KiB to 64 MiB, all_reduce_sum as in
// decode, barrier, and how long a rank waits for one that is in a kernel. Under mpirun it measures
// MPI, else threads: comm_bench [ranks, default 2].
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string_view>

#include "base/clock.h"
#include "cluster/comm/in_process.h"
#include "cluster/comm/mpi_environment.h"
#include "kernels/cpu/meanwhile.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/threads.h"
#include "tests/multirank/support/ring_shift.h"

namespace longhaul {
namespace {

using test::ring_shift;
using test::start_ring_shift;

// The best of several batches: other work on the machine only ever adds time.
template <typename Work>
double best_seconds(Communicator& comm, int n_per_batch, Work work) {
  double best = 1e9;
  for (int batch = 0; batch < 7; ++batch) {
    comm.barrier();
    const Stopwatch watch;
    for (int i = 0; i < n_per_batch; ++i) work();
    std::vector<double> seconds = {watch.seconds() / n_per_batch};
    comm.all_reduce_max(seconds);
    best = std::min(best, seconds[0]);
  }
  return best;
}

void print(const Communicator& comm, const std::string& line) {
  if (comm.rank() == 0) fmt::print("{}\n", line);
}

void bench_copy(Communicator& comm) {
  std::vector<std::byte> from(64 << 20);
  std::vector<std::byte> to(from.size());
  const double seconds =
      best_seconds(comm, 1, [&] { std::memcpy(to.data(), from.data(), from.size()); });
  print(comm, fmt::format("attainable: memcpy of 64 MiB on all ranks at once, {:.2f} GB/s a rank",
                          static_cast<double>(from.size()) / seconds / 1e9));
}

void bench_ring_shift(Communicator& comm) {
  print(comm,
        fmt::format("{:<16}{:>12}{:>14}{:>16}", "ring_shift", "bytes", "us", "GB/s per rank"));
  for (std::size_t n = 1 << 10; n <= 64 << 20; n *= 4) {
    std::vector<std::byte> out(n, std::byte{1});
    std::vector<std::byte> in(n, std::byte{2});
    const int n_per_batch = static_cast<int>(std::clamp<std::size_t>((16 << 20) / n, 1, 500));
    const double seconds = best_seconds(comm, n_per_batch, [&] { ring_shift(comm, out, in); });
    print(comm, fmt::format("{:<16}{:>12}{:>14.1f}{:>16.3f}", "", n, seconds * 1e6,
                            static_cast<double>(n) / seconds / 1e9));
  }
}

void bench_all_reduce(Communicator& comm) {
  print(comm, fmt::format("{:<16}{:>12}{:>14}", "all_reduce_sum", "bytes", "us"));
  for (const std::size_t batch : {1, 8, 64}) {
    std::vector<float> values(batch * 4096, 1.0F);  // [batch, d_model]
    const double seconds = best_seconds(comm, 50, [&] { comm.all_reduce_sum(values); });
    print(comm, fmt::format("{:<16}{:>12}{:>14.1f}", "", values.size() * 4, seconds * 1e6));
  }
}

// Seconds of arithmetic, in tasks as long as one of a kernel on a chunk's own keys.
void compute(double seconds) {
  constexpr std::chrono::microseconds kTask{500};
  const auto n_tasks =
      static_cast<std::int64_t>(seconds / std::chrono::duration<double>(kTask).count());
  parallel_for(n_tasks, [&](std::int64_t) {
    const Deadline end = Clock::now() + kTask;
    while (Clock::now() < end) {
    }
  });
}

// How long the other ranks wait for the bytes of rank 0, which is in a kernel.
void bench_meanwhile(Communicator& comm) {
  if (comm.size() < 2) return;
  constexpr std::size_t kBytes = 32 << 20;
  std::vector<std::byte> out(kBytes, std::byte{1});
  std::vector<std::byte> in(kBytes, std::byte{2});
  const double alone = best_seconds(comm, 4, [&] { ring_shift(comm, out, in); });
  const auto waited = [&](const std::function<void(RingTransfer&)>& kernel) {
    double best = 1e9;
    for (int i = 0; i < 9; ++i) {
      comm.barrier();
      const Stopwatch watch;
      RingTransfer transfer = start_ring_shift(comm, out, in);
      if (comm.rank() == 0) kernel(transfer);
      transfer.receive.wait();
      std::vector<double> seconds = {comm.rank() == 1 ? watch.seconds() : 0.0};
      transfer.send.wait();
      comm.all_reduce_max(seconds);
      best = std::min(best, seconds[0]);
    }
    return best;
  };
  const double unaided = waited([&](RingTransfer&) { compute(4 * alone); });
  const double aided = waited([&](RingTransfer& transfer) {
    const Meanwhile progress([&] { transfer.test(); });
    compute(4 * alone);
  });
  print(comm, fmt::format("{} MiB from rank 0 to rank 1: {:.1f} ms; while rank 0 is in a kernel of "
                          "{:.1f} ms: {:.1f} ms, with "
                          "Meanwhile {:.1f} ms",
                          kBytes >> 20, alone * 1e3, 4 * alone * 1e3, unaided * 1e3, aided * 1e3));
}

void bench(Communicator& comm) {
  bench_copy(comm);
  print(comm,
        fmt::format("barrier: {:.1f} us", best_seconds(comm, 500, [&] { comm.barrier(); }) * 1e6));
  bench_ring_shift(comm);
  bench_all_reduce(comm);
  bench_meanwhile(comm);
}

int run(int argc, char** argv) {
  set_kernel_threads(1);
  if (started_by_mpi_launcher()) {
    MpiEnvironment mpi(&argc, &argv);
    CommunicatorConfig config;
    config.kind = CommunicatorKind::kMpi;
    auto comm = make_communicator(config);
    print(*comm, fmt::format("MPI, {} ranks", comm->size()));
    bench(*comm);
    comm.reset();
    return mpi.finish(0);
  }
  int n_ranks = 2;
  if (argc > 1) {
    const std::string_view text(argv[1]);
    std::from_chars(text.data(), text.data() + text.size(), n_ranks);
  }
  fmt::print("threads, {} ranks\n", n_ranks);
  run_in_process(n_ranks, bench);
  return 0;
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) { return longhaul::run(argc, argv); }
