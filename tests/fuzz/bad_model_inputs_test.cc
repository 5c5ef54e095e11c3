// Bad config.json, generation_config.json, index.json and head profiles; safetensors files are in
// bad_safetensors_test.cc.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/fuzz/bad_inputs.h"
#include "tests/fuzz/bad_json.h"
#include "tests/fuzz/read_inputs.h"
#include "tests/support/paths.h"

namespace longhaul::test {
namespace {

// The shared file, when it is there.
void add_shared(std::string_view relative, std::vector<std::string>& good) {
  const auto path = shared_path(relative);
  if (std::filesystem::exists(path)) good.push_back(read_file(path, std::size_t{1} << 20));
}

// Text and fields of JSON.
auto json_mutations(std::vector<CheckedField> fields) {
  return [fields = std::move(fields)](std::string_view good, std::vector<BadInput>& bad) {
    add_bad_json_text(good, bad);
    add_bad_json_fields(good, fields, bad);
  };
}

const std::vector<CheckedField> kConfigFields = {
    {"architectures", "l0"},
    {"architectures/0", "s"},
    {"model_type", "s0"},
    {"vocab_size", "i0"},
    {"hidden_size", "i0"},
    {"intermediate_size", "i0"},
    {"num_hidden_layers", "i0"},
    {"num_attention_heads", "i0"},
    {"num_key_value_heads", "i0"},
    {"head_dim", "i0"},
    {"max_position_embeddings", "i0"},
    {"rms_norm_eps", "n0"},
    {"hidden_act", "s0"},
    {"attention_bias", "b0"},
    {"mlp_bias", "b0"},
    {"tie_word_embeddings", "b0"},
    {"rope_theta", "n0"},
    {"bos_token_id", "i0"},
    {"eos_token_id", "il0"},
    {"eos_token_id/1", "i"},
    {"torch_dtype", "s0"},
    {"dtype", "s0"},
    {"use_sliding_window", "b0"},
    {"sliding_window", "i0"},
    {"max_window_layers", "i0"},
    {"layer_types", "l0"},
    {"layer_types/1", "s"},
    {"rope_scaling", "o0"},
    {"rope_scaling/rope_type", "s0"},
    {"rope_scaling/type", "s0"},
    {"rope_scaling/factor", "n"},
    {"rope_scaling/low_freq_factor", "n"},
    {"rope_scaling/high_freq_factor", "n"},
    {"rope_scaling/original_max_position_embeddings", "i0"},
    {"rope_parameters", "o0"},
    {"rope_parameters/rope_type", "s0"},
    {"rope_parameters/rope_theta", "n0"},
    {"rope_parameters/beta_fast", "n0"},
    {"rope_parameters/beta_slow", "n0"},
    {"rope_parameters/attention_factor", "n0"},
    {"rope_parameters/mscale", "n0"},
    {"rope_parameters/mscale_all_dim", "n0"},
    {"rope_parameters/truncate", "b0"},
    {"rope_parameters/original_max_position_embeddings", "i0"}};

Reader hf_config_reader() {
  Reader reader{.name = "config.json", .source = std::string(kInputName), .parse = read_hf_config};
  reader.good = {
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256,
          "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
          "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "hidden_act": "silu",
          "attention_bias": false, "mlp_bias": true, "tie_word_embeddings": true,
          "rope_theta": 500000.0, "bos_token_id": 1, "eos_token_id": [2, 3],
          "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                           "high_freq_factor": 4.0, "original_max_position_embeddings": 1024},
          "torch_dtype": "bfloat16"})",
      R"({"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 2, "use_sliding_window": true,
          "sliding_window": 128, "max_window_layers": 1,
          "layer_types": ["full_attention", "sliding_attention"], "dtype": "float16",
          "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
                              "beta_fast": 32, "beta_slow": 1, "attention_factor": 1.1,
                              "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": true,
                              "original_max_position_embeddings": 32768}})",
      R"({"model_type": "mistral", "sliding_window": 4096,
          "rope_scaling": {"type": "linear", "factor": 2}})"};
  add_shared("models/needle/config.json", reader.good);
  add_shared("models/stories260K/config.json", reader.good);
  reader.targeted = json_mutations(kConfigFields);
  return reader;
}

