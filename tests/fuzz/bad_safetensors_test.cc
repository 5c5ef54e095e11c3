// Bad safetensors files: lengths, headers, tensors, places.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/fuzz/bad_inputs.h"
#include "tests/fuzz/bad_json.h"
#include "tests/fuzz/read_inputs.h"
#include "tests/unit/model/safetensors_bytes.h"

namespace longhaul::test {
namespace {

constexpr std::size_t kLengthBytes = 8;

struct Parts {
  std::string_view header;
  std::string_view data;
};

Parts parts_of(std::string_view good) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<std::uint64_t>(static_cast<unsigned char>(good[i])) << (8 * i);
  }
  return {good.substr(kLengthBytes, length), good.substr(kLengthBytes + length)};
}

void add_bad_lengths(const Parts& good, std::vector<BadInput>& bad) {
  const std::uint64_t right = good.header.size();
  std::vector<std::uint64_t> lengths = {0, 1, right - 1, right + 1, 100'000'000, 100'000'001};
  for (int bit = 12; bit < 64; ++bit) {
    lengths.push_back(std::uint64_t{1} << bit);
    lengths.push_back(right + (std::uint64_t{1} << bit));
    lengths.push_back(~std::uint64_t{0} << bit);
  }
  for (std::uint64_t less = 0; less < 16; ++less) lengths.push_back(~std::uint64_t{0} - less);
  for (const std::uint64_t length : lengths) {
    bad.push_back({.what = fmt::format("header length {}", length),
                   .bytes = safetensors_bytes(good.header, good.data, length)});
  }
}

// One tensor of the header changed, as text.
void add_bad_tensors(std::vector<BadInput>& bad) {
  const auto add = [&](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    const std::string header = fmt::format(
        R"({{"t":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
    bad.push_back({.what = header, .bytes = safetensors_bytes(header, "12345678")});
  };
  for (const std::string_view shape :
       {"[3]", "[-2]", "[2,-1,-1]", "[18446744073709551616]", "[9223372036854775807,2]",
        "[4294967296,4294967296]", "[4294967296,4294967296,4294967296]", "[2305843009213693952,8]",
        "[0]", "[2,0]", "[1e0,2]", "[2.0]", "[\"2\"]", "[[2]]", "{}", "2", "null",
        "[9223372036854775807,9223372036854775807,0]"}) {
    add("F32", shape, "[0,8]");
  }
  for (const std::string_view offsets :
       {"[0,7]", "[0,9]", "[1,9]", "[8,0]", "[8,16]", "[-8,0]", "[0]", "[0,8,8]", "[]", "null",
        "[0,18446744073709551615]", "[18446744073709551608,18446744073709551615]",
        "[9223372036854775800,9223372036854775807]", "[\"0\",\"8\"]", "[0.0,8.0]", "{}"}) {
    add("F32", "[2]", offsets);
  }
  for (const std::string_view dtype : {"F31", "f32", "", "F32 ", "float32", "F64", "I8", "F4"}) {
    add(dtype, "[2]", "[0,8]");
  }
  add("F4", "[3]", "[0,8]");
  add("F6_E2M3", "[1]", "[0,8]");
}

void add_bad_safetensors(std::string_view good, std::vector<BadInput>& bad) {
  add_truncations(
      good, [](std::size_t) { return false; }, bad);
  const Parts parts = parts_of(good);
  add_bad_lengths(parts, bad);
  add_bad_tensors(bad);
  bad.push_back({.what = "a byte more", .bytes = std::string(good) + "x"});
  bad.push_back({.what = "data twice", .bytes = std::string(good) + std::string(parts.data)});

  std::vector<BadInput> headers;
  add_bad_json_text(parts.header, headers);
  for (const BadInput& header : headers) {
    bad.push_back({.what = header.what, .bytes = safetensors_bytes(header.bytes, parts.data)});
  }
  const Json tree = parse_json(parts.header, "a good header");
  for (const auto& [what, changed] : bad_trees(tree, {{"a", "o"},
                                                      {"a/dtype", "s"},
                                                      {"a/shape", "l"},
                                                      {"a/shape/0", "i"},
                                                      {"a/data_offsets", "l"},
                                                      {"a/data_offsets/0", "i"},
                                                      {"a/data_offsets/1", "i"},
                                                      {"b/data_offsets/0", "i"},
                                                      {"b/shape/1", "i"},
                                                      {"__metadata__", "o0"},
                                                      {"__metadata__/format", "s"}})) {
    if (what == "__metadata__/format left out") continue;  // any metadata are good
    bad.push_back({.what = what, .bytes = safetensors_bytes(to_text(changed), parts.data)});
  }
}

TEST(BadInputs, OfSafetensorsFilesAreRefusedByName) {
  const Reader reader{
      .name = "safetensors",
      .source = std::string(kInputName),
      .good = {safetensors_bytes(
          R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
          R"("b":{"dtype":"BF16","shape":[2,2],"data_offsets":[12,20]}}    )",
          "0123456789abcdefghij")},
      .parse = read_safetensors,
      .targeted = add_bad_safetensors,
      .n_random = 1000};
  EXPECT_GE(check_reader(reader).refused, 500U);
}

}  // namespace
}  // namespace longhaul::test
