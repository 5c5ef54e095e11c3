// What the conversations of a group share: their beginnings, documents included, are read once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "coordinator/chat_preparation.h"
#include "coordinator/shared_prefix.h"

namespace longhaul {

struct PreparedDocument {
  std::vector<std::int32_t> ids;                      // what prompts begin with; empty: nothing
  std::vector<std::vector<std::int32_t>> parts = {};  // what some share behind it; not empty
};
struct PromptIds {
  std::vector<std::int32_t> ids;  // what follows its document
  std::size_t document = 0;       // which one
  std::size_t n_of_part = 0;      // first tokens of `ids` that are the document's part 0, too
};

// Where a method cuts documents (HeadTable::cuts_documents), it does so where each conversation's
// own documents end, so what is shared behind them is a part, and conversations whose texts differ
// before share nothing. Else they share all that is the same. Used by one thread.
class SharedTexts {
 public:
  // A conversation that is alone shares its documents: caches that are saved are theirs.
  SharedTexts(bool cuts_documents, bool is_alone)
      : cuts_documents_(cuts_documents), is_alone_(is_alone) {}

  // `chat.ids` is not empty.
  void add(ChatIds chat);
  // Both once, the documents first. Prompts in the order in which they were added.
  std::vector<PreparedDocument> take_documents();
  std::vector<PromptIds> take_prompts();

 private:
  // Conversations with the same documents.
  struct Family {
    std::vector<std::int32_t> document;  // where methods cut them
    SharedPrefix beyond;
    std::size_t n_texts = 0;
    std::size_t n_of_part = 0;  // once documents are taken
  };

  std::size_t family_with(const std::vector<std::int32_t>& ids, std::size_t n_document);

  bool cuts_documents_;
  bool is_alone_;
  std::vector<Family> families_;
  std::vector<std::size_t> family_of_;  // of each text
};

}  // namespace longhaul
