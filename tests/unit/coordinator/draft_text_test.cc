#include "coordinator/draft_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/coordinator/lookup_documents.h"

namespace longhaul {
namespace {

using test::document_of;
using test::Ids;
using testing::ElementsAreArray;

// [begin, end)
Ids range(std::int32_t begin, std::int32_t end) {
  Ids ids(static_cast<std::size_t>(end - begin));
  std::iota(ids.begin(), ids.end(), begin);
  return ids;
}

Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(DraftText, HasAllOfAShortText) {
  const DraftText text(256, document_of(range(30, 50), document_of(range(0, 30))), range(50, 60));
  EXPECT_THAT(text.tokens(), ElementsAreArray(range(0, 60)));
  EXPECT_EQ(text.n_shared(), 50);
  EXPECT_EQ(text.n_left_out(), 0);
}

TEST(DraftText, HasTheFirstAndTheNewestTokensOfALongOne) {
  const auto document = document_of(range(450, 500), document_of(range(0, 450)));
  DraftText text(256, document, range(500, 510));
  EXPECT_THAT(text.tokens(), ElementsAreArray(range(0, 4) + range(376, 510)));
  EXPECT_EQ(text.n_shared(), 128);
  EXPECT_EQ(text.document(), document);
  EXPECT_EQ(text.n_left_out(), 372);
  text.add(range(510, 564));  // 192 tokens: as many as leave room for guesses
  EXPECT_EQ(text.tokens().size(), 192U);
  text.add(range(564, 565));
  EXPECT_THAT(text.tokens(), ElementsAreArray(range(0, 4) + range(441, 565)));
  EXPECT_EQ(text.n_shared(), 0);
  EXPECT_EQ(text.n_left_out(), 437);
}

TEST(DraftText, CutsAPromptThatIsTooLong) {
  const DraftText text(256, nullptr, range(0, 1000));
  EXPECT_THAT(text.tokens(), ElementsAreArray(range(0, 4) + range(876, 1000)));
  EXPECT_EQ(text.n_shared(), 0);
  EXPECT_EQ(text.n_left_out(), 872);
}

}  // namespace
}  // namespace longhaul