Reader generation_config_reader() {
  Reader reader{.name = "generation_config.json",
                .source = std::string(kInputName),
                .parse = read_generation_config};
  reader.good = {R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
                     "min_p": 0.05, "max_new_tokens": 100, "eos_token_id": [1, 2],
                     "repetition_penalty": 1.05})"};
  add_shared("models/needle/generation_config.json", reader.good);
  reader.targeted = json_mutations({{"do_sample", "b0"},
                                    {"temperature", "n0"},
                                    {"top_k", "i0"},
                                    {"top_p", "n0"},
                                    {"min_p", "n0"},
                                    {"max_new_tokens", "i0"},
                                    {"eos_token_id", "il0"},
                                    {"eos_token_id/0", "i"}});
  return reader;
}

Reader weight_index_reader() {
  Reader reader{
      .name = "index.json", .source = std::string(kInputName), .parse = read_weight_index};
  reader.good = {R"({"metadata": {"total_size": 12}, "weight_map":
                     {"a": "model-00001-of-00002.safetensors",
                      "b": "model-00002-of-00002.safetensors"}})"};
  reader.targeted = [](std::string_view good, std::vector<BadInput>& bad) {
    add_bad_json_text(good, bad);
    add_bad_json_fields(good, {{"weight_map", "o"}, {"weight_map/a", "s0"}}, bad);
    for (const char* name :
         {"../x.safetensors", "/x.safetensors", "a/b.safetensors", "x.bin", "", "..",
          ".safetensors/..", "a\\\\b.safetensors", "\\u0000.safetensors"}) {
      bad.push_back({.what = fmt::format("file name {}", name),
                     .bytes = fmt::format(R"({{"weight_map": {{"a": "{}"}}}})", name)});
    }
  };
  return reader;
}

// Every field of a small table replaced, rows and columns added and left out.
void add_bad_tables(std::string_view good, std::vector<BadInput>& bad) {
  add_truncations(
      good, [&](std::size_t length) { return length > 0 && good[length - 1] == '\n'; }, bad);
  const std::string_view wrong[] = {"",      "nan",  "-nan", "inf",   "-inf", "x",       "1e999",
                                    "1e308", "-1e9", "--1",  "0x1p3", "1,5",  "0.5 0.5", " 1",
                                    "1 ",    "true", "1e",   "1e+-1", "\xff", "\xc0\x80"};
  std::size_t begin = 0;
  for (int field = 0; field < 12 && begin < good.size(); ++field) {
    const std::size_t end = good.find_first_of("\t\n", begin);
    for (const std::string_view value : wrong) {
      std::string copy(good);
      bad.push_back({.what = fmt::format("field {} set to '{}'", field, value),
                     .bytes = copy.replace(begin, end - begin, value)});
    }
    std::string more(good);
    bad.push_back({.what = "a column more", .bytes = more.insert(begin, "0.5\t")});
    begin = end + 1;
  }
  bad.push_back({.what = "an empty row first", .bytes = fmt::format("\n{}", good)});
  bad.push_back({.what = "an empty row last", .bytes = std::string(good) + "\n"});
  bad.push_back({.what = "a short row last", .bytes = std::string(good) + "1\n"});
  bad.push_back({.what = "a zero byte", .bytes = std::string(good) + '\0'});
}

std::vector<Reader> head_profile_readers() {
  Reader tsv{.name = "full_attention_heads.tsv",
             .source = std::string(kInputName),
             .good = {"0.5\t1.000000000000000000e+00\n-1e-4\t9.96e-01\n0\t0\n"},
             .parse = read_head_profile_tsv,
             .targeted = add_bad_tables};
  add_shared("patterns/Mistral-7B-Instruct-v0.2/full_attention_heads.tsv", tsv.good);
  Reader config{.name = "profile config.json",
                .source = std::string(kInputName),
                .good = {R"({"sink_size": 128, "recent_size": 256, "lr": 0.02, "seed": 42})"},
                .parse = read_head_profile_config,
                .targeted = json_mutations({{"sink_size", "i"}, {"recent_size", "i"}})};
  return {tsv, config};
}

TEST(BadInputs, OfModelFilesAreRefusedByName) {
  std::size_t n_refused = 0;
  n_refused += check_reader(hf_config_reader()).refused;
  n_refused += check_reader(generation_config_reader()).refused;
  n_refused += check_reader(weight_index_reader()).refused;
  for (const Reader& reader : head_profile_readers()) n_refused += check_reader(reader).refused;
  EXPECT_GE(n_refused, 500U);
}

}  // namespace
}  // namespace longhaul::test
