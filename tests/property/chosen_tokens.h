// Texts whose caches are cut down to the tokens with the highest scores: what stays by double
// precision, and runs of a worker that tell what it kept.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/heads/head_table.h"
#include "tests/support/random.h"
#include "tests/support/reference_model.h"
#include "worker/worker.h"

namespace longhaul::test {

// Small budgets of every kind that can be run, the same in all heads of a layer.
KeepBudget random_budget(Random& random, KeepWhen when);
// The same of those whose keys point least where all of a head point (KeyDiff).
KeepBudget random_key_budget(Random& random, KeepWhen when);
HeadTable heads_with(const ModelSpec& spec, const KeepBudget& keep);

// [n_layers][n_kv_heads x n_choosers] positions of the tokens that stay, ascending: of each that
// chooses, a KV head or, where these do so by themselves, its query heads.
using KeptTokens = std::vector<std::vector<std::vector<std::int64_t>>>;

// By definition, in double precision: attention of the last queries of `document`, pooled,
// combined, sorted; or where its keys point. `margin` gets the smallest difference of scores
// between a token that stays and one that goes, as a share of the former.
KeptTokens kept_by_definition(const ReferenceModel& model, std::span<const std::int32_t> document,
                              const HeadTable& heads, double& margin);

// A text whose heads choose at every token from the end of its prompt on (KeepWhen::kAfterToken),
// in double precision: what it answers and what stays at its end.
struct EvictionRun {
  std::vector<double> logits;  // [n_tokens, vocab_size]
  KeptTokens kept;
  double margin = 0;  // the smallest of any choice
};
EvictionRun evict_by_definition(const ReferenceModel& model, std::span<const std::int32_t> text,
                                std::int64_t n_prompt, const HeadTable& heads);

// A small budget of H2O or TOVA.
KeepBudget random_eviction(Random& random);

// Masks of queries after a document of so many tokens that was cut down to these.
std::vector<KeyMask> masks_after(const HeadTable& heads, std::int64_t n_document,
                                 const KeptTokens& kept);

// What one rank holds of a sequence that so many choosers of a KV head see.
KeptTokens held_by(Worker& worker, SequenceId sequence, const ModelSpec& spec,
                   std::int64_t n_choosers = 1);
// The most that any head has.
std::int64_t n_choosers(const HeadTable& heads);

// Commands that read a document in such chunks and say that it is whole.
std::vector<StepCommand> read_document(SequenceId id, std::span<const std::int32_t> tokens,
                                       std::span<const std::int64_t> chunks, AfterPrefill after);

// What a worker makes of a random document, a question and an answer.
struct AnsweredText {
  std::vector<std::int32_t> tokens;  // of all three
  std::int64_t n_document = 0;
  std::int64_t n_prompt = 0;                 // document and question
  std::vector<std::vector<float>> logprobs;  // [tokens of the answer][vocab_size] after each
  KeptTokens held;                           // at the end
};
// The document comes in random chunks. Its fork goes on with the question and the answer, and
// another fork does so besides, with an answer of its own.
AnsweredText read_and_answer(Worker& worker, Random& random, const ModelSpec& spec);
// Expects the answer's log-probabilities to be those of these logits of the whole text.
void expect_answers(const AnsweredText& got, std::span<const double> logits);

}  // namespace longhaul::test
