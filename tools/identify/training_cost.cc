#include "tools/identify/training_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/device/gpu_memory.h"

namespace longhaul {
namespace {

// Tokens of a set over all ranks.
std::int64_t size_of(const TokenSet& set, std::int64_t n_tokens) {
  return std::min(set.n_first, n_tokens) + n_tokens - set.tail;
}

// Keys that all queries of the tail [begin, n) see, with a window behind `sink` first tokens.
double keys_seen(std::int64_t begin, std::int64_t n, std::int64_t sink, std::int64_t recent) {
  if (begin >= n) return 0;
  // One query more sees one key more, up to `window`.
  const double window = static_cast<double>(recent) + static_cast<double>(sink);
  const auto first = static_cast<double>(begin);
  const auto last = static_cast<double>(n);
  const double grown = std::clamp(window, first, last);
  return (first + 1 + grown) * (grown - first) / 2 + (last - grown) * window;
}

double keys_seen(const TokenSet& set, std::int64_t n, std::int64_t sink, std::int64_t recent) {
  return keys_seen(0, std::min(set.n_first, n), sink, recent) +
         keys_seen(set.tail, n, sink, recent);
}

constexpr double kBackwardFfnRows =
    1024;  // of the feed-forward network, going back (layer_gradient.cc)

double real(std::int64_t n) { return static_cast<double>(n); }

struct Widths {
  double d, q, kv, ff;
  explicit Widths(const ModelSpec& s)
      : d(static_cast<double>(s.d_model)),
        q(static_cast<double>(s.n_heads * s.head_dim)),
        kv(static_cast<double>(s.n_kv_heads * s.head_dim)),
        ff(static_cast<double>(s.d_ff)) {}
};

// Scratch memory that grows takes more than it must (base/device/device_cuda.cc).
constexpr double kScratchGrowth = 1.25;

// What a stream has whatever its operators do: the library's workspace, and descriptions of work,
// the largest of which are a call's blocks.
double fixed_scratch_bytes(const ModelSpec& spec, const TrainingShape& shape) {
  constexpr double kBlockRefBytes = 32;
  const double description = 1.5 * kBlockRefBytes * real(spec.n_kv_heads) *
                             real(ceil_div(shape.n_tokens, shape.block_size));
  return real(kProductWorkspaceBytes) +
         real(kNUploadStages) * std::max(real(kUploadStageBytes), description);
}

// Of attention's gradient (kernels/cuda/attention_backward.cu): two numbers for each row, and of
// sinks a share of each run of queries.
double backward_scratch_bytes(const ModelSpec& spec, const TrainingShape& shape,
                              const std::vector<TokenSet>& sets) {
  constexpr double kTile = 32;
  constexpr double kTaskRows = 2048;
  double most = 0;
  for (std::int64_t layer = 0; layer < spec.n_layers; ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    const double n_written = real(size_of(sets[at + 1], shape.n_tokens)) / real(shape.n_ranks);
    const bool streams = spec.attention_window[at] == ModelSpec::kNoWindow;
    const double n_sink_tiles = streams ? std::ceil(real(shape.window.sink) / kTile) : 0;
    const double n_shares =
        n_sink_tiles * std::ceil(n_written * real(spec.gqa_group()) / kTaskRows);
    most = std::max(most, 2 * n_written * real(spec.n_heads) +
                              n_shares * real(spec.n_kv_heads) * 2 * kTile * real(spec.head_dim));
  }
  return most * 4;
}

}  // namespace

// As partition/memory_model.cc counts prefill's: keys that Hopper converts, ranges of tiles; of
// products the copies of what bf16 weights meet.
double forward_scratch_bytes(const ModelSpec& spec, const TrainingShape& shape) {
  if (shape.device == Device::kCpu) return 0;
  const Widths w(spec);
  const double n = real(shape.n_tokens);
  const double tile = std::min(real(shape.tile_rows), n / real(shape.n_ranks));
  const double n_row_tiles =
      real(spec.n_kv_heads) * std::ceil(tile * real(spec.gqa_group()) / real(kRowsOfPrefillRange));
  const double n_ranges = std::min(2 * real(kMostPrefillRanges),
                                   n_row_tiles * std::floor(n / real(kMinKeysOfPrefillRange)));
  const double attention = std::min(real(kConvertedKeysBytes), n * w.kv * 4) +
                           n_ranges * real(kRowsOfPrefillRange) * (real(spec.head_dim) + 2) * 4;
  const double rounded = shape.weight_dtype == DType::kBf16
                             ? 2 * std::max({tile * w.d, tile * w.q, std::min(tile, 512.0) * w.ff})
                             : 0;
  return fixed_scratch_bytes(spec, shape) + kScratchGrowth * std::max(attention, rounded);
}

TrainingFlops training_flops(const ModelSpec& spec, const TrainingShape& shape) {
  const Widths w(spec);
  const std::int64_t n = shape.n_tokens;
  const auto sets = student_rows(spec, shape.window, n, shape.n_answer, shape.block_size);
  const double of_keys = 2 * w.d * 2 * w.kv;  // a row's products for K and V
  const double of_queries = 2 * w.d * w.q;    // and for Q, or for the outputs
  const double of_ffn = 2 * 3 * w.d * w.ff;
  TrainingFlops flops;
  for (std::int64_t layer = 0; layer < spec.n_layers; ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    const std::int64_t own = spec.attention_window[at];
    const bool streams = own == ModelSpec::kNoWindow;
    const std::int64_t sink = streams ? shape.window.sink : 0;
    const std::int64_t recent = streams ? shape.window.recent : own;
    const TokenSet& written = sets[at + 1];
    const auto n_read = static_cast<double>(size_of(sets[at], n));
    const auto n_written = static_cast<double>(size_of(written, n));
    const std::int64_t first = layer + 1 == spec.n_layers ? written.tail : 0;
    flops.teacher += static_cast<double>(n) * of_keys +
                     static_cast<double>(n - first) * (2 * of_queries + of_ffn) +
                     4 * w.q * keys_seen(first, n, 0, std::min(own, n));
    const double seen = keys_seen(written, n, sink, recent);
    flops.student += n_read * of_keys + n_written * (2 * of_queries + of_ffn) + 4 * w.q * seen;
    // Recomputed: K, V, Q, gate and up. Gradients: of every product but those of the first layer's
    // inputs. Attention: two products recomputed, four of gradients.
    const double back = layer == 0 ? 0 : n_read * of_keys + n_written * of_queries;
    flops.backward += n_read * of_keys + n_written * (of_queries + of_ffn * 2 / 3) + back +
                      n_written * (of_queries + of_ffn) + 12 * w.q * seen;
  }
  return flops;
}

TrainingBytes training_bytes(const ModelSpec& spec, const TrainingShape& shape) {
  const Widths w(spec);
  const std::int64_t n = shape.n_tokens;
  const auto sets = student_rows(spec, shape.window, n, shape.n_answer, shape.block_size);
  const auto ranks = static_cast<double>(shape.n_ranks);
  // The teacher's answers, both sides' after the norm, and the difference.
  double kept = 3 * static_cast<double>(shape.n_answer) / ranks * w.d;
  double backward = 0;
  // Of products' inputs, which bf16 weights meet as copies of 2 bytes.
  double copies = std::min(static_cast<double>(n) / ranks, kBackwardFfnRows) * w.ff;
  for (std::int64_t layer = 0; layer < spec.n_layers; ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    const bool has_gates = spec.attention_window[at] == ModelSpec::kNoWindow;
    const auto n_all = static_cast<double>(size_of(sets[at], n));
    const double n_read = n_all / ranks;
    const double n_written = static_cast<double>(size_of(sets[at + 1], n)) / ranks;
    kept += n_written * (2 * w.d + (has_gates ? w.q : 0)) + (layer == 0 ? n_read * w.d : 0);
    // d_input, d_normed, normed; K and V, theirs and their gradients' of all ranks; Q, the
    // mixture's gradient, Q's gradient, outputs; d_output, d_middle, d_written; angles.
    const double attention =
        n_read * (3 * w.d + 4 * w.kv + 2 * static_cast<double>(spec.head_dim)) + n_all * 4 * w.kv +
        n_written * (4 * w.q + 3 * w.d);
    const double ffn =
        std::min(n_written, kBackwardFfnRows) * (w.d + 3 * w.ff) + n_written * 2 * w.d;
    backward = std::max({backward, attention, ffn});
    copies = std::max({copies, n_read * w.d, n_written * w.q});
  }
  const double tile =
      std::min(static_cast<double>(shape.tile_rows), static_cast<double>(n) / ranks);
  const double step = tile * (2 * w.d + 2 * w.q + 2 * w.kv) + std::min(tile, 512.0) * 2 * w.ff;
  const double matrix = w.d * std::max(w.ff, w.q);  // turned, for gradients
  constexpr double kFloat = 4;
  const bool is_bf16 = shape.weight_dtype == DType::kBf16;
  const auto bytes = [](double x) { return static_cast<std::size_t>(x); };
  const bool on_gpu = shape.device == Device::kCuda;
  // GPUs multiply by the matrix as it is, and round in scratch memory.
  const double turned = on_gpu ? 0 : is_bf16 ? (matrix + copies) * 2 : matrix * kFloat;
  const double scratch =
      on_gpu ? std::max(forward_scratch_bytes(spec, shape),
                        fixed_scratch_bytes(spec, shape) +
                            kScratchGrowth * std::max(backward_scratch_bytes(spec, shape, sets),
                                                      is_bf16 ? copies * 2 : 0))
             : 0;
  return {
      .kept = bytes(kept * kFloat),
      .keys = bytes(static_cast<double>(n) * 2 * w.kv * static_cast<double>(shape.kv_value_bytes)),
      .forward = bytes((static_cast<double>(n) / ranks * w.d + step) * kFloat),
      .backward = bytes(backward * kFloat + turned),
      .scratch = bytes(scratch)};
}

std::string describe_training(const ModelSpec& spec, const TrainingShape& shape) {
  const TrainingFlops flops = training_flops(spec, shape);
  const TrainingBytes bytes = training_bytes(spec, shape);
  const auto gib = [](std::size_t n) { return static_cast<double>(n) / (1 << 30); };
  return fmt::format(
      "a step with the longest text ({} tokens, {} of them compared), {} rank{}:\n"
      "  {:.4g} TFLOP: teacher {:.4g}, student {:.4g}, backward {:.4g}\n"
      "  {:.2f} GiB a rank besides weights: rows kept {:.2f}, a layer's keys {:.2f},\n"
      "  forward {:.2f}, backward {:.2f}{}\n",
      shape.n_tokens, shape.n_answer, shape.n_ranks, shape.n_ranks == 1 ? "" : "s",
      flops.total() / 1e12, flops.teacher / 1e12, flops.student / 1e12, flops.backward / 1e12,
      gib(bytes.total()), gib(bytes.kept), gib(bytes.keys), gib(bytes.forward), gib(bytes.backward),
      bytes.scratch > 0 ? fmt::format(", the GPU's operators {:.2f}", gib(bytes.scratch)) : "");
}

}  // namespace longhaul
