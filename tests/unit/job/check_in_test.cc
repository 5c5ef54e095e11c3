// Ranks that do not run the same job once answered wrongly with status 0.
#include "tools/job/check_in.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "cluster/comm/in_process.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

HostInfo hosts() {
  HostInfo hosts;
  hosts.hostnames = {"node3", "node7", "node8"};
  return hosts;
}

std::shared_ptr<ModelSource> model_of(std::int64_t n_layers) {
  ModelSpec spec = test::tiny_spec();
  spec.n_layers = n_layers;
  return std::make_shared<ModelSource>(spec, DType::kF32, ModelSource::Load());
}

// What each of three ranks is told, where rank `r` has configs[r] and opens opened[r].
struct Told {
  std::optional<ErrorCode> code;
  std::string message;
};
std::array<Told, 3> check_in_three(const std::array<JobConfig, 3>& configs,
                                   const std::array<OpenModel, 3>& opened) {
  std::array<Told, 3> told;
  run_in_process(3, [&](Communicator& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    try {
      const CheckIn checked = check_in(comm, hosts(), configs[r], opened[r]);
      EXPECT_EQ(checked.instruction_sets.size(), 3U);
    } catch (const Error& error) {
      told[r] = {error.code(), error.what()};
    }
    EXPECT_FALSE(comm.broken());
  });
  return told;
}

const OpenModel kSame = [] { return model_of(2); };

TEST(CheckIn, RanksOfOneJobPass) {
  for (const Told& told : check_in_three({}, {kSame, kSame, kSame})) EXPECT_FALSE(told.code);
  for (const Told& told : check_in_three({}, {})) EXPECT_FALSE(told.code);  // without a model
}

TEST(CheckIn, ARankWithOtherWeightsIsNamedOnAllRanks) {
  const auto told = check_in_three({}, {kSame, [] { return model_of(3); }, kSame});
  for (const Told& one : told) {
    EXPECT_EQ(one.code, ErrorCode::kFailedPrecondition);
    EXPECT_THAT(one.message,
                AllOf(HasSubstr("rank 1 on node7 does not run the same job as rank 0 on node3:"),
                      HasSubstr("model.dimensions: rank 0 has"), Not(HasSubstr("flags."))));
  }
}

TEST(CheckIn, RanksWithOtherFlagsAreNamed) {
  std::array<JobConfig, 3> configs;
  configs[1].flags_given = configs[2].flags_given = JsonObject{{"cache-type-k", "int8"}};
  const auto told = check_in_three(configs, {kSame, kSame, kSame});
  for (const Told& one : told) {
    EXPECT_EQ(one.code, ErrorCode::kFailedPrecondition);
    EXPECT_THAT(one.message,
                AllOf(HasSubstr("(nor do 1 other ranks)"),
                      HasSubstr("flags.cache-type-k: rank 0 has absent, rank 1 has \"int8\"")));
  }
}

TEST(CheckIn, AMissingModelOfOneRankIsNoReasonToRunTheJobAgain) {
  const OpenModel missing = []() -> std::shared_ptr<ModelSource> {
    throw Error(ErrorCode::kCorruptData, "model '/nope': there is no such folder");
  };
  for (const Told& one : check_in_three({}, {kSame, kSame, missing})) {
    EXPECT_EQ(one.code, ErrorCode::kCorruptData);
    EXPECT_EQ(one.message, "rank 2 on node8: model '/nope': there is no such folder");
  }
  for (const Told& one : check_in_three({}, {missing, missing, missing}))
    EXPECT_EQ(one.message, "model '/nope': there is no such folder");
}

TEST(CheckIn, AnotherProgramIsAnotherJob) {
  const Json identity = job_identity({}, nullptr);
  const JsonField program = JsonField(identity, "identity").at("program");
  EXPECT_EQ(program.at("executable_sha256").as_string().size(), 64U);
  Json other = identity;
  auto& members = std::get<JsonObject>(std::get<JsonObject>(other.value()).front().second.value());
  members.front().second = Json("0.1.1");
  EXPECT_THAT(explain_differences(hosts(), 1, identity, other, 0),
              HasSubstr("program.version: rank 0 has \"0.1.0\", rank 1 has \"0.1.1\""));
}

TEST(InstructionSets, AreSaidWhenTheyDiffer) {
  EXPECT_EQ(explain_instruction_sets({}), "");
  EXPECT_EQ(explain_instruction_sets({"avx2", "avx2"}), "");
  EXPECT_EQ(explain_instruction_sets({"avx2", "baseline", "avx2", "avx2", "avx512"}),
            "instruction sets differ: avx2 on ranks 0, 2-3; baseline on rank 1; avx512 on rank 4");
}

}  // namespace
}  // namespace longhaul
