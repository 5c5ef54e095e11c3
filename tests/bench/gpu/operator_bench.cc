// Speed of the operators on a GPU: products, attention in prefill and decode, rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/int4_format.h"
#include "kernels/attention.h"
#include "kernels/cuda/hopper_attention.h"
#include "kernels/int8_weights.h"
#include "kernels/kv_append.h"
#include "kernels/kv_close.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/swiglu.h"
#include "kernels/top_k.h"
#include "tests/bench/gpu/gpu_buffers.h"
#include "tests/bench/gpu/gpu_report.h"

namespace longhaul::bench {
namespace {

void bench_linear(GpuReport& report, std::int64_t n_tokens, std::int64_t n_in, std::int64_t n_out) {
  cuda::Stream& stream = report.stream();
  const cuda::Buffer x = random_buffer(stream, DType::kF32, n_tokens * n_in);
  const cuda::Buffer weight = random_buffer(stream, DType::kBf16, n_in * n_out);
  const cuda::Buffer out(static_cast<std::size_t>(n_tokens * n_out) * sizeof(float));
  const LinearArgs args = {.x = TensorView<const float, 2>(floats(x), {n_tokens, n_in}),
                           .weight = {weight.data(), DType::kBf16, n_out, n_in},
                           .bias = {},
                           .out = TensorView<float, 2>(floats(out), {n_tokens, n_out})};
  const std::string name = fmt::format("linear bf16 {} x {} x {}", n_tokens, n_in, n_out);
  const auto call = [&] { linear(stream.ref(), args); };
  if (n_tokens <= 16) {
    report.bytes(name, 2.0 * static_cast<double>(n_in * n_out), call);
  } else {
    report.flops(name, 2.0 * static_cast<double>(n_tokens * n_in * n_out), call);
  }
}

// Integers and scales without meaning, in the panels of kernels/int8_weights.h and int4_weights.h.
void bench_integer_linear(GpuReport& report, DType dtype, std::int64_t n_tokens, std::int64_t n_in,
                          std::int64_t n_out) {
  cuda::Stream& stream = report.stream();
  const cuda::Buffer x = random_buffer(stream, DType::kF32, n_tokens * n_in);
  const std::int64_t n_bytes =
      dtype == DType::kI4 ? int4_matrix_bytes(n_out, n_in) : int8_matrix_bytes(n_out, n_in);
  const cuda::Buffer weight = random_buffer(stream, DType::kBf16, n_bytes / 2);
  const std::byte* scales = weight.data() + (dtype == DType::kI4 ? n_in * n_out / 2 : n_in * n_out);
  const cuda::Buffer out(static_cast<std::size_t>(n_tokens * n_out) * sizeof(float));
  const LinearArgs args = {
      .x = TensorView<const float, 2>(floats(x), {n_tokens, n_in}),
      .weight = {.data = weight.data(),
                 .dtype = dtype,
                 .n_out = n_out,
                 .n_in = n_in,
                 .scales = reinterpret_cast<const float*>(scales),
                 .group = kInt8Group,
                 .group_scales = reinterpret_cast<const std::uint16_t*>(scales)},
      .bias = {},
      .out = TensorView<float, 2>(floats(out), {n_tokens, n_out})};
  const std::string name =
      fmt::format("linear {} {} x {} x {}", name_of(dtype), n_tokens, n_in, n_out);
  const auto call = [&] { linear(stream.ref(), args); };
  if (n_tokens <= 32) {
    report.bytes(name, static_cast<double>(n_bytes), call);
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

// Blocks of one head, filled by kv_append with the same 4096 random tokens over and over; of types
// that quantise groups by kv_close, all with the same.
class HeadBlocks {
 public:
  HeadBlocks(cuda::Stream& stream, const KvBlockShape& shape, std::int64_t kv_len)
      : n_blocks_(ceil_div(kv_len, shape.block_size)),
        memory_(static_cast<std::size_t>(n_blocks_) * shape.bytes()),
        table_(static_cast<std::size_t>(n_blocks_) * sizeof(std::byte*)) {
    cuda::fill_with_zeros(stream, memory_.data(), memory_.bytes());
    constexpr std::int64_t kTokens = 4096;
    const cuda::Buffer x = random_buffer(stream, DType::kF32, kTokens * shape.head_dim);
    for (std::int64_t b = 0; b < n_blocks_; ++b) {
      std::byte* block = memory_.data() + static_cast<std::size_t>(b) * shape.bytes();
      const std::int64_t first = b * shape.block_size;
      refs_.push_back({block, first, std::min(shape.block_size, kv_len - first)});
      pointers_.push_back(block);
    }
    cuda::copy_to_device(stream, table_.data(), std::as_bytes(std::span(pointers_)));
    if (shape.quantises_groups()) {
      std::vector<KvCloseItem> items;
      for (std::byte* block : pointers_) items.push_back({.open = x.data(), .closed = block});
      kv_close(stream.ref(), {.shape = shape, .items = items});
      stream.synchronise();
      return;
    }
    for (std::int64_t first = 0; first < kv_len; first += kTokens) {
      const std::int64_t n = std::min(kTokens, kv_len - first);
      const TensorView<const float, 2> rows(floats(x), {n, shape.head_dim});
      const auto blocks =
          std::span(pointers_).subspan(static_cast<std::size_t>(first / shape.block_size));
      const KvAppendItem item = {.k = rows, .v = rows, .blocks = blocks, .first_slot = 0};
      kv_append(stream.ref(), {.shape = shape, .items = {&item, 1}});
    }
    stream.synchronise();
  }
  std::span<const KvBlockRef> refs() const { return refs_; }
  // The same by number, as decode has them; forks have them in common.
  BlockTable table(std::int64_t n_tokens) const {
    return {.shared = reinterpret_cast<const std::byte* const*>(table_.data()),
            .n_shared = n_blocks_,
            .n_tokens = n_tokens,
            .gone = {}};
  }
  std::size_t bytes() const { return memory_.bytes(); }

 private:
  std::int64_t n_blocks_;
  cuda::Buffer memory_;
  cuda::Buffer table_;
  std::vector<KvBlockRef> refs_;
  std::vector<std::byte*> pointers_;
};

// Milliseconds.
double bench_attention(GpuReport& report, const AttentionCase& c) {
  cuda::Stream& stream = report.stream();
  const KvBlockShape shape = {
      .block_size = 64, .head_dim = c.head_dim, .k_type = c.type, .v_type = c.type};
  std::vector<HeadBlocks> heads;
  for (std::int64_t h = 0; h < c.n_kv_heads; ++h) heads.emplace_back(stream, shape, c.kv_len);
  const std::int64_t n_heads = c.n_kv_heads * c.gqa_group;
  const cuda::Buffer q = random_buffer(stream, DType::kF32, c.q_len * n_heads * c.head_dim);
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
  const bool is_decode = c.q_len == 1 || c.are_forks;
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
           .table = is_decode ? std::optional(heads[static_cast<std::size_t>(h)].table(c.kv_len))
                              : std::nullopt,
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
  if (is_decode) {
    return report.bytes(name, n_bytes, call, Queueing::kReplay);  // as decode has it
  }
  return report.flops(name, 4.0 * pairs * static_cast<double>(c.head_dim), call);
}

// What streaming heads save: half of the heads against all that keep everything.
void bench_half_streaming(GpuReport& report, const AttentionCase& dense) {
  AttentionCase half = dense;
  half.name += ", half streaming";
  half.n_streaming = dense.n_kv_heads / 2;
  const double dense_ms = bench_attention(report, dense);
  const double half_ms = bench_attention(report, half);
  double half_pairs = 0;
  for (std::int64_t h = 0; h < half.n_kv_heads; ++h) half_pairs += visible_pairs(half, h);
  const double attainable =
      static_cast<double>(dense.n_kv_heads) * visible_pairs(dense, 0) / half_pairs;
  fmt::print("{}: {:.2f} times as fast as dense, {:.2f} attainable\n", half.name,
             dense_ms / half_ms, attainable);
}

void bench_rows(GpuReport& report) {
  cuda::Stream& stream = report.stream();
  constexpr std::int64_t kTokens = 8192;
  constexpr std::int64_t kWidth = 4096;
  constexpr std::int64_t kBytes = kTokens * kWidth * 4;
  const cuda::Buffer x = random_buffer(stream, DType::kF32, kTokens * kWidth);
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
void bench_prefill(GpuReport& report) {
  constexpr KvType kBf16 = KvType::kBf16;
  const AttentionMask streaming = {.sink = 128, .recent = 256};
  for (const std::int64_t n : {16384, 32768, 65536}) {
    bench_attention(report, {"causal", n, n, 8, 4, 128, kBf16});
  }
  bench_attention(report, {"causal, mma.sync", 16384, 16384, 8, 4, 128, kBf16, {}, 0, false});
  bench_attention(report, {"causal d64", 16384, 16384, 8, 4, 64, kBf16});
  bench_half_streaming(report, {"causal", 131072, 131072, 8, 4, 128, kBf16});
  bench_attention(report, {"history", 16384, 131072, 8, 4, 128, kBf16});
  bench_attention(report, {"streaming", 16384, 131072, 8, 4, 128, kBf16, streaming});
  bench_attention(report,
                  {"streaming, mma.sync", 16384, 131072, 8, 4, 128, kBf16, streaming, 0, false});
  for (const KvType type : {KvType::kInt8, KvType::kInt4}) {
    bench_attention(report, {"causal", 8192, 8192, 8, 4, 128, type});
  }
  bench_attention(report, {"causal", 1024, 1024, 8, 4, 128, KvType::kF32});
}

void bench_decode(GpuReport& report) {
  for (const KvType type :
       {KvType::kBf16, KvType::kInt8, KvType::kInt4, KvType::kKivi4, KvType::kKivi2}) {
    bench_attention(report, {"decode", 1, 1048576, 8, 4, 128, type});
  }
  for (const std::int64_t n : {1, 8, 32}) {
    bench_attention(
        report, {"forks", n, 262144, 8, 4, 128, KvType::kBf16, {}, 0, true, /*are_forks=*/true});
  }
}

}  // namespace

void bench_operators(GpuReport& report) {
  bench_linear(report, 8192, 8192, 8192);
  bench_linear(report, 8192, 4096, 14336);
  bench_linear(report, 512, 4096, 4096);
  for (const std::int64_t n_tokens : {1, 16}) bench_linear(report, n_tokens, 4096, 14336);
  for (const DType dtype : {DType::kI8, DType::kI4}) {
    for (const std::int64_t n_tokens : {8192, 512, 64, 1, 16, 32})
      bench_integer_linear(report, dtype, n_tokens, 4096, 14336);
  }
  bench_rows(report);
  bench_small_operators(report);
  bench_prefill(report);
  bench_decode(report);
}

}  // namespace longhaul::bench
