// Every stored string through every stored tokenizer: the ids and texts of the `tokenizers`
// library, all of them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "model/tokenizer/tokenizer.h"
#include "tests/golden/tokenizer/golden_data.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

using test::GoldenResults;

constexpr std::int64_t kShownFailures = 3;

std::string visible(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < 0x20 || byte >= 0x7F || c == '\\' ? fmt::format("\\x{:02x}", byte)
                                                      : std::string(1, c);
  }
  return shown;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, bool skip) {
  StreamDecoder stream(tokenizer, skip);
  std::string text;
  for (const std::int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

// All four texts that the script decodes; each is also streamed.
std::string decoded(const Tokenizer& tokenizer, std::size_t index,
                    const std::vector<std::int32_t>& ids) {
  std::string all;
  const auto random = test::random_ids(index, tokenizer.vocab_size());
  for (const auto* each : {&ids, &random}) {
    for (const bool skip : {true, false}) {
      if (!all.empty() || each != &ids || !skip) all += '\0';
      const std::string text = tokenizer.decode(*each, skip);
      EXPECT_EQ(streamed(tokenizer, *each, skip), text);
      all += text;
    }
  }
  return all;
}

void compare_all(const Tokenizer& tokenizer, std::string_view name) {
  const std::vector<std::string> strings = test::golden_strings();
  const GoldenResults want = test::golden_results(name);
  ASSERT_GT(want.hashes.size(), 0U);
  ASSERT_LE(want.hashes.size(), strings.size());
  std::int64_t n_wrong = 0;
  for (std::size_t i = 0; i < want.hashes.size(); ++i) {
    const auto as_text = tokenizer.encode(strings[i], {.parse_special = false});
    const auto parsed = tokenizer.encode(strings[i], {.parse_special = true});
    const std::string text = decoded(tokenizer, i, parsed);
    const bool right = test::hash_of(as_text) == want.hashes[i].as_text &&
                       test::hash_of(parsed) == want.hashes[i].parsed &&
                       test::hash_of(text) == want.hashes[i].decoded;
    if (right || ++n_wrong > kShownFailures) continue;
    ADD_FAILURE() << fmt::format(
        "{}: string {} differs ({}{}{}): \"{}\"\n  ids as text {}\n  ids parsed  {}\n  wanted      "
        "{}\n  decoded \"{}\"",
        name, i, test::hash_of(as_text) == want.hashes[i].as_text ? "" : "as text ",
        test::hash_of(parsed) == want.hashes[i].parsed ? "" : "parsed ",
        test::hash_of(text) == want.hashes[i].decoded ? "" : "decoded ", visible(strings[i]),
        fmt::join(as_text, " "), fmt::join(parsed, " "),
        i < want.full.size() ? fmt::format("{}", fmt::join(want.full[i], " ")) : "(hash only)",
        visible(text));
  }
  EXPECT_EQ(n_wrong, 0) << "of " << want.hashes.size() << " strings";
}

class StoredTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(StoredTokenizer, GivesTheSameIdsAndTexts) {
  compare_all(Tokenizer::from_json(test::golden_tokenizer(GetParam()), GetParam()), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, StoredTokenizer,
                         testing::Values("gpt2", "llama3", "qwen2", "llama2", "mistral",
                                         "gpt2_prefix_space", "starcoder", "deepseek", "o200k",
                                         "neox", "nfkc_digits", "words", "gemma", "metaspace",
                                         "metaspace_first", "llama2_flags", "unknown",
                                         "unknown_fused"),
                         [](const auto& suite) { return std::string(suite.param); });

class RealTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(RealTokenizer, GivesTheSameIdsAndTexts) {
  const std::string file = fmt::format("models/{}/tokenizer.json", GetParam());
  LONGHAUL_SKIP_UNLESS_SHARED(file);
  compare_all(Tokenizer::from_file(test::shared_path(file)), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, RealTokenizer, testing::Values("needle", "stories260K"),
                         [](const auto& suite) { return std::string(suite.param); });

}  // namespace
}  // namespace longhaul
