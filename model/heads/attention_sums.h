// Room for the attention that each slot of a head got so far, where a method sums it up
// (KeepBudget with ObserveAll). worker/kv/attention_mass.h makes it, planning counts with it.
#pragma once
#include <cstdint>

#include "model/heads/head_policy.h"

namespace longhaul {

inline constexpr std::int64_t kAttentionSumBytes = sizeof(double);

// Sums for which room is made when n_slots need more than there is: an eighth more, so that tokens
// that come one by one do not move all sums each time.
constexpr std::int64_t room_for_sums(std::int64_t n_slots) { return n_slots + n_slots / 8; }

// Queries of a text whose attention to all keys is made at a time, at most, to be summed up.
inline constexpr std::int64_t kMostQueriesScored = 256;

// Sums of a slot: of all queries, and of local ones where the head looks for a recipe.
inline std::int64_t sums_of_a_slot(const HeadPolicy& policy) {
  const auto* keep = std::get_if<KeepBudget>(&policy.keep);
  if (keep == nullptr || !std::holds_alternative<ObserveAll>(keep->observe)) return 0;
  return keep->recover ? 2 : 1;
}

// Whether queries that come after a document still count; a fork then has sums of its own.
inline bool sums_in_forks(const HeadPolicy& policy) {
  return sums_of_a_slot(policy) > 0 &&
         std::get<KeepBudget>(policy.keep).when != KeepWhen::kAfterDocument;
}

}  // namespace longhaul
