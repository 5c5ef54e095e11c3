// Documents that are no text, that are endless, or that change after they were looked at.
#include "coordinator/document_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"
#include "coordinator/documents.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

TEST(WhyNoText, TextIsText) {
  for (const std::string& text :
       {""s, "plain"s, "Gr\xc3\xbc\xc3\x9f Gott"s, "\xef\xbb\xbfwith a mark"s, "tab\tand\0zero"s,
        "\xf0\x9f\x98\x80"s, "%PD is no PDF"s})
    EXPECT_EQ(why_no_text(text), std::nullopt) << text;
}

TEST(WhyNoText, APdfIsNotAnsweredAsText) {
  const auto why = [](const std::string& bytes) { return why_no_text(bytes).value_or("text"); };
  EXPECT_THAT(why("%PDF-1.7\n"s), HasSubstr("a PDF file"));
  EXPECT_THAT(why("\x1f\x8b\x08\0"s), HasSubstr("gzip"));
  EXPECT_THAT(why("PK\x03\x04..."s), HasSubstr("office document"));
  EXPECT_THAT(why("\xff\xfeH\0i\0"s), HasSubstr("iconv -f UTF-16"));
  EXPECT_THAT(why("H\0e\0l\0l\0o\0 \0y\0o\0u\0"s), HasSubstr("UTF-16 text without"));
  EXPECT_THAT(why("caf\xe9 au lait"s), HasSubstr("invalid UTF-8 at byte 3 (0xE9)"));
  EXPECT_THAT(why("cut off \xc3"s), HasSubstr("invalid UTF-8 at byte 8 (0xC3)"));
}

class CheckDocuments : public testing::Test {
 protected:
  static Request request(const fs::path& document) {
    Request request;
    request.line = 1;
    request.prompts = {std::string("What?")};
    request.documents = {{.path = document, .sha256 = {}}};
    return request;
  }
  CheckedDocuments check(const fs::path& document, const TextLimits& limits = {}) {
    return check_documents({request(document)}, folder_.path(), limits);
  }
  std::string problem(const fs::path& document, const TextLimits& limits = {}) {
    const CheckedDocuments checked = check(document, limits);
    return checked.problems.empty() ? "" : checked.problems.front().message;
  }
  test::TemporaryFolder folder_;
};

TEST_F(CheckDocuments, RefuseWhatIsNoTextUnlessToldOtherwise) {
  replace_file(folder_.path() / "a.pdf", "%PDF-1.7\n\xff\xfe");
  EXPECT_THAT(problem("a.pdf"), HasSubstr("looks like a PDF file; extract its text first"));
  EXPECT_THAT(problem("a.pdf"), HasSubstr("--lossy-text"));
  EXPECT_EQ(problem("a.pdf", {.lossy = true}), "");
}

TEST_F(CheckDocuments, WarnOfAnEmptyOne) {
  replace_file(folder_.path() / "empty.txt", "");
  const CheckedDocuments checked = check("empty.txt");
  EXPECT_TRUE(checked.problems.empty());
  EXPECT_THAT(checked.warnings,
              ElementsAre(Field(&Problem::message, HasSubstr("empty.txt is empty"))));
}

TEST_F(CheckDocuments, WarnOfAFileThatTheSystemWritesWhileItIsRead) {
  const CheckedDocuments checked = check("/proc/self/status");
  EXPECT_TRUE(checked.problems.empty());
  EXPECT_THAT(checked.warnings,
              ElementsAre(Field(&Problem::message, HasSubstr("though its size is said to be 0"))));
}

TEST_F(CheckDocuments, NeverWaitForAPipeOrReadAnEndlessFile) {
  ASSERT_EQ(::mkfifo((folder_.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(problem("pipe"), HasSubstr("it is a pipe, not a regular file"));
  EXPECT_THAT(problem("/dev/zero"), HasSubstr("it is a device"));
  EXPECT_THAT(problem("."), HasSubstr("it is a folder"));
  replace_file(folder_.path() / "sparse", "x");
  fs::resize_file(folder_.path() / "sparse", std::uintmax_t{40} << 30);
  EXPECT_THAT(problem("sparse"), HasSubstr("has 42949672960 bytes; at most 1073741824"));
}

TEST_F(CheckDocuments, EndWhenAStopIsAskedFor) {
  replace_file(folder_.path() / "a.txt", "text");
  EXPECT_THROW(check("a.txt", {.stop_requested = [] { return true; }}), Error);
}

TEST_F(CheckDocuments, TellGroupsWhatWasHashed) {
  replace_file(folder_.path() / "a.txt", "text");
  const std::vector<Request> requests = {request("a.txt")};
  const CheckedDocuments checked = check_documents(requests, folder_.path());
  const auto groups = group_by_documents(requests, {0}, checked, folder_.path());
  EXPECT_EQ(groups.front().documents.front().sha256, sha256_of("text"));
}

TEST_F(CheckDocuments, TheSameTextUnderTwoNamesIsOneDocument) {
  replace_file(folder_.path() / "a.txt", "text");
  replace_file(folder_.path() / "b.txt", "text");
  replace_file(folder_.path() / "c.txt", "another text");
  std::vector<Request> requests = {request("a.txt"), request("c.txt"), request("b.txt"),
                                   request("")};
  requests.back().documents.front() = {.path = {}, .sha256 = {}, .text = "text"};
  const CheckedDocuments checked = check_documents(requests, folder_.path());
  const auto groups = group_by_documents(requests, {0, 1, 2, 3}, checked, folder_.path());
  EXPECT_THAT(groups, ElementsAre(Field(&RequestGroup::requests, ElementsAre(0, 2, 3)),
                                  Field(&RequestGroup::requests, ElementsAre(1))));
}

}  // namespace
}  // namespace longhaul
