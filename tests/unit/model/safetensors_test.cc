#include "model/safetensors.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>

#include "tests/support/paths.h"
#include "tests/unit/model/expect_error.h"
#include "tests/unit/model/safetensors_bytes.h"

namespace longhaul {
namespace {

using test::as_byte_span;
using test::message_of;
using test::safetensors_bytes;
using testing::AllOf;
using testing::HasSubstr;

SafetensorsFile::Header parse(std::string_view bytes) {
  return SafetensorsFile::parse_header(as_byte_span(bytes), "w.safetensors");
}
std::string refusal(std::string_view bytes) {
  const std::string message = message_of(ErrorCode::kCorruptData, [&] { parse(bytes); });
  EXPECT_THAT(message, HasSubstr("w.safetensors"));
  return message;
}
// The refusal of a header over `n_data` bytes of data.
std::string refusal(std::string_view header, std::size_t n_data) {
  return refusal(safetensors_bytes(header, std::string(n_data, 'x')));
}

constexpr std::string_view kGood =
    R"({"__metadata__":{"format":"pt"},)"
    R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)"
    R"("a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},)"
    R"("none":{"dtype":"F16","shape":[0,7],"data_offsets":[4,4]}}   )";

TEST(Safetensors, ReadsShapesPlacesAndDTypes) {
  const auto header = parse(safetensors_bytes(kGood, std::string(28, '\0')));
  ASSERT_EQ(header.entries.size(), 3U);
  EXPECT_EQ(header.data_offset, 8 + kGood.size());
  const auto& b = header.entries.at("b");
  EXPECT_EQ(b.dtype_name, "F32");
  EXPECT_THAT(b.shape, testing::ElementsAre(2, 3));
  EXPECT_EQ(b.begin, 4U);
  EXPECT_EQ(b.end, 28U);
}

TEST(Safetensors, GivesViewsOfTheFile) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "w.safetensors";
  const float values[] = {1.5F, -2.0F};
  std::string data(sizeof values, '\0');
  std::memcpy(data.data(), values, sizeof values);
  std::ofstream(path, std::ios::binary)
      << safetensors_bytes(R"({"x":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                           R"("u":{"dtype":"U8","shape":[2],"data_offsets":[8,10]}})",
                           data + "zz");
  const SafetensorsFile file(path);
  EXPECT_THAT(file.names(), testing::ElementsAre("u", "x"));
  EXPECT_TRUE(file.contains("x"));
  EXPECT_FALSE(file.contains("y"));
  const TensorBytes x = file.tensor("x");
  EXPECT_EQ(x.dtype, DType::kF32);
  EXPECT_THAT(x.shape, testing::ElementsAre(1, 2));
  ASSERT_EQ(x.bytes.size(), sizeof values);
  EXPECT_EQ(std::memcmp(x.bytes.data(), values, sizeof values), 0);
  EXPECT_THAT(message_of(ErrorCode::kCorruptData, [&] { file.tensor("y"); }),
              AllOf(HasSubstr(path.string()), HasSubstr("tensor y is missing")));
  EXPECT_THAT(message_of(ErrorCode::kUnsupported, [&] { file.tensor("u"); }),
              AllOf(HasSubstr(path.string()), HasSubstr("tensor u: dtype U8")));
}

TEST(Safetensors, ReadsTheRealModels) {
  LONGHAUL_SKIP_UNLESS_SHARED("models/stories260K/model.safetensors");
  const SafetensorsFile file(test::shared_path("models/stories260K/model.safetensors"));
  const TensorBytes embeddings = file.tensor("model.embed_tokens.weight");
  EXPECT_EQ(embeddings.dtype, DType::kF32);
  EXPECT_THAT(embeddings.shape, testing::ElementsAre(512, 64));
  EXPECT_EQ(embeddings.bytes.size(), 512U * 64 * 4);
}

TEST(Safetensors, RefusesWrongLengthsOfTheHeader) {
  EXPECT_THAT(refusal(""), HasSubstr("the file has 0 bytes"));
  EXPECT_THAT(refusal("1234567"), HasSubstr("the file has 7 bytes"));
  for (const std::uint64_t length :
       {~std::uint64_t{0}, ~std::uint64_t{0} - 7, std::uint64_t{1} << 63, std::uint64_t{100000001},
        std::uint64_t{100000000}, std::uint64_t{3}}) {
    EXPECT_THAT(refusal(safetensors_bytes("{}", "", length)),
                AllOf(HasSubstr("byte 0"), HasSubstr(fmt::format("{} bytes long", length))));
  }
  EXPECT_THAT(refusal(safetensors_bytes("{}", "", 0)), HasSubstr("does not start with '{'"));
  EXPECT_THAT(refusal(" {}", 0), HasSubstr("does not start with '{'"));
  EXPECT_NO_THROW(parse(safetensors_bytes("{}", "")));
}

