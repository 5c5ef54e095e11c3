// Which items of a call are the heads of one sequence: those whose queries have their positions in
// common. They are always in calls together; other sequences may be there or not.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "kernels/attention.h"

namespace longhaul::cuda {

inline bool are_of_one_sequence(const AttentionItem& a, const AttentionItem& b) {
  return a.q_positions.data() == b.q_positions.data() &&
         a.q_positions.size() == b.q_positions.size();
}

// Numbers of items, in the order of the call.
inline std::vector<std::vector<std::size_t>> heads_of_sequences(
    std::span<const AttentionItem> items) {
  std::vector<std::vector<std::size_t>> out;
  std::map<const std::int64_t*, std::map<std::size_t, std::size_t>> number;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& positions = items[i].q_positions;
    const auto [at, is_new] = number[positions.data()].try_emplace(positions.size(), out.size());
    if (is_new) out.emplace_back();
    out[at->second].push_back(i);
  }
  return out;
}

}  // namespace longhaul::cuda
