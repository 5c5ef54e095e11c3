// What the host does for a token that a GPU decodes far into a document, without a GPU: on the
// emulated one, whose work is left undone. Host work depends on layers, KV heads and tokens, not on
// widths, so the model is narrow.
//   decode_host_bench [TOKENS [LAYERS [SEQUENCES OF STEPS]]]     a million, 32, 5 unless said
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/clock.h"
#include "base/device/step_graph.h"
#include "tests/bench/gpu/filled_model.h"
#include "tests/cuda_on_host/device_memory.h"

namespace longhaul::bench {
namespace {

constexpr std::int64_t kBlockSize = 64;
constexpr std::int64_t kSteps = 2 * kBlockSize;  // each block begins and is filled

ModelSpec narrow_model(std::int64_t n_layers) {
  ModelSpec spec;
  spec.n_layers = n_layers;
  spec.d_model = 128;
  spec.n_heads = 32;
  spec.n_kv_heads = 8;
  spec.head_dim = 64;
  spec.d_ff = 256;
  spec.vocab_size = 128;
  spec.max_seq_len = 1 << 22;
  spec.attention_window.assign(static_cast<std::size_t>(n_layers), ModelSpec::kNoWindow);
  return spec;
}

void measure(const char* name, const HeadTable& heads, const ModelSpec& spec, std::int64_t n_tokens,
             int n_runs) {
  FilledModel model({.spec = spec,
                     .heads = heads,
                     .blocks = {.block_size = kBlockSize,
                                .head_dim = spec.head_dim,
                                .k_type = KvType::kInt4,
                                .v_type = KvType::kInt4},
                     .chunk_len = 1024});
  while (model.n_tokens() < n_tokens) {
    if (!model.append(std::min<std::int64_t>(1024, n_tokens - model.n_tokens()))) std::abort();
  }
  for (int i = 0; i < 8; ++i) model.queue_decode();
  const std::int64_t n_before = model.stream().steps()->n_launched();
  std::vector<double> means;  // of each run
  double longest = 0;
  for (int run = 0; run < n_runs; ++run) {
    const Stopwatch whole;
    for (std::int64_t i = 0; i < kSteps; ++i) {
      const Stopwatch step;
      model.queue_decode();
      longest = std::max(longest, step.seconds());
    }
    means.push_back(whole.seconds() / static_cast<double>(kSteps));
  }
  std::ranges::sort(means);
  const cuda::StepGraph& steps = *model.stream().steps();
  fmt::print(
      "{}, {} tokens, {} layers of {} KV heads: {:.3f} ms of the host for a token (best of {} runs "
      "{:.3f}, longest step {:.3f}); {} of {} steps were replays; {:.1f} launches a layer, {} "
      "bytes "
      "to the GPU\n",
      name, n_tokens, spec.n_layers, spec.n_kv_heads, means[means.size() / 2] * 1e3, n_runs,
      means.front() * 1e3, longest * 1e3, steps.n_launched() - n_before, n_runs * kSteps,
      static_cast<double>(steps.n_commands()) / static_cast<double>(spec.n_layers),
      steps.n_staged());
}

}  // namespace
}  // namespace longhaul::bench

int main(int n_arguments, char** arguments) {
  using namespace longhaul;
  using namespace longhaul::bench;
  const auto argument = [&](int i, long otherwise) {
    return n_arguments > i ? std::strtol(arguments[i], nullptr, 10) : otherwise;
  };
  cuda_on_host::leave_work_undone(std::size_t{64} << 30);
  const std::int64_t n_tokens = argument(1, 1 << 20);
  const ModelSpec spec = narrow_model(argument(2, 32));
  const int n_runs = static_cast<int>(argument(3, 5));
  measure("half of the heads streaming", every_other_streaming(spec), spec, n_tokens, n_runs);
  const HeadTable all =
      duo_attention_heads(spec, HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads));
  measure("no head streaming", all, spec, n_tokens, n_runs);
}