TEST(Safetensors, RefusesHeadersThatAreNoTensorTable) {
  EXPECT_THAT(refusal("{\"a\":", 0), HasSubstr("header (from byte 8): byte"));
  EXPECT_THAT(refusal("{}x", 0), HasSubstr("byte 3"));
  EXPECT_THAT(refusal(R"({"a":1})", 0), HasSubstr("tensor a: expected an object"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"n":1}})", 0), HasSubstr("__metadata__: \"n\""));
  EXPECT_THAT(refusal(R"({"__metadata__":[]})", 0), HasSubstr("__metadata__"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
                      1),
              HasSubstr("the key \"a\" appears twice"));
  EXPECT_THAT(refusal("{\"\xff\":1}", 0), HasSubstr("header"));
}

TEST(Safetensors, RefusesWrongTensors) {
  const auto entry = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"t":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape,
                       offsets);
  };
  EXPECT_THAT(refusal(entry(R"("F31")", "[1]", "[0,4]"), 4),
              HasSubstr("tensor t.dtype: \"F31\" is not a dtype"));
  EXPECT_THAT(refusal(entry("3", "[1]", "[0,4]"), 4), HasSubstr("tensor t.dtype"));
  EXPECT_THAT(refusal(entry(R"("F32")", "[-1]", "[0,4]"), 4), HasSubstr("tensor t.shape[0]: -1"));
  EXPECT_THAT(refusal(entry(R"("F32")", "[1.0]", "[0,4]"), 4), HasSubstr("tensor t.shape[0]"));
  EXPECT_THAT(refusal(entry(R"("F32")", "4", "[0,4]"), 4), HasSubstr("expected a list"));
  EXPECT_THAT(refusal(entry(R"("F32")", "[4294967296,4294967296,4294967296]", "[0,4]"), 4),
              HasSubstr("overflows"));
  EXPECT_THAT(refusal(entry(R"("I8")", "[2305843009213693952,8]", "[0,0]"), 0),
              HasSubstr("overflows"));
  EXPECT_THAT(refusal(entry(R"("F32")", "[1]", "[0]"), 4), HasSubstr("expected two offsets"));
  EXPECT_THAT(refusal(entry(R"("F32")", "[1]", "[4,0]"), 4), HasSubstr("before the begin"));
  EXPECT_THAT(refusal(entry(R"("F32")", "[2]", "[0,4]"), 4), HasSubstr("F32 need 8"));
  EXPECT_THAT(refusal(entry(R"("F4")", "[3]", "[0,2]"), 2), HasSubstr("whole bytes"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"I8","shape":[1],"data_offsets":[0,1],"x":0}})", 1),
              HasSubstr("\"x\" is not a field"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"I8","shape":[1]}})", 1),
              HasSubstr("tensor t.data_offsets is missing"));
}

TEST(Safetensors, RefusesHolesOverlapsAndWrongEnds) {
  const auto two = [](int begin_b, int end_b) {
    return fmt::format(R"({{"a":{{"dtype":"I8","shape":[4],"data_offsets":[0,4]}},)"
                       R"("b":{{"dtype":"I8","shape":[4],"data_offsets":[{},{}]}}}})",
                       begin_b, end_b);
  };
  EXPECT_NO_THROW(parse(safetensors_bytes(two(4, 8), "12345678")));
  EXPECT_THAT(refusal(two(5, 9), 9), AllOf(HasSubstr("tensor b"), HasSubstr("hole")));
  EXPECT_THAT(refusal(two(3, 7), 7), AllOf(HasSubstr("tensor b"), HasSubstr("overlap")));
  EXPECT_THAT(refusal(two(4, 8), 7), AllOf(HasSubstr("tensor b"), HasSubstr("cut off")));
  EXPECT_THAT(refusal(two(4, 8), 9), HasSubstr("1 bytes follow the last tensor"));
  EXPECT_THAT(refusal("{}", 1), HasSubstr("1 bytes follow the last tensor"));
}

}  // namespace
}  // namespace longhaul
