// What users of llama.cpp and vLLM type from habit.
#include "tools/flags/other_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using Words = std::vector<std::string>;

Words spelt_as_here(Words words) {
  spell_as_here(words);
  return words;
}

TEST(OtherTools, NamesOfFlagsThatAreHereBecomeOurs) {
  EXPECT_EQ(spelt_as_here({"run", "-np", "4", "-md", "small", "-ctk", "int8"}),
            Words({"run", "--parallel", "4", "--draft-model", "small", "--ctk", "int8"}));
}

TEST(OtherTools, TextsThatLookLikeFlagsStayAsTheyAre) {
  for (const Words& words : {Words{"run", "-p", "-ngl"}, Words{"run", "-sys", "-np"},
                             Words{"run", "--stop", "-tb"}, Words{"run", "--", "-np", "-ngl"}}) {
    EXPECT_EQ(spelt_as_here(words).back(), words.back());
  }
  EXPECT_EQ(spelt_as_here({"run", "-p"}), Words({"run", "-p"}));
}

TEST(OtherTools, OfFlagsThatAreNotHereUsersHearWhatToGive) {
  for (const std::string word : {"-ngl", "-tb", "-mg", "--dtype=bf16"}) {
    Words words = {"run", word, "4"};
    try {
      spell_as_here(words);
      FAIL() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), testing::StartsWith(word.substr(0, word.find('=')) + ": "));
    }
  }
}

}  // namespace
}  // namespace longhaul
