// Bad request files (JSON Lines).
#include <gtest/gtest.h>

#include "tests/fuzz/bad_inputs.h"
#include "tests/fuzz/bad_json.h"
#include "tests/fuzz/read_inputs.h"

namespace longhaul::test {
namespace {

// One line: all that is wrong with JSON, and with each field. `seed` may be any 64-bit integer, a
// top_k of -1 means off.
void add_bad_lines(std::string_view good, std::vector<BadInput>& bad) {
  add_bad_json_text(good, bad);
  add_bad_json_fields(good,
                      {{"custom_id", "s"},
                       {"method", "s"},
                       {"url", "s"},
                       {"body", "o"},
                       {"body/prompt", "sl"},
                       {"body/prompt/1", "i"},
                       {"body/max_tokens", "i0"},
                       {"body/temperature", "n0"},
                       {"body/top_p", "n0"},
                       {"body/top_k", "i0m"},
                       {"body/min_p", "n0"},
                       {"body/stop", "sl0"},
                       {"body/stop/1", "s"},
                       {"body/logprobs", "i0b"},
                       {"body/echo", "b0"},
                       {"body/n", "i0"},
                       {"body/stream", "b0"},
                       {"body/documents", "l0"},
                       {"body/documents/0", "o"},
                       {"body/documents/0/path", "s"},
                       {"body/documents/0/sha256", "s0"}},
                      bad);
  bad.push_back(
      {.what = "the same line twice", .bytes = std::string(good) + "\n" + std::string(good)});
  for (const char* line : {"{}", "[]", "3", "null", "\"x\"", "{\"custom_id\": 1}"}) {
    bad.push_back({.what = line, .bytes = line});
  }
  std::erase_if(bad, [](const BadInput& input) { return input.bytes.empty(); });  // no requests
}

TEST(BadInputs, OfRequestFilesAreRefusedByName) {
  const Reader reader{
      .name = "requests.jsonl",
      .source = std::string(kInputName),
      .good =
          {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Who?", "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 7, "stop": ["x", "y"], "logprobs": 2, "echo": true, "n": 1, "stream": false, "documents": [{"path": "book.txt", "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]}})",
           R"({"custom_id": "b", "method": "POST", "url": "/v1/completions", "body": {"prompt": [1, 2, 3], "stop": "."}})"},
      .parse = read_requests,
      .targeted = add_bad_lines,
      .n_random = 500};
  EXPECT_GE(check_reader(reader).refused, 500U);
}

}  // namespace
}  // namespace longhaul::test
