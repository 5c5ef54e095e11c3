// `longhaul plan` as the user calls it: texts, files and exit statuses.
#include "tools/plan_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/file.h"
#include "partition/check_plan.h"
#include "partition/plan_json.h"
#include "tests/support/paths.h"
#include "tools/job/exit_status.h"

namespace longhaul {
namespace {

using test::example_path;
using test::source_path;
using test::TemporaryFolder;
using testing::HasSubstr;

struct Outcome {
  int status = 0;
  std::string text;
};

Outcome call(const std::string& arguments) {
  CLI::App program("test");
  const Command command = add_plan_command(program);
  program.parse("plan " + arguments);
  testing::internal::CaptureStdout();
  Outcome outcome;
  try {
    outcome.status = command.run();
    std::fflush(stdout);
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  outcome.text = testing::internal::GetCapturedStdout();
  return outcome;
}

std::string needle() { return example_path("model").string(); }

TEST(PlanCommand, PlansAndWritesJson) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "plan.json").string();
  const Outcome outcome = call("-m " + needle() +
                               " --ranks 3 --memory 1G --document-tokens 100000 --replicas 1 "
                               "--head-profile " +
                               example_path("profile").string() + " --json " + file);
  EXPECT_EQ(outcome.status, kExitDone) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("3 ranks in all"));
  const std::string text = read_file(file, 1 << 20);
  const Json json = parse_json(text, file);
  const Plan plan = plan_from_json(json, file);
  EXPECT_EQ(plan.replicas[0].stages[0].ring.size(), 3U);
  EXPECT_THAT(outcome.text, HasSubstr(plan_hash(plan)));
}

TEST(PlanCommand, NeedsNoWeights) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(example_path("model/config.json"), folder.path() / "config.json");
  const Outcome outcome = call("-m " + folder.path().string() + " --cluster " +
                               source_path("tests/unit/partition/clusters/lopsided.toml").string());
  EXPECT_EQ(outcome.status, kExitDone) << outcome.text;
}

TEST(PlanCommand, RefusesWhatDoesNotFit) {
  const Outcome outcome = call("-m " + needle() + " --ranks 2 --memory 512M --json -");
  EXPECT_EQ(outcome.status, kExitDoesNotFit);
  const Json json = parse_json(outcome.text, "stdout");
  EXPECT_GT(JsonField(json, "stdout").at("missing_bytes").as_integer(0, 1LL << 40), 0);
  const Outcome text = call("-m " + needle() + " --ranks 2 --memory 512M");
  EXPECT_THAT(text.text, HasSubstr("It does not fit"));
  EXPECT_THAT(text.text, HasSubstr("documents of up to"));
}

std::string refusal_of_plan(const std::string& arguments) {
  try {
    call("--shape llama-3.1-8b " + arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Under mpirun the ranks that there are were planned, whatever --ranks said.
TEST(PlanCommand, RanksThatAreDescribedNeedMemory) {
  for (const char* flag : {"--ranks", "--ranks-per-host"}) {
    EXPECT_THAT(refusal_of_plan(flag + std::string(" 8")),
                HasSubstr(flag + std::string(" is for equal ranks")));
  }
}

// Files that were asked for were not written, and flags had no effect.
TEST(PlanCommand, RefusesWhatIdentifyDoesNotTake) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "plan.json").string();
  const std::string ranks = "--ranks 4 --memory 32G ";
  for (const std::string& more : {"--json " + file, std::string("--document-tokens 4K"),
                                  std::string("--request-tokens 64")}) {
    EXPECT_THAT(refusal_of_plan(ranks + "--identify-tokens 32000 " + more),
                HasSubstr("with --identify-tokens none is made"))
        << more;
  }
  for (const char* more : {"--identify-answer 50", "--identify-method echo"})
    EXPECT_THAT(refusal_of_plan(ranks + more), HasSubstr("give --identify-tokens too")) << more;
  EXPECT_EQ(refusal_of_plan(ranks + "--identify-tokens 32000 --identify-answer 50"), "");
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(PlanCommand, SaysWhatIsMissing) {
  EXPECT_THROW(call("-m " + needle()), Error);
  EXPECT_THROW(call("-m " + needle() + " --ranks 2 --memory much"), Error);
  EXPECT_THROW(call("-m " + needle() + " --memory 1G --retrieval-ratio 0.5"), Error);
  EXPECT_THROW(call("-m " + needle() + " --memory 1G --cluster x.toml"), CLI::ParseError);
  EXPECT_THROW(call("-m " + needle() + " --cluster /no/such/file.toml"), Error);
}

}  // namespace
}  // namespace longhaul
