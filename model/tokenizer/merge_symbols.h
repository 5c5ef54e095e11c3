// The merging itself: symbols of a word in, tokens out. Short words by scanning for the best pair,
// long ones with a heap, O(n log n) for a run of a million equal characters.
#pragma once
#include <cstdint>
#include <vector>

#include "model/tokenizer/cut_pairs.h"
#include "model/tokenizer/merge_table.h"

namespace longhaul::tokenization {

// Scratch memory for one thread.
class SymbolMerger {
 public:
  SymbolMerger(const MergeTable& merges, const CutPairs& cuts) : merges_(&merges), cuts_(&cuts) {}

  // Appends the tokens of `symbols` to `out`; `symbols` is used up.
  void merge(std::vector<std::int32_t>& symbols, std::vector<std::int32_t>& out);

 private:
  struct Node {
    std::int32_t id;
    std::int32_t previous, next;  // -1 at the ends
    bool gone;
  };
  struct Candidate {
    std::int32_t rank;
    std::int32_t at;  // the left symbol
    std::int32_t result;
    // For std::push_heap: the lowest rank, then the leftmost, on top.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  void merge_short(std::int32_t* symbols, std::size_t n, std::vector<std::int32_t>& out);
  void merge_long(const std::int32_t* symbols, std::size_t n, std::vector<std::int32_t>& out);
  void push_candidate(std::int32_t at);

  const MergeTable* merges_;
  const CutPairs* cuts_;
  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

}  // namespace longhaul::tokenization
