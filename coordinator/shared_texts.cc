#include "coordinator/shared_texts.h"

#include <algorithm>
#include <utility>

namespace longhaul {

std::size_t SharedTexts::family_with(const std::vector<std::int32_t>& ids, std::size_t n_document) {
  const auto end = ids.begin() + static_cast<std::ptrdiff_t>(n_document);
  for (std::size_t i = 0; i < families_.size(); ++i) {
    const std::vector<std::int32_t>& document = families_[i].document;
    if (std::equal(ids.begin(), end, document.begin(), document.end())) return i;
  }
  families_.push_back({.document = {ids.begin(), end}, .beyond = {}});
  return families_.size() - 1;
}

void SharedTexts::add(ChatIds chat) {
  // One id at least is the conversation's own.
  const std::size_t n_document = std::min(chat.n_document, chat.ids.size() - 1);
  const std::size_t n_cut = cuts_documents_ ? n_document : 0;
  const std::size_t at = family_with(chat.ids, n_cut);
  chat.ids.erase(chat.ids.begin(), chat.ids.begin() + static_cast<std::ptrdiff_t>(n_cut));
  const std::size_t most = is_alone_ ? n_document - n_cut : chat.ids.size();
  families_[at].beyond.add(std::move(chat.ids), most);
  ++families_[at].n_texts;
  family_of_.push_back(at);
}

std::vector<PreparedDocument> SharedTexts::take_documents() {
  std::vector<PreparedDocument> documents;
  for (Family& family : families_) {
    if (!cuts_documents_) {
      documents.push_back({.ids = family.beyond.take_prefix()});
      continue;
    }
    PreparedDocument& document =
        documents.emplace_back(PreparedDocument{.ids = std::move(family.document)});
    if (family.n_texts > 1) {
      std::vector<std::int32_t> part = family.beyond.take_prefix();
      family.n_of_part = part.size();
      if (!part.empty()) document.parts.push_back(std::move(part));
    }
    family.beyond.share_nothing();
  }
  return documents;
}

std::vector<PromptIds> SharedTexts::take_prompts() {
  std::vector<std::vector<std::vector<std::int32_t>>> rests;  // of each family
  for (Family& family : families_) rests.push_back(family.beyond.take_rests());
  std::vector<std::size_t> n_taken(families_.size());
  std::vector<PromptIds> prompts;
  for (const std::size_t at : family_of_) {
    prompts.push_back({.ids = std::move(rests[at][n_taken[at]++]),
                       .document = at,
                       .n_of_part = families_[at].n_of_part});
  }
  return prompts;
}

}  // namespace longhaul
