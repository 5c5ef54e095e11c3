#include "kernels/probes/cpu_probes.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/threads.h"

namespace longhaul {
namespace {

constexpr std::int64_t kPartUnit = 1024;  // floats: whole vectors of every instruction set
constexpr std::int64_t kRounds = 1'000'000;

volatile float g_sink;  // keeps the compiler from leaving the probes out

// One task a thread; the sum of their amounts, a second.
template <typename Task>
double rate_on_all_threads(std::int64_t n_threads, WorkClock clock, const Task& task) {
  std::vector<cpu::ProbeResult> results(static_cast<std::size_t>(n_threads));
  const double begin = now_seconds(clock);
  parallel_for(n_threads, [&](std::int64_t i) { results[static_cast<std::size_t>(i)] = task(i); });
  const double seconds = now_seconds(clock) - begin;
  double amount = 0;
  for (const cpu::ProbeResult& result : results) {
    amount += static_cast<double>(result.amount);
    g_sink = result.value;
  }
  return amount / std::max(seconds, 1e-9);
}

}  // namespace

CpuProbes::CpuProbes(WorkClock clock, std::int64_t read_bytes)
    : clock_(clock),
      n_threads_(kernel_threads()),
      n_floats_(read_bytes / static_cast<std::int64_t>(sizeof(float))),
      memory_(static_cast<std::size_t>(n_floats_) * sizeof(float)) {
  // Each part is touched by a thread, so that its pages lie near a core.
  parallel_for(n_threads_, [&](std::int64_t i) {
    std::fill(memory() + i * n_floats_ / n_threads_, memory() + (i + 1) * n_floats_ / n_threads_,
              1.0F);
  });
}

Rates CpuProbes::measure() const {
  const cpu::Kernels& kernels = cpu::kernels();
  const std::int64_t part = n_floats_ / n_threads_ / kPartUnit * kPartUnit;
  const auto best_of = [&](int n_runs, const auto& task) {
    double best = 0;
    for (int i = 0; i < n_runs; ++i) {
      best = std::max(best, rate_on_all_threads(n_threads_, clock_, task));
    }
    return best;
  };
  Rates rates;
  rates.float_flops =
      best_of(3, [&](std::int64_t) { return kernels.probe_float_products(kRounds, 1e-3F); });
  rates.pair_flops =
      best_of(3, [&](std::int64_t) { return kernels.probe_bf16_products(kRounds, 1e-3F); });
  rates.int8_ops =
      best_of(3, [&](std::int64_t) { return kernels.probe_int8_products(kRounds, 1e-3F); });
  for (const cpu::ReadOrder order : {cpu::ReadOrder::kOneStream, cpu::ReadOrder::kFourStreams}) {
    const double rate = best_of(
        2, [&](std::int64_t i) { return kernels.probe_read(memory() + i * part, part, order); });
    rates.read_bytes = std::max(rates.read_bytes, rate);
  }
  return rates;
}

}  // namespace longhaul
