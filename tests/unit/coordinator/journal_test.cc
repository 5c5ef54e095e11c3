#include "coordinator/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/log.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Json manifest(double temperature = 0) {
  return JsonObject{{"fingerprint", JsonObject{{"temperature", temperature}}}};
}

class JournalTest : public testing::Test {
 protected:
  JournalTest() : paths_(journal_paths(folder_.path() / "out.jsonl")) {}

  Journal open(OpenMode mode = OpenMode::kResume, double temperature = 0) {
    return Journal(paths_, manifest(temperature), mode);
  }
  static std::string line(const RequestIdentity& id) {
    return error_line(id, "code", "message");  // both files tell identities in the same way
  }
  std::string results() const { return read_file(paths_.results, 1 << 20); }
  std::string message_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  test::TemporaryFolder folder_;
  JournalPaths paths_;
  const RequestIdentity a_{"a", "hash-a", ""};
  const RequestIdentity b_{"b", "hash-b", "documents"};
  const RequestIdentity c_{"c", "hash-c", ""};
};

TEST_F(JournalTest, NamesItsFilesBesideTheOutput) {
  EXPECT_EQ(paths_.errors.filename(), "out.errors.jsonl");
  EXPECT_EQ(paths_.manifest.filename(), "out.manifest.json");
  EXPECT_EQ(journal_paths("x/results").errors, "x/results.errors.jsonl");
}

TEST_F(JournalTest, KeepsRecordsOfSkippedLinesApart) {
  const std::string first = bad_line_record({.line = 2, .message = "no", .custom_id = "a"});
  const std::string second = bad_line_record({.line = 5, .message = "syntax"});
  const auto errors = [&] { return read_file(paths_.errors, 1 << 20); };
  {
    Journal journal = open();
    EXPECT_EQ(journal.plan({a_, c_}, false).requests.size(), 2U);  // "a" is another line's too
    journal.set_bad_lines({first, second});
    journal.add_result(line(a_));
    journal.add_error(line(c_));
  }
  EXPECT_EQ(errors(), first + second + line(c_));
  {
    Journal journal = open();
    journal.set_bad_lines({first, second});
    EXPECT_EQ(errors(), first + second + line(c_));
    EXPECT_EQ(journal.plan({a_, c_}, true).requests.size(), 1U);  // c again
    EXPECT_EQ(errors(), first + second);
    journal.set_bad_lines({second});
    journal.add_error(line(c_));
  }
  EXPECT_EQ(errors(), second + line(c_));
  open().set_bad_lines({});
  EXPECT_EQ(errors(), line(c_));
}

TEST_F(JournalTest, ContinuesWhereItStopped) {
  {
    Journal journal = open();
    EXPECT_THAT(journal.plan({a_, b_, c_}, false).requests, ElementsAre(0U, 1U, 2U));
    journal.add_result(line(b_));
    journal.add_error(line(c_));
  }
  Journal journal = open();
  const Journal::ToDo todo = journal.plan({a_, b_, c_}, false);
  EXPECT_THAT(todo.requests, ElementsAre(0U));
  EXPECT_EQ(todo.n_done, 1);
  EXPECT_EQ(todo.n_failed, 1);
}

TEST_F(JournalTest, KnowsWhenItBegan) {
  EXPECT_EQ(first_start(paths_, OpenMode::kResume), std::nullopt);
  Json dated = manifest();
  std::get<JsonObject>(dated.value()).emplace_back("created", std::int64_t{1700000000});
  const Journal journal(paths_, dated, OpenMode::kResume);
  EXPECT_EQ(first_start(paths_, OpenMode::kResume), 1700000000);
  EXPECT_EQ(first_start(paths_, OpenMode::kOverwrite), std::nullopt);
}

// A run that was killed here once left the tokens of other settings beside its own manifest.
TEST_F(JournalTest, UnfinishedAnswersGoBeforeAnotherManifestStandsThere) {
  for (const OpenMode mode : {OpenMode::kResume, OpenMode::kOverwrite}) {
    replace_file(paths_.unfinished, "{}\n");
    open(mode).start();
    EXPECT_FALSE(std::filesystem::exists(paths_.unfinished));
    replace_file(paths_.unfinished, "{}\n");
    open();
    EXPECT_TRUE(std::filesystem::exists(paths_.unfinished));
  }
}

TEST_F(JournalTest, RetriesFailedRequestsOnce) {
  {
    Journal journal = open();
    journal.add_error(line(b_));
    journal.add_error(line(c_));
  }
  {
    Journal journal = open();
    EXPECT_THAT(journal.plan({a_, b_}, true).requests, ElementsAre(0U, 1U));
    EXPECT_EQ(read_file(paths_.errors, 1 << 20), line(c_));  // not asked for: it stays
    journal.add_result(line(b_));
  }
  Journal journal = open();
  EXPECT_THAT(journal.plan({a_, b_, c_}, false).requests, ElementsAre(0U));
}

