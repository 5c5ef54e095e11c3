#include "tools/rank_probe.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>

#include "base/clock.h"
#include "base/device.h"
#include "base/log.h"
#include "cluster/comm/gpu_copies.h"
#include "cluster/comm/host_info.h"
#include "kernels/device_cuda.h"
#include "kernels/int8_weights.h"
#include "kernels/isa.h"
#include "kernels/linear.h"
#include "kernels/tensor.h"
#include "tools/numa_advice.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// What a rank tells the others, as bytes.
struct Probe {
  std::array<char, 256> host{};  // ends with 0
  cpu_set_t cores{};
  std::int64_t process = 0;
  std::int64_t n_alone = 1;
  std::int64_t n_threads = 1;     // that its kernels take
  std::int64_t memory_bytes = 0;  // of the host, or what is left to this process
  double gflops = 0;
  double memory_gb_per_s = 0;
  std::int64_t gpu = -1;  // its number on the host; -1: none
  cuda::GpuId gpu_id;     // what its bytes and speeds are of, then

  bool shares_memory_with(const Probe& other) const {
    if ((gpu < 0) != (other.gpu < 0)) return false;
    return gpu < 0 ? host_name() == other.host_name() : gpu_id == other.gpu_id;
  }
  std::string_view host_name() const { return host.data(); }
  std::string_view core_bytes() const {
    return {reinterpret_cast<const char*>(&cores), sizeof cores};
  }
};
static_assert(std::is_trivially_copyable_v<Probe>);

