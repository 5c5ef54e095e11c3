#include "tests/bench/attainable.h"

#include <time.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/threads.h"

namespace longhaul::bench {
namespace {

double now() {
  timespec time{};
  ::clock_gettime(counts_cpu_time() ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The best of several runs of `work` (amount of one run) in billions a second.
template <typename Work>
double best_rate(const Work& work) {
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    const double begin = now();
    const double amount = work();
    best = std::max(best, amount / (now() - begin) / 1e9);
  }
  return best;
}

// One task a thread; the sum of their amounts.
template <typename Task>
double on_all_threads(const Task& task) {
  const std::int64_t n_threads = kernel_threads();
  std::vector<cpu::ProbeResult> results(static_cast<std::size_t>(n_threads));
  parallel_for(n_threads, [&](std::int64_t i) { results[static_cast<std::size_t>(i)] = task(i); });
  double amount = 0;
  for (const cpu::ProbeResult& result : results) {
    amount += static_cast<double>(result.amount);
    benchmark::DoNotOptimize(result.value);
  }
  return amount;
}

Attainable measure() {
  const cpu::Kernels& kernels = cpu::kernels();
  constexpr std::int64_t kRounds = 4'000'000;
  constexpr std::int64_t kFloats = std::int64_t{1} << 27;  // 512 MiB
  const std::vector<float> memory(static_cast<std::size_t>(kFloats), 1.0F);
  const std::int64_t part = kFloats / kernel_threads() / 1024 * 1024;
  const double int8_rate = best_rate([&] {
    return on_all_threads(
        [&](std::int64_t) { return kernels.probe_int8_products(kRounds, 1e-3F); });
  });
  const auto read_rate = [&](cpu::ReadOrder order) {
    return best_rate([&] {
      return on_all_threads([&](std::int64_t i) {
        return kernels.probe_read(memory.data() + i * part, part, order);
      });
    });
  };
  return {int8_rate,
          std::max(read_rate(cpu::ReadOrder::kOneStream), read_rate(cpu::ReadOrder::kFourStreams))};
}

benchmark::Counter rate(double amount) {
  return benchmark::Counter(amount / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

bool counts_cpu_time() { return kernel_threads() == 1; }

const Attainable& attainable() {
  static const Attainable measured = measure();
  return measured;
}

void report_int8_ops(benchmark::State& state, double operations) {
  state.counters["Gop/s"] = rate(operations);
  state.counters["of_peak"] = rate(operations / attainable().int8_gop_per_s);
}

void report_bytes(benchmark::State& state, double bytes) {
  state.counters["GB/s"] = rate(bytes);
  state.counters["of_bandwidth"] = rate(bytes / attainable().read_gb_per_s);
}

}  // namespace longhaul::bench
