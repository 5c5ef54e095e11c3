#include "model/tokenizer/merge_symbols.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace longhaul::tokenization {
namespace {

constexpr std::size_t kMaxScanned = 64;  // symbols; beyond, a heap is faster

}  // namespace

void SymbolMerger::merge(std::vector<std::int32_t>& symbols, std::vector<std::int32_t>& out) {
  // A long word is cut where no token crosses, so that only its unbreakable parts cost memory.
  std::size_t begin = 0;
  while (begin < symbols.size()) {
    std::size_t end = begin + 1;
    while (end < symbols.size() && !cuts_->never_merged(symbols[end - 1], symbols[end])) ++end;
    if (end - begin <= kMaxScanned) {
      merge_short(symbols.data() + begin, end - begin, out);
    } else {
      merge_long(symbols.data() + begin, end - begin, out);
    }
    begin = end;
  }
}

// Ranks stand apart from results so that the search for the least one is a vector loop.
void SymbolMerger::merge_short(std::int32_t* symbols, std::size_t n,
                               std::vector<std::int32_t>& out) {
  std::array<std::int32_t, kMaxScanned> ranks;  // [i]: of the rule for symbols i and i + 1
  std::array<std::int32_t, kMaxScanned> results;
  const auto look_up = [&](std::size_t i) {
    const Merge merge = merges_->find(symbols[i], symbols[i + 1]);
    ranks[i] = merge.rank;
    results[i] = merge.result;
  };
  for (std::size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    std::int32_t least = Merge::kNoRank;
    for (std::size_t i = 0; i + 1 < n; ++i) least = std::min(least, ranks[i]);
    if (least == Merge::kNoRank) break;
    std::size_t best = 0;
    while (ranks[best] != least) ++best;
    symbols[best] = results[best];
    --n;
    for (std::size_t i = best + 1; i < n; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i - 1] = ranks[i];
      results[i - 1] = results[i];
    }
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  out.insert(out.end(), symbols, symbols + n);
}

void SymbolMerger::push_candidate(std::int32_t at) {
  const Node& left = nodes_[static_cast<std::size_t>(at)];
  if (left.next < 0) return;
  const Merge merge = merges_->find(left.id, nodes_[static_cast<std::size_t>(left.next)].id);
  if (merge.rank == Merge::kNoRank) return;
  heap_.push_back({merge.rank, at, merge.result});
  std::push_heap(heap_.begin(), heap_.end());
}

void SymbolMerger::merge_long(const std::int32_t* symbols, std::size_t n,
                              std::vector<std::int32_t>& out) {
  if (n > static_cast<std::size_t>(INT32_MAX))
    throw Error(ErrorCode::kUnsupported, "one word of the text is longer than 2^31 symbols");
  nodes_.clear();
  heap_.clear();
  const auto size = static_cast<std::int32_t>(n);
  for (std::int32_t i = 0; i < size; ++i)
    nodes_.push_back({symbols[i], i - 1, i + 1 < size ? i + 1 : -1, false});
  for (std::int32_t i = 0; i + 1 < size; ++i) push_candidate(i);
  while (!heap_.empty()) {
    const Candidate best = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    Node& left = nodes_[static_cast<std::size_t>(best.at)];
    if (left.gone || left.next < 0) continue;
    Node& right = nodes_[static_cast<std::size_t>(left.next)];
    const Merge merge = merges_->find(left.id, right.id);
    if (merge.rank != best.rank) continue;  // the neighbours have changed since
    left.id = best.result;
    left.next = right.next;
    right.gone = true;
    if (left.next >= 0) nodes_[static_cast<std::size_t>(left.next)].previous = best.at;
    if (left.previous >= 0) push_candidate(left.previous);
    push_candidate(best.at);
  }
  for (std::int32_t i = 0; i >= 0; i = nodes_[static_cast<std::size_t>(i)].next)
    out.push_back(nodes_[static_cast<std::size_t>(i)].id);
}

}  // namespace longhaul::tokenization
