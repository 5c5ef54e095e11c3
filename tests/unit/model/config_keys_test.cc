// A misspelt field of config.json once changed the mathematics without a word.
#include "model/config_keys.h"

#include <fmt/format.h>

#include <regex>
#include <set>

#include "base/file.h"
#include "model/hf_config.h"
#include "tests/support/paths.h"
#include "tests/unit/model/expect_error.h"

namespace longhaul {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;

std::string config(std::string_view fields) {
  return fmt::format(R"({{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
                          "num_hidden_layers": 2{}{}}})",
                     fields.empty() ? "" : ", ", fields);
}
std::vector<std::string> unknown(std::string_view fields) {
  return parse_hf_config(config(fields), "config.json").unknown_keys;
}
std::string refused_field(std::string_view fields) {
  return message_of(ErrorCode::kCorruptData, [&] { unknown(fields); });
}

TEST(ConfigKeys, AMisspeltFieldThatIsReadIsRefusedWithASuggestion) {
  EXPECT_THAT(refused_field(R"("rmpe_theta": 1e6)"),
              HasSubstr("rmpe_theta: there is no such field; did you mean rope_theta?"));
  EXPECT_THAT(refused_field(R"("rms_norm_epsilon": 1e-5, "rms_nrom_eps": 1e-5)"),
              HasSubstr("did you mean rms_norm_eps"));
  EXPECT_THAT(refused_field(R"("ropeTheta": 1e6)"), HasSubstr("did you mean rope_theta"));
  EXPECT_THAT(refused_field(R"("slidding_window": null)"),
              HasSubstr("did you mean sliding_window"));
  EXPECT_THAT(
      refused_field(R"("rope_scaling": {"rope_type": "yarn", "factor": 2, "beta_fats": 3})"),
      HasSubstr("rope_scaling: beta_fats: there is no such field; did you mean beta_fast"));
}

TEST(ConfigKeys, OthersThatNobodyKnowsAreNamed) {
  EXPECT_THAT(unknown(R"("secret_sauce": 1, "use_cache": true, "rope_theta": 1e6)"),
              ElementsAre("secret_sauce"));
  EXPECT_THAT(unknown(R"("rope_scaling": {"rope_type": "linear", "factor": 2, "spice": 3})"),
              ElementsAre("rope_scaling.spice"));
  // With the right one there, no default is taken.
  EXPECT_THAT(unknown(R"("rmpe_theta": 1e6, "rope_theta": 1e6)"), ElementsAre("rmpe_theta"));
}

TEST(ConfigKeys, FieldsOfPublishedModelsAreKnown) {
  EXPECT_THAT(
      unknown(
          R"("_name_or_path": "x", "architectures": ["LlamaForCausalLM"], "attention_bias": false,
             "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": [2], "hidden_act": "silu",
             "initializer_range": 0.02, "intermediate_size": 128, "max_position_embeddings": 4096,
             "mlp_bias": false, "num_key_value_heads": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-5,
             "rope_theta": 5e5, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
             "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 1000,
             "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                              "original_max_position_embeddings": 8192, "rope_type": "llama3"})"),
      IsEmpty());
}

std::string source(std::string_view file) {
  return read_file(test::source_path("model") / file, std::size_t{1} << 20);
}
// What stands in the group of `pattern`, wherever it is found in `text`.
std::set<std::string> found(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it)
    names.insert(it->str(1));
  return names;
}

// A field that is read and not listed would be called unknown, one that is listed and no longer
// read would pass for known.
TEST(ConfigKeys, WhatIsListedAsReadIsWhatTheReadersRead) {
  const std::string of_config = source("hf_config.cc") + source("hf_refusals.cc");
  const std::string of_rope = source("hf_rope.cc");
  const std::set<std::string> named =
      found(of_config + of_rope + source("hf_quantised.cc"), R"re("(\w+)")re");
  const std::string lists = source("config_keys.cc");
  const auto listed = [&](std::string_view list) {
    const std::size_t begin = lists.find(fmt::format("{} = {{", list));
    return found(lists.substr(begin, lists.find("};", begin) - begin), R"re("(\w+)")re");
  };
  const std::set<std::string> read = found(
      of_config + of_rope,
      R"re(config\.(?:root\(\)\.at|find|has|integer|number|boolean|text|token_ids)\(\s*"(\w+)")re");
  EXPECT_GT(read.size(), 25U);
  EXPECT_THAT(listed("kRead"), IsSupersetOf(read));
  EXPECT_THAT(named, IsSupersetOf(listed("kRead")));
  const std::set<std::string> read_of_rope =
      found(of_rope, R"re((?:rope(?:->|\.)(?:find|at)\(|number\(\*?rope, )"(\w+)")re");
  EXPECT_GT(read_of_rope.size(), 10U);
  EXPECT_THAT(listed("kReadOfRope"), IsSupersetOf(read_of_rope));
  EXPECT_THAT(named, IsSupersetOf(listed("kReadOfRope")));
}

}  // namespace
}  // namespace longhaul