// Of a file that the kernel writes: such files have no size and cannot be mapped. Empty when it is
// not there.
std::string kernel_text(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::optional<std::int64_t> number_in(const fs::path& file) {
  const std::string text = kernel_text(file);  // "max": no limit
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// What control groups leave to this process; nullopt without a limit.
std::optional<std::int64_t> cgroup_bytes() {
  const fs::path root = "/sys/fs/cgroup";
  std::optional<std::int64_t> least;
  const auto look_at = [&](const fs::path& limit_file, const fs::path& use_file) {
    const auto limit = number_in(limit_file);
    if (!limit) return;
    const std::int64_t left = std::max<std::int64_t>(0, *limit - number_in(use_file).value_or(0));
    if (!least || left < *least) least = left;
  };
  look_at(root / "memory.max", root / "memory.current");
  look_at(root / "memory/memory.limit_in_bytes", root / "memory/memory.usage_in_bytes");
  // Version 2: "0::/system.slice/slurm/job_7"; every group on the way down may have a limit.
  const std::string groups = kernel_text("/proc/self/cgroup");
  const std::size_t at = groups.find("0::/");
  if (at == std::string::npos) return least;
  const fs::path own = groups.substr(at + 4, groups.find('\n', at) - at - 4);
  fs::path folder = root;
  for (const fs::path& part : own) {
    folder /= part;
    look_at(folder / "memory.max", folder / "memory.current");
  }
  return least;
}

std::int64_t free_memory_bytes() {
  std::optional<std::int64_t> bytes = available_bytes_of(kernel_text("/proc/meminfo"));
  if (!bytes) bytes = std::int64_t{::sysconf(_SC_AVPHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  return std::min(*bytes, cgroup_bytes().value_or(*bytes));
}

// Repeats `work` for about a tenth of a second and returns the shortest time of one.
template <typename Work>
double shortest_seconds(const Work& work) {
  constexpr double kBudget = 0.1;
  work();  // threads start, pages are touched
  const Stopwatch all;
  double shortest = 1e30;
  do {
    const Stopwatch one;
    work();
    shortest = std::min(shortest, one.seconds());
  } while (all.seconds() < kBudget);
  return std::max(shortest, 1e-9);
}

// A product with `n_rows` rows of a weight matrix, in seconds.
double seconds_of_product(DType dtype, std::int64_t n_rows, std::int64_t n_out, std::int64_t n_in) {
  const bool is_int8 = dtype == DType::kI8;
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  const Tensor<std::byte, 1> floats({is_int8 ? 1 : n_out * n_in * element});
  const Int8Matrix integers = Int8Matrix::quantise(
      is_int8 ? Int8Shape{n_out, n_in} : Int8Shape{1, 1},
      [&](std::int64_t, float* row) { std::fill_n(row, is_int8 ? n_in : 1, 1.0F); });
  const Tensor<float, 2> x({n_rows, n_in});
  Tensor<float, 2> out({n_rows, n_out});
  const LinearArgs args{
      .x = x.view(),
      .weight = is_int8 ? integers.view() : WeightView{floats.data(), dtype, n_out, n_in},
      .bias = {},
      .out = out.view()};
  return shortest_seconds([&] { linear(StreamRef::cpu(), args); });
}

// The same on the stream's GPU. Int8 weights are measured as bf16.
double seconds_of_product(cuda::Stream& stream, DType dtype, std::int64_t n_rows,
                          std::int64_t n_out, std::int64_t n_in) {
  if (dtype == DType::kI8) dtype = DType::kBf16;
  const auto bytes = [](std::int64_t n, std::size_t each) {
    return static_cast<std::size_t>(n) * each;
  };
  const cuda::Buffer weight(bytes(n_out * n_in, size_of(dtype)));
  const cuda::Buffer x(bytes(n_rows * n_in, sizeof(float)));
  const cuda::Buffer out(bytes(n_rows * n_out, sizeof(float)));
  cuda::fill_with_zeros(stream, weight.data(), weight.bytes());
  cuda::fill_with_zeros(stream, x.data(), x.bytes());
  const LinearArgs args{.x = {reinterpret_cast<float*>(x.data()), {n_rows, n_in}},
                        .weight = WeightView{weight.data(), dtype, n_out, n_in},
                        .bias = {},
                        .out = {reinterpret_cast<float*>(out.data()), {n_rows, n_out}}};
  return shortest_seconds([&] {
    linear(stream.ref(), args);
    stream.synchronise();
  });
}

void measure_gpu(const ProbeConfig& config, Probe& probe) {
  cuda::Stream stream(config.gpu);
  constexpr std::int64_t kRows = 2048, kSide = 4096;
  const double product = seconds_of_product(stream, config.weight_dtype, kRows, kSide, kSide);
  probe.gflops = 2.0 * kRows * kSide * kSide / product / 1e9;
  constexpr std::int64_t kOut = 32'768;  // with kSide inputs several times a cache
  const double reading = seconds_of_product(stream, config.weight_dtype, 1, kOut, kSide);
  const double element = config.weight_dtype == DType::kF32 ? 4.0 : 2.0;
  probe.memory_gb_per_s = element * kOut * kSide / reading / 1e9;
}

void measure_speed(const ProbeConfig& config, Probe& probe) {
  if (config.gpu >= 0) return measure_gpu(config, probe);
  // Many rows on a matrix that caches hold: arithmetic. One row on one that they do not: memory.
  constexpr std::int64_t kRows = 128, kSide = 1024;
  const double product = seconds_of_product(config.weight_dtype, kRows, kSide, kSide);
  probe.gflops = 2.0 * kRows * kSide * kSide / product / 1e9;
  const auto n_out =
      static_cast<std::int64_t>((std::size_t{64} << 20) / (4096 * size_of(config.weight_dtype)));
  const double reading = seconds_of_product(config.weight_dtype, 1, n_out, 4096);
  probe.memory_gb_per_s = static_cast<double>(std::size_t{64} << 20) / reading / 1e9;
}

Probe probe_identity(int gpu) {
  Probe probe;
  const std::string host = hostname();
  std::memcpy(probe.host.data(), host.data(), std::min(host.size(), probe.host.size() - 1));
  if (::sched_getaffinity(0, sizeof probe.cores, &probe.cores) != 0) CPU_SET(0, &probe.cores);
  probe.process = ::getpid();
  set_kernel_threads(0);
  probe.n_alone = kernel_threads();
  if (gpu < 0) {
    probe.memory_bytes = free_memory_bytes();
  } else {
    probe.gpu = gpu;
    probe.gpu_id = cuda::gpu_id(gpu);
    probe.memory_bytes = static_cast<std::int64_t>(cuda::device_info(gpu).free_bytes);
  }
  return probe;
}

std::vector<Probe> gather(Communicator& comm, const Probe& mine) {
  std::vector<Probe> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

std::vector<ThreadClaim> claims_of(const std::vector<Probe>& probes) {
  std::vector<ThreadClaim> claims;
  for (const Probe& p : probes)
    claims.push_back({p.host_name(), p.process, p.core_bytes(), CPU_COUNT(&p.cores),
                      static_cast<int>(p.n_alone)});
  return claims;
}

// Ranks of one host with as many threads, or with a GPU each, are equal: where they measured
// differently, something else was running.
void equalise_hosts(const std::vector<Probe>& probes, std::vector<double>& speeds) {
  const std::vector<double> measured = speeds;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    std::vector<double> like;
    for (std::size_t j = 0; j < probes.size(); ++j) {
      if (probes[j].host_name() == probes[i].host_name() &&
          probes[j].n_threads == probes[i].n_threads &&
          (probes[j].gpu < 0) == (probes[i].gpu < 0)) {
        like.push_back(measured[j]);
      }
    }
    std::sort(like.begin(), like.end());
    speeds[i] = like[like.size() / 2];
  }
}

ClusterSpec cluster_of(const std::vector<Probe>& probes, bool speeds_known) {
  ClusterSpec cluster;
  cluster.speeds_known = speeds_known;
  std::vector<double> gflops, gb_per_s;
  for (const Probe& p : probes) {
    // Each rank saw the memory of the whole host or GPU, at about the same moment.
    std::int64_t memory = p.memory_bytes;
    std::int64_t n_local = 0;
    for (const Probe& other : probes) {
      if (!other.shares_memory_with(p)) continue;
      memory = std::min(memory, other.memory_bytes);
      ++n_local;
    }
    RankSpec& rank = cluster.ranks.emplace_back();
    rank.host = std::string(p.host_name());
    rank.memory_bytes = std::max<std::int64_t>(1, memory / n_local);
    if (p.gpu >= 0) {
      rank.device = Device::kCuda;
      rank.gpu = static_cast<int>(p.gpu);
      rank.gflops = kDefaultGpuGflops;
      rank.memory_gb_per_s = kDefaultGpuGbPerS;
    }
    gflops.push_back(p.gflops);
    gb_per_s.push_back(p.memory_gb_per_s);
  }
  if (!speeds_known) return cluster;
  equalise_hosts(probes, gflops);
  equalise_hosts(probes, gb_per_s);
  gflops = steadied(gflops);
  gb_per_s = steadied(gb_per_s);
  for (std::size_t i = 0; i < cluster.ranks.size(); ++i) {
    cluster.ranks[i].gflops = gflops[i];
    cluster.ranks[i].memory_gb_per_s = gb_per_s[i];
  }
  return cluster;
}

}  // namespace

std::optional<std::int64_t> available_bytes_of(std::string_view meminfo) {
  constexpr std::string_view kKey = "MemAvailable:";
  const std::size_t key = meminfo.find(kKey);
  if (key == std::string_view::npos) return std::nullopt;
  std::string_view rest = meminfo.substr(key + kKey.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  std::int64_t kib = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), kib);
  if (error != std::errc() || kib < 0 || kib > (std::int64_t{1} << 42)) return std::nullopt;
  return kib * 1024;
}

std::vector<double> steadied(const std::vector<double>& speeds) {
  if (speeds.empty()) return {};
  std::vector<double> sorted = speeds;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];
  std::vector<double> steady = speeds;
  for (double& speed : steady) {
    if (speed >= 0.75 * median && speed <= 1.25 * median) speed = median;
  }
  return steady;
}

int threads_for(const std::vector<ThreadClaim>& claims, std::size_t rank) {
  const ThreadClaim& mine = claims.at(rank);
  const bool user_said = mine.n_alone < mine.n_cores;
  const auto shares = [&](const ThreadClaim& other) {
    if (other.host != mine.host) return false;
    return user_said ? other.process == mine.process : other.cores == mine.cores;
  };
  const auto n_sharing = static_cast<int>(std::count_if(claims.begin(), claims.end(), shares));
  return std::max(1, mine.n_alone / n_sharing);
}

ProbedCluster probe_cluster(Communicator& comm, const ProbeConfig& config) {
  Probe mine = probe_identity(config.gpu);
  std::vector<Probe> all = gather(comm, mine);
  ProbedCluster probed;
  probed.n_threads = config.n_threads > 0
                         ? config.n_threads
                         : threads_for(claims_of(all), static_cast<std::size_t>(comm.rank()));
  if (const auto advice = numa_advice(numa_nodes_of(mine.cores), probed.n_threads)) {
    LONGHAUL_LOG(kWarning, kRun, "rank {} on {}: {}", comm.rank(), mine.host_name(), *advice);
  }
  if (config.measure_speed) {
    set_kernel_threads(probed.n_threads);
    mine.n_threads = probed.n_threads;
    comm.barrier();  // all measure at once
    measure_speed(config, mine);
    all = gather(comm, mine);
  }
  probed.cluster = cluster_of(all, config.measure_speed);
  return probed;
}

}  // namespace longhaul
