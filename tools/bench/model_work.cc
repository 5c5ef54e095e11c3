#include "tools/bench/model_work.h"

#include <algorithm>

#include "base/error.h"
#include "model/heads/kept_blocks.h"
#include "partition/flops.h"
#include "partition/weight_bytes.h"

namespace longhaul::bench {
namespace {

double attention_flops(const ModelWorkArgs& args, LayerId layer, Extent queries) {
  const LayerHeads heads = layer_heads(args.heads, layer);
  const double keys = static_cast<double>(heads.n_all) * visible_keys({}, queries) +
                      static_cast<double>(heads.n_windowed) * visible_keys(heads.window, queries);
  return keys * static_cast<double>(args.spec.gqa_group()) * attention_flops_per_key(args.spec);
}

double cache_bytes(const ModelWorkArgs& args, LayerId layer, Extent tokens) {
  const LayerHeads heads = layer_heads(args.heads, layer);
  const KeyWindow& window = heads.window;
  const std::int64_t seen =
      window.is_unlimited() ? tokens.end
                            : std::min(tokens.end, window.sink + window.recent + tokens.size() - 1);
  return static_cast<double>(heads.n_all * tokens.end + heads.n_windowed * seen) *
         static_cast<double>(args.kv.token_bytes());
}

}  // namespace

Work step_work(const ModelWorkArgs& args, Extent tokens, AfterStep after) {
  const ModelSpec& spec = args.spec;
  require(0 <= tokens.begin && !tokens.empty(), "step_work: a step has at least one token");
  const auto n_tokens = static_cast<double>(tokens.size());
  const double linear = linear_flops_per_token(spec);
  const double keys_and_values =
      4 * static_cast<double>(spec.d_model * spec.n_kv_heads * spec.head_dim);
  const LayerId last_layer{spec.n_layers - 1};
  const Extent last_token{tokens.end - 1, tokens.end};
  Work work;
  double products = 0;  // with weights
  for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
    const bool is_last = layer == last_layer;
    products +=
        is_last ? n_tokens * keys_and_values + (linear - keys_and_values) : n_tokens * linear;
    work.flops += attention_flops(args, layer, is_last ? last_token : tokens);
    work.bytes += cache_bytes(args, layer, is_last ? last_token : tokens);
  }
  const bool is_int8 = args.weight_dtype == DType::kI8;
  (is_int8 ? work.int8_ops : work.flops) += products;
  const DType embedding = is_int8 ? DType::kBf16 : args.weight_dtype;
  work.bytes += static_cast<double>(spec.n_layers * layer_weight_bytes(spec, args.weight_dtype) +
                                    matrix_bytes(tokens.size(), spec.d_model, embedding));
  if (after == AfterStep::kPick) {
    const DType head = spec.tied_embeddings ? embedding : args.weight_dtype;
    (head == DType::kI8 ? work.int8_ops : work.flops) +=
        2 * static_cast<double>(spec.d_model * spec.vocab_size);
    work.bytes +=
        static_cast<double>(matrix_bytes(spec.vocab_size, spec.d_model, head) + 4 * spec.d_model);
  }
  return work;
}

std::vector<Work> prefill_work(const ModelWorkArgs& args, Extent tokens, std::int64_t chunk_len) {
  require(chunk_len >= 1, "prefill_work: a chunk has at least one token");
  std::vector<Work> steps;
  for (std::int64_t begin = tokens.begin; begin < tokens.end; begin += chunk_len) {
    const Extent chunk{begin, std::min(tokens.end, begin + chunk_len)};
    steps.push_back(
        step_work(args, chunk, chunk.end == tokens.end ? AfterStep::kPick : AfterStep::kNothing));
  }
  return steps;
}

std::vector<Work> decode_work(const ModelWorkArgs& args, Extent tokens) {
  std::vector<Work> steps;
  for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
    steps.push_back(step_work(args, {token, token + 1}, AfterStep::kPick));
  }
  return steps;
}

}  // namespace longhaul::bench
