#include "coordinator/prompt_lookup.h"

#include <algorithm>
#include <utility>

namespace longhaul {
namespace {

constexpr std::size_t kJoint = 32;  // tokens of the documents' end, so that matches go over it

}  // namespace

PromptLookup::PromptLookup(const LookupConfig& config, LookupDocumentRef document,
                           std::span<const std::int32_t> prompt)
    : document_(std::move(document)), own_(config.least), length_(config.most) {
  if (document_ != nullptr) {
    const std::span<const std::int32_t> tokens = document_->index.tokens();
    own_.append(tokens.last(std::min(kJoint, tokens.size())));
  }
  own_.append(prompt);
}

std::vector<std::int32_t> PromptLookup::guess(std::int64_t most) {
  const std::int64_t length = length_.next(most);
  if (length == 0) return {};
  const std::span<const std::int32_t> text = own_.tokens();
  TokenIndex::Match best;
  std::span<const std::int32_t> from;
  const auto look = [&](const TokenIndex& index) {
    const auto match = index.find(text);
    if (!match || match->length <= best.length) return;
    best = *match;
    from = index.tokens();
  };
  look(own_);
  for (const LookupDocument* at = document_.get(); at != nullptr; at = at->before.get())
    look(at->index);
  if (best.length == 0) return {};
  const std::span<const std::int32_t> there = from.subspan(static_cast<std::size_t>(best.next));
  const auto n_there = static_cast<std::int64_t>(there.size());
  // What follows the answer's own end are its guesses: a text that repeats itself goes on so.
  const bool repeats = from.data() == text.data();
  const std::int64_t n = repeats ? length : std::min(length, n_there);
  std::vector<std::int32_t> guesses;
  for (std::int64_t i = 0; i < n; ++i)
    guesses.push_back(there[static_cast<std::size_t>(i % n_there)]);
  return guesses;
}

}  // namespace longhaul
