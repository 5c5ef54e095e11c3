#include "model/tokenizer/cut_pairs.h"

#include <algorithm>
#include <set>
#include <utility>

namespace longhaul::tokenization {
namespace {

constexpr std::size_t kBitsPerPair = 32;  // about 3 % of the cuts are missed

using Ids = std::vector<std::int32_t>;

void unite(Ids& ids, const Ids& more) {
  for (const std::int32_t id : more) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
}

struct Rule {
  std::int32_t left, right;
  Merge merge;
};

}  // namespace

CutPairs::CutPairs(const MergeTable& merges, std::span<const std::int32_t> symbols,
                   std::span<const std::size_t> lengths) {
  // first[id], last[id]: the symbols that a token can start and end with. Nearly always one each.
  std::vector<Ids> first(lengths.size()), last(lengths.size());
  for (const std::int32_t symbol : symbols) {
    unite(first[static_cast<std::size_t>(symbol)], {symbol});
    unite(last[static_cast<std::size_t>(symbol)], {symbol});
  }
  std::vector<Rule> rules;
  merges.for_each([&](std::int32_t left, std::int32_t right, Merge merge) {
    rules.push_back({left, right, merge});
  });
  const auto length = [&](const Rule& rule) {
    return lengths[static_cast<std::size_t>(rule.merge.result)];
  };
  std::sort(rules.begin(), rules.end(),
            [&](const Rule& a, const Rule& b) { return length(a) < length(b); });
  const auto at = [](std::vector<Ids>& ids, std::int32_t id) -> Ids& {
    return ids[static_cast<std::size_t>(id)];
  };
  for (const Rule& rule : rules) {  // parts are shorter than what they make: they are complete
    unite(at(first, rule.merge.result), Ids(at(first, rule.left)));
    unite(at(last, rule.merge.result), Ids(at(last, rule.right)));
  }
  std::set<std::pair<std::int32_t, std::int32_t>> pairs;
  for (const Rule& rule : rules) {
    for (const std::int32_t left : at(last, rule.left)) {
      for (const std::int32_t right : at(first, rule.right)) pairs.emplace(left, right);
    }
  }
  std::size_t n_bits = 64;
  while (n_bits < kBitsPerPair * pairs.size()) {
    n_bits *= 2;
    --shift_;
  }
  bits_.assign(n_bits / 64, 0);
  for (const auto& [left, right] : pairs) {
    const std::uint64_t bit = bit_of(left, right);
    bits_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
}

}  // namespace longhaul::tokenization
