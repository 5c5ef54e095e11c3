// Speed of the operators that a step's rows go through beside products and attention, and of copies
// between host and GPU.
#include <fmt/format.h>

#include <numeric>
#include <vector>

#include "kernels/embedding.h"
#include "kernels/rope.h"
#include "kernels/softmax_state.h"
#include "kernels/top_k.h"
#include "tests/bench/gpu/gpu_buffers.h"
#include "tests/bench/gpu/gpu_report.h"

namespace longhaul::bench {
namespace {

void bench_top_k(GpuReport& report, std::int64_t n_rows, std::int64_t k) {
  constexpr std::int64_t kVocabulary = 128256;
  cuda::Stream& stream = report.stream();
  const cuda::Buffer logits = random_buffer(stream, DType::kF32, n_rows * kVocabulary);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n_rows * k));
  std::vector<float> values(ids.size());
  std::vector<float> sums(static_cast<std::size_t>(n_rows));
  report.bytes(fmt::format("top_k of {} rows, k {}, to the host", n_rows, k),
               static_cast<double>(logits.bytes()), [&] {
                 top_k(stream.ref(),
                       {.logits = TensorView<const float, 2>(floats(logits), {n_rows, kVocabulary}),
                        .ids = TensorView<std::int32_t, 2>(ids.data(), {n_rows, k}),
                        .values = TensorView<float, 2>(values.data(), {n_rows, k}),
                        .log_sum_exp = sums});
               });
}

// A chunk of Llama-3-8B's shape.
void bench_chunk_rows(GpuReport& report) {
  constexpr std::int64_t kTokens = 8192;
  constexpr std::int64_t kHeads = 32;
  constexpr std::int64_t kDim = 128;
  cuda::Stream& stream = report.stream();
  const cuda::Buffer x = random_buffer(stream, DType::kF32, kTokens * kHeads * kDim);
  const cuda::Buffer angles = random_buffer(stream, DType::kF32, kTokens * kDim);
  const cuda::Buffer ml = random_buffer(stream, DType::kF32, 2 * kTokens * kHeads);
  const auto bytes = static_cast<double>(x.bytes());
  const TensorView<float, 3> heads(floats(x), {kTokens, kHeads, kDim});
  const TensorView<float, 2> cos(floats(angles), {kTokens, kDim / 2});
  const TensorView<float, 2> sin(floats(angles) + kTokens * kDim / 2, {kTokens, kDim / 2});
  report.bytes("rope 8192 x 32 x 128", 2 * bytes,
               [&] { rope(stream.ref(), {.x = heads, .cos = cos, .sin = sin}); });
  const SoftmaxStateView state = {
      heads, TensorView<float, 2>(floats(ml), {kTokens, kHeads}),
      TensorView<float, 2>(floats(ml) + kTokens * kHeads, {kTokens, kHeads})};
  report.bytes("clear states 8192 x 32 x 128", bytes, [&] { clear(stream.ref(), state); });
  report.bytes("finish_attention 8192 x 32 x 128", 2 * bytes, [&] {
    finish_attention(stream.ref(), {.state = state, .sink_logits = {}, .out = heads});
  });
  const cuda::Buffer table = random_buffer(stream, DType::kBf16, kTokens * kHeads * kDim);
  std::vector<std::int32_t> tokens(kTokens);
  std::iota(tokens.begin(), tokens.end(), 0);
  constexpr std::int64_t kWidth = kHeads * kDim;
  report.bytes("embedding bf16 8192 x 4096", 1.5 * bytes, [&] {
    embedding(
        stream.ref(),
        {.table = {.data = table.data(), .dtype = DType::kBf16, .n_out = kTokens, .n_in = kWidth},
         .tokens = tokens,
         .out = TensorView<float, 2>(floats(x), {kTokens, kWidth})});
  });
}

void bench_copies(GpuReport& report) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  cuda::Stream& stream = report.stream();
  const cuda::PinnedBuffer host(kBytes);
  const cuda::Buffer device(kBytes);
  const std::span<std::byte> there{host.data(), kBytes};
  report.rate("copy of 256 MiB to the GPU, from pinned memory", kBytes,
              [&] { cuda::copy_to_device(stream, device.data(), there); });
  report.rate("copy of 256 MiB to pinned memory", kBytes,
              [&] { cuda::queue_copy_to_host(stream, there, device.data()); });
}

}  // namespace

void bench_small_operators(GpuReport& report) {
  for (const std::int64_t n_rows : {1, 32}) bench_top_k(report, n_rows, 1);
  bench_top_k(report, 1, 40);
  bench_chunk_rows(report);
  bench_copies(report);
}

}  // namespace longhaul::bench
