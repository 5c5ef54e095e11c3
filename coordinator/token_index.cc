#include "coordinator/token_index.h"

#include <algorithm>
#include <bit>

#include "base/split_mix.h"

namespace longhaul {
namespace {

constexpr int kMostPlaces = 64;
constexpr std::int64_t kLongest = 32;  // tokens

}  // namespace

// Of the `least_` tokens from here on.
std::size_t TokenIndex::chain_of(const std::int32_t* first) const {
  std::uint64_t hash = 0;
  for (std::int64_t i = 0; i < least_; ++i)
    hash = split_mix(hash ^ static_cast<std::uint64_t>(first[i]));
  return static_cast<std::size_t>(hash) & (newest_.size() - 1);
}

void TokenIndex::add_place(std::int64_t begin) {
  std::int32_t& newest = newest_[chain_of(tokens_.data() + begin)];
  before_.push_back(newest);
  newest = static_cast<std::int32_t>(begin);
}

// At least twice as many chains as tokens, so that few places share one by chance.
void TokenIndex::widen() {
  const std::size_t n_chains = std::bit_ceil(std::max<std::size_t>(64, 2 * tokens_.size()));
  if (n_chains <= newest_.size()) return;
  newest_.assign(n_chains, kNone);
  const auto n_places = static_cast<std::int64_t>(before_.size());
  before_.clear();
  for (std::int64_t place = 0; place < n_places; ++place) add_place(place);
}

void TokenIndex::append(std::span<const std::int32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  widen();
  const std::int64_t end = static_cast<std::int64_t>(tokens_.size()) - least_;
  for (auto place = static_cast<std::int64_t>(before_.size()); place <= end; ++place)
    add_place(place);
}

std::optional<TokenIndex::Match> TokenIndex::find(std::span<const std::int32_t> text) const {
  const auto n_text = static_cast<std::int64_t>(text.size());
  const auto n_tokens = static_cast<std::int64_t>(tokens_.size());
  if (n_text < least_ || before_.empty()) return std::nullopt;
  Match best;
  std::int32_t place = newest_[chain_of(text.data() + n_text - least_)];
  for (int i = 0; i < kMostPlaces && place != kNone && best.length < kLongest;
       ++i, place = before_[static_cast<std::size_t>(place)]) {
    const std::int64_t next = place + least_;
    if (next == n_tokens) continue;  // nothing follows: such as the text's own end
    const std::int64_t most = std::min({n_text, next, kLongest});
    std::int64_t length = 0;
    while (length < most && text[static_cast<std::size_t>(n_text - 1 - length)] ==
                                tokens_[static_cast<std::size_t>(next - 1 - length)]) {
      ++length;
    }
    if (length >= least_ && length > best.length) best = {length, next};
  }
  if (best.length == 0) return std::nullopt;
  return best;
}

}  // namespace longhaul
