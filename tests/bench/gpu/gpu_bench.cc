// Speed of the operators on a GPU, each figure beside what the chip attains in the same run: bytes
// beside a plain read, products beside the largest bf16 product of cuBLASLt. Median of several
// timings by events, on random data (zeros draw less power and run faster). Run: gpu_bench
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/device_cuda.h"
#include "kernels/hopper_attention.h"
#include "kernels/kv_append.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/swiglu.h"
#include "kernels/top_k.h"
#include "tests/bench/gpu/read_probe.h"

namespace longhaul::bench {
namespace {

constexpr int kTimings = 7;
constexpr std::int64_t kBestProduct = 8192;  // rows, inputs and outputs of the largest product

// Milliseconds of one call: the median of kTimings timings of as many calls as take a few of them.
double milliseconds_of(cuda::Stream& stream, const std::function<void()>& call) {
  call();  // first uses load modules and choose algorithms
  stream.synchronise();
  cuda::Event begin;
  cuda::Event end;
  const auto time = [&](int n_calls) {
    begin.record(stream);
    for (int i = 0; i < n_calls; ++i) call();
    end.record(stream);
    end.wait();
    return end.milliseconds_since(begin) / n_calls;
  };
  const int n_calls = std::clamp(static_cast<int>(3.0 / std::max(time(1), 1e-3)), 1, 200);
  std::vector<double> times;
  for (int i = 0; i < kTimings; ++i) times.push_back(time(n_calls));
  std::ranges::sort(times);
  return times[kTimings / 2];
}

class Randomness {
 public:
  std::vector<float> floats(std::int64_t n) {
    std::vector<float> out(static_cast<std::size_t>(n));
    for (float& x : out) x = static_cast<float>(static_cast<std::int32_t>(engine_())) * 0x1p-31F;
    return out;
  }

