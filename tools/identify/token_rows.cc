#include "tools/identify/token_rows.h"

#include <algorithm>

#include "base/error.h"

namespace longhaul {
namespace {

std::int64_t floor_to(std::int64_t n, std::int64_t unit) { return n / unit * unit; }

TokenSet set_of(std::int64_t n_first, std::int64_t tail, std::int64_t block_size) {
  const std::int64_t end = ceil_div(n_first, block_size) * block_size;
  const std::int64_t begin = floor_to(std::max<std::int64_t>(tail, 0), block_size);
  if (end >= begin) return {0, 0};  // everything
  return {end, begin};
}

}  // namespace

std::vector<TokenSet> student_rows(const ModelSpec& spec, const StudentWindow& window,
                                   std::int64_t n_tokens, std::int64_t n_answer,
                                   std::int64_t block_size) {
  require(1 <= n_answer && n_answer <= n_tokens, "student_rows: more answers than tokens");
  std::vector<TokenSet> sets(static_cast<std::size_t>(spec.n_layers) + 1);
  sets.back() = set_of(0, n_tokens - n_answer, block_size);
  for (std::int64_t layer = spec.n_layers - 1; layer >= 0; --layer) {
    const auto at = static_cast<std::size_t>(layer);
    const TokenSet& wanted = sets[at + 1];
    const std::int64_t own = spec.attention_window[at];
    const bool streams = own == ModelSpec::kNoWindow;
    const std::int64_t reach = std::min(streams ? window.recent : own, n_tokens + 1);
    const std::int64_t sink = streams ? window.sink : 0;
    sets[at] = set_of(std::max(wanted.n_first, sink), wanted.tail - reach + 1, block_size);
  }
  return sets;
}

std::vector<std::int64_t> TokenDeal::blocks(const TokenSet& set, std::int64_t rank) const {
  std::vector<std::int64_t> out;
  for (std::int64_t block = rank; block * block_size < n_tokens; block += n_ranks) {
    if (set.contains(block * block_size)) out.push_back(block);
  }
  return out;
}

std::vector<std::int64_t> TokenDeal::positions(const TokenSet& set, std::int64_t rank) const {
  std::vector<std::int64_t> out;
  for (const std::int64_t block : blocks(set, rank)) {
    const std::int64_t end = std::min(n_tokens, (block + 1) * block_size);
    for (std::int64_t i = block * block_size; i < end; ++i) out.push_back(i);
  }
  return out;
}

RowParts rows_in(std::span<const std::int64_t> positions, const TokenSet& set) {
  const auto index = [&](std::int64_t position) {
    return std::lower_bound(positions.begin(), positions.end(), position) - positions.begin();
  };
  const std::int64_t n_first = index(set.n_first);
  return {.first = {0, n_first},
          .last = {std::max(n_first, static_cast<std::int64_t>(index(set.tail))),
                   static_cast<std::int64_t>(positions.size())}};
}

}  // namespace longhaul
