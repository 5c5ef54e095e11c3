#include "coordinator/shared_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Ids = std::vector<std::int32_t>;

// Conversations of a group: documents, prompts.
struct Shared {
  std::vector<PreparedDocument> documents;
  std::vector<PromptIds> prompts;
};
Shared shared_by(bool cuts_documents, const std::vector<ChatIds>& chats) {
  SharedTexts texts(cuts_documents, chats.size() == 1);
  for (const ChatIds& chat : chats) texts.add(chat);
  Shared shared;
  shared.documents = texts.take_documents();
  shared.prompts = texts.take_prompts();
  return shared;
}

TEST(SharedTexts, WithoutCutsAllThatIsTheSameIsTheDocument) {
  const Shared shared = shared_by(false, {{{1, 2, 3, 7, 8}, 3}, {{1, 2, 3, 7, 9, 9}, 3}});
  ASSERT_EQ(shared.documents.size(), 1U);
  EXPECT_THAT(shared.documents[0].ids, ElementsAre(1, 2, 3, 7));
  EXPECT_THAT(shared.documents[0].parts, IsEmpty());
  EXPECT_THAT(shared.prompts[0].ids, ElementsAre(8));
  EXPECT_THAT(shared.prompts[1].ids, ElementsAre(9, 9));
  EXPECT_EQ(shared.prompts[1].n_of_part, 0U);
}

TEST(SharedTexts, AloneAConversationSharesItsDocuments) {
  for (const bool cuts : {false, true}) {
    const Shared shared = shared_by(cuts, {{{1, 2, 3, 7, 8}, 3}});
    EXPECT_THAT(shared.documents.at(0).ids, ElementsAre(1, 2, 3));
    EXPECT_THAT(shared.documents[0].parts, IsEmpty());
    EXPECT_THAT(shared.prompts.at(0).ids, ElementsAre(7, 8));
    EXPECT_EQ(shared.prompts[0].n_of_part, 0U);
  }
}

TEST(SharedTexts, WhatIsCutEndsWithTheDocuments) {
  const Shared shared = shared_by(true, {{{1, 2, 3, 7, 8}, 3}, {{1, 2, 3, 7, 9, 9}, 3}});
  ASSERT_EQ(shared.documents.size(), 1U);
  EXPECT_THAT(shared.documents[0].ids, ElementsAre(1, 2, 3));
  EXPECT_THAT(shared.documents[0].parts, ElementsAre(ElementsAre(7)));
  EXPECT_THAT(shared.prompts[0].ids, ElementsAre(7, 8));
  EXPECT_THAT(shared.prompts[1].ids, ElementsAre(7, 9, 9));
  for (const PromptIds& prompt : shared.prompts) {
    EXPECT_EQ(prompt.document, 0U);
    EXPECT_EQ(prompt.n_of_part, 1U);
  }
}

TEST(SharedTexts, WhatIsCutIsNotSharedWithOtherDocuments) {
  // Another system message before the documents, and a template that hides them.
  const Shared shared =
      shared_by(true, {{{1, 2, 3, 7}, 3}, {{1, 5, 2, 3, 7}, 4}, {{1, 2, 3, 8}, 3}, {{1, 2}, 0}});
  ASSERT_EQ(shared.documents.size(), 3U);
  EXPECT_THAT(shared.documents[0].ids, ElementsAre(1, 2, 3));
  EXPECT_THAT(shared.documents[0].parts, IsEmpty());  // 7 and 8 differ
  EXPECT_THAT(shared.documents[1].ids, ElementsAre(1, 5, 2, 3));
  EXPECT_THAT(shared.documents[2].ids, IsEmpty());
  std::vector<std::size_t> documents;
  for (const PromptIds& prompt : shared.prompts) documents.push_back(prompt.document);
  EXPECT_THAT(documents, ElementsAre(0, 1, 0, 2));
  EXPECT_THAT(shared.prompts[1].ids, ElementsAre(7));
  EXPECT_THAT(shared.prompts[3].ids, ElementsAre(1, 2));
}

TEST(SharedTexts, EachConversationKeepsAToken) {
  const Shared shared = shared_by(true, {{{1, 2}, 2}, {{1, 2}, 2}});
  ASSERT_EQ(shared.documents.size(), 1U);
  EXPECT_THAT(shared.documents[0].ids, ElementsAre(1));
  EXPECT_THAT(shared.prompts[1].ids, ElementsAre(2));
  EXPECT_EQ(shared.prompts[1].n_of_part, 0U);
}

}  // namespace
}  // namespace longhaul