 private:
  std::mt19937 engine_{1};
};

cuda::Buffer buffer_of(cuda::Stream& stream, const std::vector<float>& values) {
  cuda::Buffer out(values.size() * sizeof(float));
  cuda::copy_to_device(stream, out.data(), std::as_bytes(std::span(values)));
  return out;
}

cuda::Buffer bf16_buffer(cuda::Stream& stream, Randomness& random, std::int64_t n) {
  std::vector<std::uint16_t> halves;
  for (const float x : random.floats(n)) halves.push_back(to_bf16(x).bits);
  cuda::Buffer out(halves.size() * 2);
  cuda::copy_to_device(stream, out.data(), std::as_bytes(std::span(halves)));
  return out;
}

float* floats(const cuda::Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

// What the chip attains, and the table.
class Report {
 public:
  explicit Report(cuda::Stream& stream) : stream_(stream) {}

  void measure_memory() {
    constexpr std::size_t kBytes = std::size_t{2} << 30U;
    const cuda::Buffer from(kBytes);
    const cuda::Buffer to(kBytes);
    cuda::fill_with_zeros(stream_, from.data(), kBytes);
    const double ms = milliseconds_of(
        stream_, [&] { cuda::copy_on_device(stream_, to.data(), from.data(), kBytes); });
    fmt::print("{:<52} {:>9.3f} ms  {:>8.0f} GB/s\n", "copy of 2 GiB (read and written)", ms,
               2.0 * static_cast<double>(kBytes) / ms / 1e6);
    const double read_ms =
        milliseconds_of(stream_, [&] { read_all(stream_, from.data(), kBytes, to.data()); });
    gb_per_s_ = static_cast<double>(kBytes) / read_ms / 1e6;
    fmt::print("{:<52} {:>9.3f} ms  {:>8.0f} GB/s\n", "read of 2 GiB", read_ms, gb_per_s_);
  }
  void bytes(const std::string& name, double n_bytes, const std::function<void()>& call) {
    const double ms = milliseconds_of(stream_, call);
    const double rate = n_bytes / ms / 1e6;
    fmt::print("{:<52} {:>9.3f} ms  {:>8.0f} GB/s     {:>4.0f} % of read\n", name, ms, rate,
               100 * rate / gb_per_s_);
  }
  // The largest product of cuBLASLt: call it first.
  void measure_best_product(const std::string& name, double n_flops,
                            const std::function<void()>& call) {
    best_tflops_ = n_flops / milliseconds_of(stream_, call) / 1e9;
    flops(name, n_flops, call);
  }
  void flops(const std::string& name, double n_flops, const std::function<void()>& call) {
    const double ms = milliseconds_of(stream_, call);
    const double rate = n_flops / ms / 1e9;
    fmt::print("{:<52} {:>9.3f} ms  {:>8.1f} TFLOP/s  {:>4.0f} % of best bf16 product\n", name, ms,
               rate, 100 * rate / best_tflops_);
  }
  cuda::Stream& stream() { return stream_; }

 private:
  cuda::Stream& stream_;
  double gb_per_s_ = 0;
  double best_tflops_ = 0;
};

void bench_linear(Report& report, std::int64_t n_tokens, std::int64_t n_in, std::int64_t n_out) {
  cuda::Stream& stream = report.stream();
  Randomness random;
  const cuda::Buffer x = buffer_of(stream, random.floats(n_tokens * n_in));
  const cuda::Buffer weight = bf16_buffer(stream, random, n_in * n_out);
  const cuda::Buffer out(static_cast<std::size_t>(n_tokens * n_out) * sizeof(float));
  const LinearArgs args = {.x = TensorView<const float, 2>(floats(x), {n_tokens, n_in}),
                           .weight = {weight.data(), DType::kBf16, n_out, n_in},
                           .bias = {},
                           .out = TensorView<float, 2>(floats(out), {n_tokens, n_out})};
  const std::string name = fmt::format("linear bf16 {} x {} x {}", n_tokens, n_in, n_out);
  const auto call = [&] { linear(stream.ref(), args); };
  if (n_tokens == kBestProduct && n_in == kBestProduct && n_out == kBestProduct) {
    report.measure_best_product(name, 2.0 * std::pow(static_cast<double>(kBestProduct), 3), call);
  } else if (n_tokens <= 16) {
    report.bytes(name, 2.0 * static_cast<double>(n_in * n_out), call);
  } else {
    report.flops(name, 2.0 * static_cast<double>(n_tokens * n_in * n_out), call);
  }
}

// Integers and scales without meaning, in the panels of kernels/int8_weights.h.
void bench_int8_linear(Report& report, std::int64_t n_tokens, std::int64_t n_in,
                       std::int64_t n_out) {
  cuda::Stream& stream = report.stream();
  Randomness random;
  const cuda::Buffer x = buffer_of(stream, random.floats(n_tokens * n_in));
  const cuda::Buffer weight = buffer_of(stream, random.floats(n_in * n_out / 4));
  const cuda::Buffer scales = buffer_of(stream, random.floats(n_out));
  const cuda::Buffer out(static_cast<std::size_t>(n_tokens * n_out) * sizeof(float));
  const LinearArgs args = {.x = TensorView<const float, 2>(floats(x), {n_tokens, n_in}),
                           .weight = {.data = weight.data(),
                                      .dtype = DType::kI8,
                                      .n_out = n_out,
                                      .n_in = n_in,
                                      .scales = floats(scales),
                                      .group = kInt8Group},
                           .bias = {},
                           .out = TensorView<float, 2>(floats(out), {n_tokens, n_out})};
  const std::string name = fmt::format("linear int8 {} x {} x {}", n_tokens, n_in, n_out);
  const auto call = [&] { linear(stream.ref(), args); };
  if (n_tokens <= 32) {
    report.bytes(name, static_cast<double>(n_in * n_out), call);
  } else {
    report.flops(name, 2.0 * static_cast<double>(n_tokens * n_in * n_out), call);
  }
}

struct AttentionCase {
  std::string name;
  std::int64_t q_len;
  std::int64_t kv_len;  // the queries are the last q_len of these positions
  std::int64_t n_kv_heads;
  std::int64_t gqa_group;
  std::int64_t head_dim;
  KvType type;
  AttentionMask mask = {};
  std::int64_t n_streaming = 0;  // of the KV heads, with a mask of sink 128 and recent 256
  bool on_hopper = true;         // if the GPU is one and the kernel has the shape
  bool are_forks = false;        // the queries: each a sequence of its own, behind all keys
};

AttentionMask mask_of(const AttentionCase& c, std::int64_t head) {
  return head < c.n_streaming ? AttentionMask{.sink = 128, .recent = 256} : c.mask;
}

double visible_pairs(const AttentionCase& c, std::int64_t head) {
  const AttentionMask mask = mask_of(c, head);
  double pairs = 0;
  for (std::int64_t p = c.kv_len - c.q_len; p < c.kv_len; ++p) {
    const std::int64_t recent = std::min(mask.recent, p + 1);
    pairs += static_cast<double>(recent + std::min(mask.sink, p + 1 - recent));
  }
  return pairs;
}

// Blocks of one head, filled by kv_append with the same 4096 random tokens over and over.
class HeadBlocks {
 public:
  HeadBlocks(cuda::Stream& stream, const KvBlockShape& shape, std::int64_t kv_len)
      : n_blocks_(ceil_div(kv_len, shape.block_size)),
        memory_(static_cast<std::size_t>(n_blocks_) * shape.bytes()) {
    cuda::fill_with_zeros(stream, memory_.data(), memory_.bytes());
    Randomness random;
    constexpr std::int64_t kTokens = 4096;
    const cuda::Buffer x = buffer_of(stream, random.floats(kTokens * shape.head_dim));
    for (std::int64_t b = 0; b < n_blocks_; ++b) {
      std::byte* block = memory_.data() + static_cast<std::size_t>(b) * shape.bytes();
      const std::int64_t first = b * shape.block_size;
      refs_.push_back({block, first, std::min(shape.block_size, kv_len - first)});
      pointers_.push_back(block);
    }
    for (std::int64_t first = 0; first < kv_len; first += kTokens) {
      const std::int64_t n = std::min(kTokens, kv_len - first);
      const TensorView<const float, 2> rows(floats(x), {n, shape.head_dim});
      const KvAppendItem item = {.k = rows, .v = rows, .blocks = pointers_, .first_slot = first};
      kv_append(stream.ref(), {.shape = shape, .items = {&item, 1}});
    }
    stream.synchronise();
  }
  std::span<const KvBlockRef> refs() const { return refs_; }
  std::size_t bytes() const { return memory_.bytes(); }

 private:
  std::int64_t n_blocks_;
  cuda::Buffer memory_;
  std::vector<KvBlockRef> refs_;
  std::vector<std::byte*> pointers_;
};

void bench_attention(Report& report, const AttentionCase& c) {
  cuda::Stream& stream = report.stream();
  const KvBlockShape shape = {
      .block_size = 64, .head_dim = c.head_dim, .k_type = c.type, .v_type = c.type};
  std::vector<HeadBlocks> heads;
  for (std::int64_t h = 0; h < c.n_kv_heads; ++h) heads.emplace_back(stream, shape, c.kv_len);
  const std::int64_t n_heads = c.n_kv_heads * c.gqa_group;
  Randomness random;
  const cuda::Buffer q = buffer_of(stream, random.floats(c.q_len * n_heads * c.head_dim));
  const cuda::Buffer o(q.bytes());
  const cuda::Buffer ml(static_cast<std::size_t>(2 * c.q_len * n_heads) * sizeof(float));
  const SoftmaxStateView state = {
      TensorView<float, 3>(floats(o), {c.q_len, n_heads, c.head_dim}),
      TensorView<float, 2>(floats(ml), {c.q_len, n_heads}),
      TensorView<float, 2>(floats(ml) + c.q_len * n_heads, {c.q_len, n_heads})};
  std::vector<std::int64_t> positions;
  for (std::int64_t p = c.kv_len - c.q_len; p < c.kv_len; ++p) {
    positions.push_back(c.are_forks ? c.kv_len : p);
  }
  std::vector<AttentionItem> items;
  double pairs = 0;
  double n_bytes = 0;
  const TensorView<const float, 3> all_q(floats(q), {c.q_len, n_heads, c.head_dim});
  for (std::int64_t h = 0; h < c.n_kv_heads; ++h) {
    const Extent own = {h * c.gqa_group, (h + 1) * c.gqa_group};
    const std::int64_t n_items = c.are_forks ? c.q_len : 1;
    for (std::int64_t i = 0; i < n_items; ++i) {
      const Extent rows = {i * c.q_len / n_items, (i + 1) * c.q_len / n_items};
      items.push_back(
          {.q = all_q.slice(0, rows).slice(1, own),
           .q_positions = std::span(positions).subspan(static_cast<std::size_t>(rows.begin),
                                                       static_cast<std::size_t>(rows.size())),
           .blocks = heads[static_cast<std::size_t>(h)].refs(),
           .mask = mask_of(c, h),
           .state = state.tokens(rows).heads(own)});
    }
    pairs += visible_pairs(c, h) * static_cast<double>(c.gqa_group);
    n_bytes += static_cast<double>(heads[static_cast<std::size_t>(h)].bytes());
  }
  const AttentionArgs args = {shape, 1.0F / std::sqrt(static_cast<float>(c.head_dim)), items};
  const auto call = [&] {
    clear(stream.ref(), state);
    attention(stream.ref(), args);
  };
  set_hopper_attention_rows(c.on_hopper ? kUsualHopperRows
                                        : std::numeric_limits<std::int64_t>::max());
  const std::string name = fmt::format("{} {} q {} kv {} heads {}x{}", c.name, name_of(c.type),
                                       c.q_len, c.kv_len, c.n_kv_heads, c.gqa_group);
  if (c.q_len == 1 || c.are_forks) {
    report.bytes(name, n_bytes, call);
  } else {
    report.flops(name, 4.0 * pairs * static_cast<double>(c.head_dim), call);
  }
}

void bench_rows(Report& report) {
  cuda::Stream& stream = report.stream();
  constexpr std::int64_t kTokens = 8192;
  constexpr std::int64_t kWidth = 4096;
  constexpr std::int64_t kBytes = kTokens * kWidth * 4;
  Randomness random;
  const cuda::Buffer x = buffer_of(stream, random.floats(kTokens * kWidth));
  const cuda::Buffer y(x.bytes());
  cuda::fill_with_zeros(stream, y.data(), y.bytes());
  const TensorView<float, 2> x_view(floats(x), {kTokens, kWidth});
  const TensorView<float, 2> y_view(floats(y), {kTokens, kWidth});
  report.bytes("rms_norm 8192 x 4096", 2.0 * kBytes, [&] {
    rms_norm(stream.ref(),
             {.x = x_view, .weight = {floats(x), static_cast<std::size_t>(kWidth)}, .out = y_view});
  });
  report.bytes("swiglu 8192 x 4096", 3.0 * kBytes,
               [&] { swiglu(stream.ref(), {.gate = x_view, .up = y_view, .out = y_view}); });
  const KvBlockShape shape = {
      .block_size = 64, .head_dim = 128, .k_type = KvType::kInt8, .v_type = KvType::kInt8};
  constexpr std::int64_t kBlocks = kTokens * kWidth / 128 / 64;
  const cuda::Buffer cache(static_cast<std::size_t>(kBlocks) * shape.bytes());
  std::vector<std::byte*> blocks;
  for (std::size_t b = 0; b < kBlocks; ++b) blocks.push_back(cache.data() + b * shape.bytes());
  const TensorView<const float, 2> rows(floats(x), {kBlocks * 64, 128});
  const KvAppendItem item = {.k = rows, .v = rows, .blocks = blocks, .first_slot = 0};
  report.bytes("kv_append int8, 262144 tokens of a head",
               2.0 * kBytes + static_cast<double>(cache.bytes()), [&] {
                 kv_append(stream.ref(), {.shape = shape, .items = {&item, 1}});
               });
}

// On Hopper bf16 goes by its own kernel; "mma.sync" is the one that all chips have.
void bench_prefill(Report& report) {
  constexpr KvType kBf16 = KvType::kBf16;
  const AttentionMask streaming = {.sink = 128, .recent = 256};
  for (const std::int64_t n : {16384, 32768, 65536}) {
    bench_attention(report, {"causal", n, n, 8, 4, 128, kBf16});
  }
  bench_attention(report, {"causal, mma.sync", 16384, 16384, 8, 4, 128, kBf16, {}, 0, false});
  bench_attention(report, {"causal d64", 16384, 16384, 8, 4, 64, kBf16});
  bench_attention(report, {"history, dense", 16384, 131072, 8, 4, 128, kBf16});
  bench_attention(report, {"history, half streaming", 16384, 131072, 8, 4, 128, kBf16, {}, 4});
  bench_attention(report, {"streaming", 16384, 131072, 8, 4, 128, kBf16, streaming});
  bench_attention(report,
                  {"streaming, mma.sync", 16384, 131072, 8, 4, 128, kBf16, streaming, 0, false});
  for (const KvType type : {KvType::kInt8, KvType::kInt4}) {
    bench_attention(report, {"causal", 8192, 8192, 8, 4, 128, type});
  }
  bench_attention(report, {"causal", 1024, 1024, 8, 4, 128, KvType::kF32});
}

void bench_decode(Report& report) {
  for (const KvType type : {KvType::kBf16, KvType::kInt8, KvType::kInt4}) {
    bench_attention(report, {"decode", 1, 1048576, 8, 4, 128, type});
  }
  for (const std::int64_t n : {1, 8, 32}) {
    bench_attention(
        report, {"forks", n, 262144, 8, 4, 128, KvType::kBf16, {}, 0, true, /*are_forks=*/true});
  }
}

void run() {
  cuda::Stream stream(0);
  const cuda::DeviceInfo& device = stream.device();
  fmt::print("{}, compute capability {}.{}, {} multiprocessors, {:.1f} GB\n", device.name,
             device.major, device.minor, device.n_multiprocessors,
             static_cast<double>(device.memory_bytes) / 1e9);
  Report report(stream);
  report.measure_memory();
  bench_linear(report, kBestProduct, kBestProduct, kBestProduct);
  bench_linear(report, 8192, 4096, 14336);
  bench_linear(report, 512, 4096, 4096);
  for (const std::int64_t n_tokens : {1, 16}) bench_linear(report, n_tokens, 4096, 14336);
  for (const std::int64_t n_tokens : {8192, 512, 64}) {
    bench_int8_linear(report, n_tokens, 4096, 14336);
  }
  for (const std::int64_t n_tokens : {1, 16, 32}) bench_int8_linear(report, n_tokens, 4096, 14336);
  bench_rows(report);
  bench_prefill(report);
  bench_decode(report);
}

}  // namespace
}  // namespace longhaul::bench

int main() {
  if (longhaul::cuda::device_count() == 0) {
    fmt::print("gpu_bench: no GPU: {}\n", longhaul::cuda::why_no_device());
    return 0;
  }
  longhaul::bench::run();
}
