#include "tools/bench/model_work.h"

#include <algorithm>

#include "base/error.h"
#include "model/heads/select_tokens.h"
#include "partition/flops.h"
#include "partition/weight_bytes.h"

namespace longhaul::bench {
namespace {

// Tokens that a method dropped of a head before the query at `position`.
std::int64_t n_dropped(const ModelWorkArgs& args, const KeepBudget& keep, std::int64_t position,
                       TextPart part) {
  const auto dropped_of = [&](std::int64_t n_whole) { return n_whole - budget_of(keep, n_whole); };
  switch (keep.when) {
    case KeepWhen::kAfterDocument:
      return dropped_of(args.n_document);
    case KeepWhen::kAfterPrompt:
      return dropped_of(args.n_prompt);
    case KeepWhen::kAfterToken: {
      if (part == TextPart::kPrompt) return 0;
      const bool is_first = args.n_prompt == 0 && position == args.n_document;
      return is_first ? 0 : dropped_of(position);
    }
    case KeepWhen::kAfterChunk:
      break;
  }
  return 0;
}

// What the queries of one KV head meet.
struct HeadKeys {
  double pairs = 0;              // of a query and a key
  std::int64_t n_read = 0;       // keys, each once
  std::int64_t bound_bytes = 0;  // of pages
};

HeadKeys keys_of(const ModelWorkArgs& args, const HeadPolicy& policy, Extent queries,
                 TextPart part) {
  const KeyWindow window = window_of(policy);
  if (!window.is_unlimited()) {
    return {visible_keys(window, queries),
            std::min(queries.end, window.sink + window.recent + queries.size() - 1)};
  }
  HeadKeys keys{visible_keys(window, queries), queries.end};
  if (const auto* keep = std::get_if<KeepBudget>(&policy.keep)) {
    const std::int64_t dropped = n_dropped(args, *keep, queries.begin, part);
    keys.pairs -= static_cast<double>(dropped * queries.size());
    keys.n_read -= dropped;
  }
  const auto* choose = std::get_if<ReadTopPages>(&policy.choose);
  if (choose != nullptr && part == TextPart::kAnswer) {
    const std::int64_t n_chosen = choose->n_pages() * choose->page_tokens;
    keys.n_read = std::min(keys.n_read, n_chosen);
    keys.pairs = static_cast<double>(keys.n_read * queries.size());
    keys.bound_bytes = ceil_div(queries.end, choose->page_tokens) * 4 * args.spec.head_dim;
  }
  return keys;
}

void add_attention(const ModelWorkArgs& args, LayerId layer, Extent queries, TextPart part,
                   Work& work) {
  for (const KvHeadId kv_head : IdRange<KvHeadId>(args.spec.n_kv_heads)) {
    const HeadKeys keys = keys_of(args, args.heads.at(layer, kv_head), queries, part);
    work.flops += keys.pairs * static_cast<double>(args.spec.gqa_group()) *
                  attention_flops_per_key(args.spec);
    work.bytes += static_cast<double>(keys.n_read * args.kv.token_bytes() + keys.bound_bytes);
  }
}

}  // namespace

Work step_work(const ModelWorkArgs& args, Extent tokens, AfterStep after, TextPart part) {
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
    add_attention(args, layer, is_last ? last_token : tokens, part, work);
  }
  const bool by_integers = is_integer(args.weight_dtype);
  (by_integers ? work.int8_ops : work.flops) += products;
  const DType embedding = table_type(args.weight_dtype);
  work.bytes += static_cast<double>(spec.n_layers * layer_weight_bytes(spec, args.weight_dtype) +
                                    matrix_bytes(tokens.size(), spec.d_model, embedding));
  if (after == AfterStep::kPick) {
    const DType head = spec.tied_embeddings ? embedding : head_type(args.weight_dtype);
    (is_integer(head) ? work.int8_ops : work.flops) +=
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

std::vector<Work> decode_work(const ModelWorkArgs& args, Extent tokens, std::int64_t n_sequences) {
  const auto n = static_cast<double>(n_sequences);
  const DType embedding = table_type(args.weight_dtype);
  const auto embedding_row = static_cast<double>(matrix_bytes(1, args.spec.d_model, embedding));
  std::vector<Work> steps;
  for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
    Work step = step_work(args, {token, token + 1}, AfterStep::kPick, TextPart::kAnswer);
    Work own;  // of one sequence alone
    for (const LayerId layer : IdRange<LayerId>(args.spec.n_layers))
      add_attention(args, layer, {token, token + 1}, TextPart::kAnswer, own);
    step.flops *= n;
    step.int8_ops *= n;
    step.bytes += (n - 1) * (own.bytes + embedding_row);
    steps.push_back(step);
  }
  return steps;
}

}  // namespace longhaul::bench