// What memory there was once decided for good which requests had failed.
TEST_F(JournalTest, RequestsThatFailedForWantOfMemoryRunAgain) {
  {
    Journal journal = open();
    journal.add_error(error_line(a_, kOutOfMemoryCode, "1 GiB are missing"));
    journal.add_error(error_line(b_, "context_length_exceeded", "no out_of_memory"));
    journal.add_error(error_line(c_, kOutOfMemoryCode, "1 GiB are missing"));
  }
  Journal journal = open();
  const Journal::ToDo todo = journal.plan({a_, b_}, false);
  EXPECT_THAT(todo.requests, ElementsAre(0U));
  EXPECT_EQ(todo.n_failed, 1);
  EXPECT_EQ(todo.n_others, 1);
  const std::string left = read_file(paths_.errors, 1 << 20);
  EXPECT_THAT(left, AllOf(HasSubstr("hash-b"), HasSubstr("hash-c")));
  EXPECT_THAT(left, testing::Not(HasSubstr("hash-a")));
}

TEST_F(JournalTest, CountsLinesOfRequestsThatAreNotAskedForAnyMore) {
  {
    Journal journal = open();
    journal.add_result(line(a_));
    journal.add_result(line(b_));
    journal.add_error(line(c_));
    journal.set_bad_lines({bad_line_record({.line = 2, .message = "no"})});
  }
  EXPECT_EQ(open().plan({a_, b_, c_}, false).n_others, 0);
  const Journal::ToDo todo = open().plan({b_, {"d", "hash-d", ""}}, false);
  EXPECT_EQ(todo.n_others, 2);
  EXPECT_EQ(todo.n_done, 1);
}

TEST_F(JournalTest, CutsATornLastLine) {
  const std::string whole = line(a_);
  for (const std::string& torn : {line(b_).substr(0, 30), line(b_).substr(0, line(b_).size() - 1),
                                  std::string("\0\0\0\n", 4)}) {
    {
      Journal journal = open(OpenMode::kOverwrite);
      journal.start();
      journal.add_result(whole);
      journal.add_result(torn);
    }
    Journal journal = open();
    EXPECT_EQ(results(), whole);
    EXPECT_THAT(journal.plan({a_, b_}, false).requests, ElementsAre(1U));
  }
}

TEST_F(JournalTest, EveryPrefixOfTheFileCanBeContinued) {
  const std::string text = line(a_) + line(b_) + line(c_);
  { open(); }
  set_log_sink([](std::string_view) {});  // a warning for each torn line
  for (std::size_t n = 0; n <= text.size(); n += 3) {
    replace_file(paths_.results, text.substr(0, n));
    Journal journal = open();
    const auto n_whole =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n), '\n');
    EXPECT_EQ(journal.plan({a_, b_, c_}, false).n_done, n_whole) << n;
  }
  set_log_sink(nullptr);
}

TEST_F(JournalTest, RefusesBrokenLinesInTheMiddle) {
  { open().add_result(line(a_)); }
  replace_file(paths_.results, "garbage\n" + line(a_));
  EXPECT_THAT(message_of([&] { open(); }), HasSubstr("out.jsonl:1"));
  replace_file(paths_.results, line(a_) + line(a_));
  EXPECT_THAT(message_of([&] { open(); }), HasSubstr("out.jsonl:2: its custom_id has a line"));
}

// It was once called torn, and cut away.
TEST_F(JournalTest, RefusesAForeignLineAtTheEnd) {
  { open().add_result(line(a_)); }
  const std::string text = line(a_) + "{\"somebody\":\"else's\"}\n";
  replace_file(paths_.results, text);
  EXPECT_THAT(message_of([&] { open(); }), HasSubstr("out.jsonl:2"));
  EXPECT_EQ(results(), text);
}

TEST_F(JournalTest, AnEditedAnswerIsNoticed) {
  { open().add_result(line(a_)); }
  std::string edited = line(a_);
  edited.replace(edited.find("message\":\"m"), 11, "message\":\"M");
  replace_file(paths_.results, edited + line(b_));
  EXPECT_THAT(message_of([&] { open(); }),
              HasSubstr("out.jsonl:1: this line (\"a\") was changed after it was written"));
  Journal journal(paths_, manifest(), OpenMode::kResume, EditedLines::kAccept);
  EXPECT_EQ(journal.plan({a_, b_}, false).n_done, 2);
  journal.verify();
}

TEST_F(JournalTest, LinesOfAReleaseWithoutChecksumsAreTaken) {
  { open(); }
  std::string old = line(a_);
  const std::size_t at = old.find(",\"line_sha256\"");
  old.erase(at, old.find('}', at) - at);
  replace_file(paths_.results, old);
  set_log_sink([](std::string_view) {});
  EXPECT_EQ(open().plan({a_}, false).n_done, 1);
  set_log_sink(nullptr);
}

