// Texts whose heads keep by the recipe that recovers enough of their attention (FastGen): what
// stays and what is answered by double precision.
#pragma once
#include <cstdint>
#include <span>

#include "model/heads/head_table.h"
#include "model/token_class.h"
#include "tests/property/chosen_tokens.h"
#include "tests/support/random.h"
#include "tests/support/reference_model.h"

namespace longhaul::test {

// Shares and thresholds that lead to every recipe now and then; when: once a document or a prompt
// is whole, or then and at every token.
KeepBudget random_recovery(Random& random, KeepWhen when);

// Some tokens of the vocabulary special, some punctuation.
TokenClasses random_classes(Random& random, std::int64_t vocab_size);

// A text whose first n_whole tokens are its document (KeepWhen::kAfterDocument) or its prompt. The
// margin is the least of any choice: of recovered attention to the threshold, and between the sums
// of a frequent token that stays and of one that goes, as a share of the former.
EvictionRun recover_by_definition(const ReferenceModel& model, std::span<const std::int32_t> text,
                                  std::int64_t n_whole, const HeadTable& heads,
                                  const TokenClasses& classes);

}  // namespace longhaul::test
