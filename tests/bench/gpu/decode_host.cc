#include "tests/bench/gpu/decode_host.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/device/step_graph.h"
#include "base/error.h"
#include "tests/bench/gpu/filled_model.h"

namespace longhaul::bench {
namespace {

constexpr std::int64_t kHostBlockSize = 64;
constexpr std::int64_t kStepsOfRun = 2 * kHostBlockSize;
constexpr std::int64_t kFillChunk = 1024;

}  // namespace

ModelSpec narrow_model(std::int64_t n_layers) {
  ModelSpec spec;
  spec.n_layers = n_layers;
  spec.d_model = 128;
  spec.n_heads = 32;
  spec.n_kv_heads = 8;
  spec.head_dim = 64;
  spec.d_ff = 256;
  spec.vocab_size = 128;
  spec.max_seq_len = std::int64_t{1} << 22;
  spec.attention_window.assign(static_cast<std::size_t>(n_layers), ModelSpec::kNoWindow);
  return spec;
}

DecodeHostTimes time_decode_host(const ModelSpec& spec, const HeadTable& heads,
                                 std::int64_t n_tokens, int n_runs) {
  FilledModel model({.spec = spec,
                     .heads = heads,
                     .blocks = {.block_size = kHostBlockSize,
                                .head_dim = spec.head_dim,
                                .k_type = KvType::kInt4,
                                .v_type = KvType::kInt4},
                     .chunk_len = kFillChunk});
  while (model.n_tokens() < n_tokens) {
    const bool fits = model.append(std::min(kFillChunk, n_tokens - model.n_tokens()));
    require(fits, "decode_host: the tokens do not fit the emulated GPU");
  }
  for (int i = 0; i < 8; ++i) model.queue_decode();
  const cuda::StepGraph& steps = *model.stream().steps();
  const std::int64_t n_before = steps.n_launched();
  DecodeHostTimes times;
  std::vector<double> means;
  for (int run = 0; run < n_runs; ++run) {
    const Stopwatch whole;
    for (std::int64_t i = 0; i < kStepsOfRun; ++i) {
      const Stopwatch step;
      model.queue_decode();
      times.longest_seconds = std::max(times.longest_seconds, step.seconds());
    }
    means.push_back(whole.seconds() / static_cast<double>(kStepsOfRun));
  }
  std::ranges::sort(means);
  times.median_seconds = means[means.size() / 2];
  times.best_seconds = means.front();
  times.n_steps = n_runs * kStepsOfRun;
  times.n_replays = steps.n_launched() - n_before;
  times.n_commands = steps.n_commands();
  times.n_bytes = steps.n_staged();
  return times;
}

}  // namespace longhaul::bench
