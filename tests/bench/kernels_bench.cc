// Speed of linear and attention, each figure beside what the machine attains.
// Run: configure with -DLONGHAUL_BENCH=ON -DCMAKE_BUILD_TYPE=Release, build kernels_bench, then
//   kernels_bench [--benchmark_filter=Attention]     (OMP_NUM_THREADS=n, LONGHAUL_ISA=avx2)
// of_peak and of_bandwidth are shares of attainable(). With several threads wall time counts, with
// one its CPU time.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/int8_weights.h"
#include "kernels/isa.h"
#include "kernels/linear_paths.h"
#include "kernels/onednn.h"
#include "tests/bench/attainable.h"
#include "tests/bench/onednn_int8.h"

namespace longhaul::bench {
namespace {

// Not all equal, no denormals; random enough for timing.
void fill(float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(i * 7919 % 2003) / 1000.0F - 1.0F;
}

std::int64_t element_bytes(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

// Memory for values of a type. bf16 values from the same pattern.
Tensor<std::byte, 1> filled(DType dtype, std::int64_t n) {
  Tensor<std::byte, 1> out({n * element_bytes(dtype)});
  if (dtype == DType::kF32) {
    fill(reinterpret_cast<float*>(out.data()), n);
    return out;
  }
  auto* halves = reinterpret_cast<BFloat16*>(out.data());
  for (std::int64_t i = 0; i < n; ++i) {
    halves[i] = to_bf16(static_cast<float>(i * 7919 % 2003) / 1000.0F - 1.0F);
  }
  return out;
}

void set_clock(benchmark::internal::Benchmark* bench) {
  bench->Unit(benchmark::kMillisecond);
  if (!counts_cpu_time()) bench->UseRealTime();
}

struct LinearCase {
  std::string name;
  std::int64_t n_tokens;
  std::int64_t n_in;
  std::int64_t n_out;
};

void run_linear(benchmark::State& state, const LinearCase& c, DType dtype, LinearPath path) {
  Tensor<float, 2> x({c.n_tokens, c.n_in});
  Tensor<float, 2> out({c.n_tokens, c.n_out});
  fill(x.data(), x.size());
  const bool is_int8 = dtype == DType::kI8;
  const Tensor<std::byte, 1> floats =
      filled(is_int8 ? DType::kBf16 : dtype, is_int8 ? 1 : c.n_out * c.n_in);
  const Int8Matrix integers =
      Int8Matrix::quantise(is_int8 ? Int8Shape{c.n_out, c.n_in} : Int8Shape{1, 1},
                           [&](std::int64_t, float* row) { fill(row, is_int8 ? c.n_in : 1); });
  const LinearArgs args = {
      .x = x.view(),
      .weight = is_int8 ? integers.view() : WeightView{floats.data(), dtype, c.n_out, c.n_in},
      .bias = {},
      .out = out.view()};
  for (auto _ : state) {
    linear_by(path, args);
    benchmark::DoNotOptimize(out.data());
  }
  report_flops(state, 2.0 * static_cast<double>(c.n_tokens * c.n_in * c.n_out), dtype);
  report_bytes(state, static_cast<double>(c.n_out * c.n_in * element_bytes(dtype)));
}

void run_onednn_int8(benchmark::State& state, const LinearCase& c) {
  const std::function<void()> product = onednn_int8_product(c.n_tokens, c.n_in, c.n_out);
  for (auto _ : state) product();
  report_flops(state, 2.0 * static_cast<double>(c.n_tokens * c.n_in * c.n_out), DType::kI8);
  report_bytes(state, static_cast<double>(c.n_out * c.n_in));
}

void register_int8(const LinearCase& c) {
  const std::string name = fmt::format("Linear/{}/rows_{}/int8", c.name, c.n_tokens);
  benchmark::RegisterBenchmark((name + "/own").c_str(), [=](benchmark::State& state) {
    run_linear(state, c, DType::kI8, LinearPath::kInt8);
  })->Apply(set_clock);
  if (!onednn::in_build()) return;
  benchmark::RegisterBenchmark((name + "/onednn_products_alone").c_str(),
                               [=](benchmark::State& state) { run_onednn_int8(state, c); })
      ->Apply(set_clock);
}

void register_linear() {
  const LinearCase cases[] = {
      {"1B_up", 512, 2048, 8192},  {"1B_down", 512, 8192, 2048}, {"8B_qo", 512, 4096, 4096},
      {"8B_up", 512, 4096, 14336}, {"1B_up", 1, 2048, 8192},     {"8B_up", 1, 4096, 14336},
      {"8B_down", 1, 14336, 4096}, {"8B_up", 4, 4096, 14336},    {"8B_up", 8, 4096, 14336},
      {"8B_up", 16, 4096, 14336},  {"8B_up", 32, 4096, 14336},   {"1B_logits", 1, 2048, 128256},
  };
  for (const LinearCase& c : cases) {
    register_int8(c);
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const LinearPath path :
           {LinearPath::kFewRows, LinearPath::kTiled, LinearPath::kOneDnn}) {
        const bool few = path == LinearPath::kFewRows;
        if (few ? c.n_tokens > 32 : c.n_tokens < 8) continue;
        if (path == LinearPath::kOneDnn && !onednn::in_build()) continue;
        benchmark::RegisterBenchmark(
            fmt::format("Linear/{}/rows_{}/{}/{}", c.name, c.n_tokens, name_of(dtype),
                        name_of(path))
                .c_str(),
            [=](benchmark::State& state) { run_linear(state, c, dtype, path); })
            ->Apply(set_clock);
      }
    }
  }
}

struct AttentionCase {
  std::string name;
  std::int64_t q_len;
  std::int64_t kv_len;  // the queries are the last q_len of these positions
  std::int64_t n_kv_heads;
  std::int64_t gqa_group;
  std::int64_t head_dim;
  AttentionMask mask = {};
};

// Query-key pairs that the mask lets through, for one head.
double visible_pairs(const AttentionCase& c) {
  double pairs = 0;
  for (std::int64_t p = c.kv_len - c.q_len; p < c.kv_len; ++p) {
    const std::int64_t recent = std::min(c.mask.recent, p + 1);
    pairs += static_cast<double>(recent + std::min(c.mask.sink, p + 1 - recent));
  }
  return pairs;
}

void run_attention(benchmark::State& state, const AttentionCase& c, DType dtype) {
  const KvType type = natural_kv_type(dtype);
  const KvBlockShape shape = {
      .block_size = 64, .head_dim = c.head_dim, .k_type = type, .v_type = type};
  const std::int64_t n_blocks = ceil_div(c.kv_len, shape.block_size);
  const Tensor<std::byte, 1> cache =
      filled(dtype, c.n_kv_heads * n_blocks * 2 * shape.block_size * c.head_dim);
  Tensor<float, 3> q({c.q_len, c.n_kv_heads * c.gqa_group, c.head_dim});
  fill(q.data(), q.size());
  SoftmaxState softmax(c.q_len, c.n_kv_heads * c.gqa_group, c.head_dim);
  std::vector<std::int64_t> positions;
  for (std::int64_t p = c.kv_len - c.q_len; p < c.kv_len; ++p) positions.push_back(p);
  std::vector<std::vector<KvBlockRef>> blocks(static_cast<std::size_t>(c.n_kv_heads));
  std::vector<AttentionItem> items;
  const TensorView<const float, 3> all_q = q.view();
  const std::byte* next = cache.data();
  for (std::int64_t head = 0; head < c.n_kv_heads; ++head) {
    auto& list = blocks[static_cast<std::size_t>(head)];
    for (std::int64_t b = 0; b < n_blocks; ++b, next += shape.bytes()) {
      const std::int64_t first = b * shape.block_size;
      list.push_back({next, first, std::min(shape.block_size, c.kv_len - first)});
    }
    const Extent heads = {head * c.gqa_group, (head + 1) * c.gqa_group};
    items.push_back({.q = all_q.slice(1, heads),
                     .q_positions = positions,
                     .blocks = list,
                     .mask = c.mask,
                     .state = softmax.view().heads(heads)});
  }
  const AttentionArgs args = {shape, 1.0F / std::sqrt(static_cast<float>(c.head_dim)), items};
  for (auto _ : state) {
    clear(StreamRef::cpu(), softmax.view());
    attention(StreamRef::cpu(), args);
    benchmark::DoNotOptimize(softmax.o.data());
  }
  const auto n_heads = static_cast<double>(c.n_kv_heads * c.gqa_group);
  report_flops(state, 4.0 * visible_pairs(c) * n_heads * static_cast<double>(c.head_dim), dtype);
  if (c.q_len == 1) {
    report_bytes(state, static_cast<double>(c.n_kv_heads * c.kv_len * 2 * c.head_dim *
                                            element_bytes(dtype)));
  }
}

void register_attention() {
  const AttentionMask streaming = {.sink = 128, .recent = 256};
  const AttentionCase cases[] = {
      {"prefill_causal_8K/d128", 8192, 8192, 1, 4, 128},
      {"prefill_causal_8K/d64", 8192, 8192, 1, 4, 64},
      {"prefill_history_64K/d128", 512, 65536, 1, 4, 128},
      {"prefill_streaming_8K/d128", 8192, 8192, 2, 4, 128, streaming},
      {"decode_64K/d128/gqa4", 1, 65536, 4, 4, 128},
      {"decode_64K/d128/gqa8", 1, 65536, 4, 8, 128},
      {"decode_64K/d64/gqa1", 1, 65536, 4, 1, 64},
  };
  for (const AttentionCase& c : cases) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      benchmark::RegisterBenchmark(fmt::format("Attention/{}/{}", c.name, name_of(dtype)).c_str(),
                                   [=](benchmark::State& state) { run_attention(state, c, dtype); })
          ->Apply(set_clock);
    }
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
  fmt::print(stderr,
             "attainable with {} threads, {}: f32 {:.1f} GFLOP/s, bf16 pairs {:.1f} GFLOP/s, "
             "int8 {:.1f} Gop/s, memory {:.1f} GB/s\n",
             longhaul::kernel_threads(), longhaul::name_of(longhaul::active_isa()),
             best.float_gflop_per_s, best.pair_gflop_per_s, best.int8_gop_per_s,
             best.read_gb_per_s);
  longhaul::bench::register_linear();
  longhaul::bench::register_attention();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
