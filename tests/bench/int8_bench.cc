// Products with int8 weights beside oneDNN's, the peer: ours with quantising activations and
// scaling, oneDNN's bytes alone. `longhaul bench kernels` measures everything else.
// Run: configure with -DLONGHAUL_BENCH=ON -DCMAKE_BUILD_TYPE=Release, build int8_bench, then
//   int8_bench     (OMP_NUM_THREADS=n, LONGHAUL_ISA=avx512)
// of_peak and of_bandwidth are shares of attainable(). With several threads wall time counts, with
// one its CPU time.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/linear_paths.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/threads.h"
#include "kernels/int8_weights.h"
#include "tests/bench/attainable.h"
#include "tests/bench/onednn_int8.h"

namespace longhaul::bench {
namespace {

struct LinearCase {
  std::string name;
  std::int64_t n_tokens;
  std::int64_t n_in;
  std::int64_t n_out;
};

// Not all equal, no denormals; random enough for timing.
void fill(float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(i * 7919 % 2003) / 1000.0F - 1.0F;
}

void report(benchmark::State& state, const LinearCase& c) {
  report_int8_ops(state, 2.0 * static_cast<double>(c.n_tokens * c.n_in * c.n_out));
  report_bytes(state, static_cast<double>(c.n_out * c.n_in));
}

void run_own(benchmark::State& state, const LinearCase& c) {
  Tensor<float, 2> x({c.n_tokens, c.n_in});
  Tensor<float, 2> out({c.n_tokens, c.n_out});
  fill(x.data(), x.size());
  const Int8Matrix weight = Int8Matrix::quantise(
      Int8Shape{c.n_out, c.n_in}, [&](std::int64_t, float* row) { fill(row, c.n_in); });
  const LinearArgs args = {.x = x.view(), .weight = weight.view(), .bias = {}, .out = out.view()};
  for (auto _ : state) {
    linear_by(LinearPath::kInt8, args);
    benchmark::DoNotOptimize(out.data());
  }
  report(state, c);
}

void run_onednn(benchmark::State& state, const LinearCase& c) {
  const std::function<void()> product = onednn_int8_product(c.n_tokens, c.n_in, c.n_out);
  for (auto _ : state) product();
  report(state, c);
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& run) {
  auto* bench = benchmark::RegisterBenchmark(name.c_str(), run);
  bench->Unit(benchmark::kMillisecond);
  if (!counts_cpu_time()) bench->UseRealTime();
}

void add_all() {
  const LinearCase cases[] = {
      {"1B_up", 512, 2048, 8192},  {"1B_down", 512, 8192, 2048}, {"8B_qo", 512, 4096, 4096},
      {"8B_up", 512, 4096, 14336}, {"1B_up", 1, 2048, 8192},     {"8B_up", 1, 4096, 14336},
      {"8B_down", 1, 14336, 4096}, {"8B_up", 8, 4096, 14336},    {"8B_up", 32, 4096, 14336},
  };
  for (const LinearCase& c : cases) {
    const std::string name = fmt::format("{}/rows_{}/", c.name, c.n_tokens);
    add(name + "own", [=](benchmark::State& state) { run_own(state, c); });
    if (!onednn::in_build()) continue;
    add(name + "onednn_products_alone", [=](benchmark::State& state) { run_onednn(state, c); });
  }
}

}  // namespace
}  // namespace longhaul::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  if (const char* isa = std::getenv("LONGHAUL_ISA"); isa != nullptr) {
    longhaul::set_active_isa(longhaul::isa_named(isa));
  }
  const longhaul::bench::Attainable& best = longhaul::bench::attainable();
  fmt::print(stderr, "attainable with {} threads, {}: int8 {:.1f} Gop/s, memory {:.1f} GB/s\n",
             longhaul::kernel_threads(), longhaul::name_of(longhaul::active_isa()),
             best.int8_gop_per_s, best.read_gb_per_s);
  longhaul::bench::add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