// A run once ended in "30 done" although its results were gone or overwritten.
TEST_F(JournalTest, ResultsThatVanishDuringTheRunAreNoSuccess) {
  {
    Journal journal = open();
    journal.add_result(line(a_));
    journal.add_error(line(b_));
    journal.verify();
    std::string other = results();
    other[5] ^= 1;
    std::fstream(paths_.results, std::ios::in | std::ios::out) << other;  // the same file and size
    EXPECT_THAT(message_of([&] { journal.verify(); }), HasSubstr("does not hold what was written"));
    std::filesystem::remove(paths_.results);
    EXPECT_THAT(message_of([&] { journal.verify(); }), HasSubstr("it is gone"));
    EXPECT_THAT(message_of([&] { journal.add_result(line(c_)); }), HasSubstr("it is gone"));
  }
  std::filesystem::remove(paths_.errors);
  Journal journal = open();
  journal.add_result(line(a_));
  std::filesystem::rename(paths_.results, folder_.path() / "elsewhere");
  EXPECT_THAT(message_of([&] { journal.add_result(line(c_)); }), HasSubstr("it is gone"));
}

TEST_F(JournalTest, ARefusedRunLeavesNoEmptyFiles) {
  open().remove_if_empty();
  EXPECT_FALSE(std::filesystem::exists(paths_.results));
  EXPECT_FALSE(std::filesystem::exists(paths_.manifest));
  { open().add_result(line(a_)); }
  open().remove_if_empty();
  EXPECT_EQ(results(), line(a_));
}

TEST_F(JournalTest, RefusesOtherSettingsWithTheDifference) {
  { open().add_result(line(a_)); }
  EXPECT_THAT(message_of([&] { open(OpenMode::kResume, 0.5); }),
              HasSubstr("temperature: was 0, now 0.5"));
  { open(OpenMode::kOverwrite, 0.5); }
  EXPECT_EQ(results(), line(a_)) << "a run that is refused before it starts loses nothing";
  open(OpenMode::kOverwrite, 0.5).start();
  EXPECT_EQ(results(), "");
  open(OpenMode::kResume, 0.5);
}

TEST_F(JournalTest, ResultsOfTwoSettingsWereMixedWhereNamesDifferInTheirExtension) {
  open().add_result(line(a_));
  const JournalPaths other = journal_paths(folder_.path() / "out.json");
  ASSERT_EQ(other.manifest, paths_.manifest);
  for (const OpenMode mode : {OpenMode::kResume, OpenMode::kOverwrite}) {
    EXPECT_THAT(
        message_of([&] { Journal(other, manifest(1), mode); }),
        AllOf(HasSubstr("out.json and out.jsonl would share"), HasSubstr("choose another output")));
    EXPECT_FALSE(std::filesystem::exists(other.results));
  }
  EXPECT_EQ(open().plan({a_, b_}, false).n_done, 1);
}

TEST_F(JournalTest, FilesThatGotAnotherNameTogetherGoOn) {
  open().add_result(line(a_));
  const JournalPaths copied = journal_paths(folder_.path() / "copy.jsonl");
  const JournalPaths renamed = journal_paths(folder_.path() / "new.jsonl");
  std::filesystem::copy(paths_.results, copied.results);
  std::filesystem::copy(paths_.manifest, copied.manifest);
  EXPECT_EQ(Journal(copied, manifest(), OpenMode::kResume).plan({a_, b_}, false).n_done, 1);
  std::filesystem::rename(paths_.results, renamed.results);
  std::filesystem::rename(paths_.manifest, renamed.manifest);
  EXPECT_EQ(Journal(renamed, manifest(), OpenMode::kResume).plan({a_, b_}, false).n_done, 1);
  EXPECT_THAT(read_file(renamed.manifest, 1 << 20), HasSubstr("\"new.jsonl\""));
}

TEST_F(JournalTest, AManifestOfAReleaseThatNamedNoResultsIsTaken) {
  open().add_result(line(a_));
  replace_file(paths_.manifest, to_text(manifest()) + "\n");
  EXPECT_EQ(open().plan({a_, b_}, false).n_done, 1);
  EXPECT_THAT(read_file(paths_.manifest, 1 << 20), HasSubstr("\"out.jsonl\""));
}

TEST_F(JournalTest, ARefusedRunLeftResultsThatWereNotThere) {
  open().add_result(line(a_));
  std::filesystem::remove(paths_.results);
  EXPECT_THAT(message_of([&] { open(OpenMode::kResume, 1); }), HasSubstr("other settings"));
  EXPECT_FALSE(std::filesystem::exists(paths_.results));
}

TEST_F(JournalTest, RefusesAFileThatIsNotItsOwn) {
  replace_file(paths_.results, "someone's data\n");
  EXPECT_THAT(message_of([&] { open(); }), HasSubstr("there is no"));
  EXPECT_EQ(results(), "someone's data\n");
}

TEST_F(JournalTest, RefusesChangedRequests) {
  { open().add_result(line(b_)); }
  Journal journal = open();
  EXPECT_THAT(message_of([&] {
                journal.plan({{"b", "other", "documents"}}, false);
              }),
              HasSubstr("\"b\" (its body changed)"));
  EXPECT_THAT(message_of([&] {
                journal.plan({{"b", "hash-b", "other"}}, false);
              }),
              HasSubstr("\"b\" (the content of its documents changed)"));
}

TEST_F(JournalTest, ExcludesASecondWriter) {
  Journal journal = open();
  EXPECT_THAT(message_of([&] { open(); }), HasSubstr("is being written by another process"));
}

}  // namespace
}  // namespace longhaul
