#include "coordinator/draft_text.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "partition/workload.h"

namespace longhaul {
namespace {

// Many models give the first tokens of a text much attention, whatever they are (StreamingLLM, Xiao
// et al. 2023, arXiv 2309.17453).
constexpr std::int64_t kFirst = 4;

std::int64_t length_of(const LookupDocument* document) {
  std::int64_t n = 0;
  for (; document != nullptr; document = document->before.get())
    n += std::ssize(document->index.tokens());
  return n;
}

// The last n tokens, and those of the documents before it that they begin in.
std::vector<std::int32_t> last_of(const LookupDocument& document, std::int64_t n) {
  const std::span<const std::int32_t> own = document.index.tokens();
  const auto n_own = std::min<std::int64_t>(n, std::ssize(own));
  std::vector<std::int32_t> tokens;
  if (n > n_own && document.before != nullptr) tokens = last_of(*document.before, n - n_own);
  tokens.insert(tokens.end(), own.end() - n_own, own.end());
  return tokens;
}

std::span<const std::int32_t> first_of(const LookupDocument& document) {
  const LookupDocument* first = &document;
  for (const LookupDocument* at = first; at != nullptr; at = at->before.get()) {
    if (!at->index.tokens().empty()) first = at;
  }
  const std::span<const std::int32_t> tokens = first->index.tokens();
  return tokens.first(std::min<std::size_t>(kFirst, tokens.size()));
}

}  // namespace

DraftText::DraftText(std::int64_t context, LookupDocumentRef document,
                     std::span<const std::int32_t> prompt)
    : context_(context), document_(std::move(document)) {
  require(context >= kLeastContext, "DraftText: a context too short to guess from");
  const std::int64_t n_document = length_of(document_.get());
  if (n_document > 0 && n_document <= context_ / 2) {
    tokens_ = last_of(*document_, n_document);
  } else if (n_document > 0) {
    const std::span<const std::int32_t> first = first_of(*document_);
    tokens_.assign(first.begin(), first.end());
    const auto newest = last_of(*document_, context_ / 2 - std::ssize(first));
    tokens_.insert(tokens_.end(), newest.begin(), newest.end());
  }
  n_shared_ = std::ssize(tokens_);
  n_left_out_ = n_document - n_shared_;
  add(prompt);
}

void DraftText::add(std::span<const std::int32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  if (std::ssize(tokens_) > context_ - Workload::kRowsWithGuesses) cut_to(context_ / 2);
}

void DraftText::cut_to(std::int64_t n) {
  const auto gone = tokens_.begin() + kFirst;
  const std::int64_t n_gone = std::ssize(tokens_) - n;
  tokens_.erase(gone, gone + n_gone);
  n_left_out_ += n_gone;
  n_shared_ = 0;
  document_ = nullptr;
}

}  // namespace longhaul
