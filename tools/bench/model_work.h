// What a model's prefill and decode steps must compute and read, from dimensions alone: the work
// that the engine's result needs, so that doing more than that lowers its share of the bound. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "model/heads/head_table.h"
#include "model/model_spec.h"
#include "partition/kv_format.h"
#include "tools/bench/bound.h"

namespace longhaul::bench {

struct ModelWorkArgs {
  const ModelSpec& spec;
  const HeadTable& heads;
  DType weight_dtype = DType::kBf16;
  KvFormat kv = {};
  // Tokens that there were when a document, and with it a prompt, was whole; 0: there was none.
  // Heads that choose tokens then (KeepBudget) have only these of it since.
  std::int64_t n_document = 0;
  std::int64_t n_prompt = 0;
};

enum class AfterStep { kNothing, kPick };

// One step that appends the tokens at positions `tokens` to a sequence. In the last layer only the
// last token's query, attention and feed-forward are needed; its logits only to pick. Weights are
// read once, of the embedding one row for each token; a head's keys and values that any of the
// queries sees are read once. Tokens of answers read of heads that choose pages (ReadTopPages) as
// many as one query head does, and one bound of each page.
enum class TextPart { kPrompt, kAnswer };
Work step_work(const ModelWorkArgs& args, Extent tokens, AfterStep after,
               TextPart part = TextPart::kPrompt);

// Steps of a prompt at positions `tokens`, in chunks; the last one picks a token.
std::vector<Work> prefill_work(const ModelWorkArgs& args, Extent tokens, std::int64_t chunk_len);
// One step for each token, of so many sequences at the same positions: each has keys and values of
// its own to read, all share the weights.
std::vector<Work> decode_work(const ModelWorkArgs& args, Extent tokens,
                              std::int64_t n_sequences = 1);

}  // namespace longhaul::bench
