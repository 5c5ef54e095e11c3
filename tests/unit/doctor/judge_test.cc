// A healthy cluster passes; each of these broken ones has its fault named.
#include "tools/doctor/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "build_info.h"
#include "tests/support/paths.h"
#include "tools/doctor/links.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Four ranks, two on each of two hosts.
std::vector<RankFacts> healthy() {
  RankFacts facts;
  facts.program = JsonObject{{"version", "1.2.3"}};
  facts.mpi = "Open MPI v4.1.4";
  facts.n_tasks = 4;
  facts.instruction_set = "avx2";
  facts.numa_nodes = {0};
  facts.free_memory = 200 * kGiB;
  facts.n_host_cores = 8;
  facts.host_memory = 256 * kGiB;
  facts.free_shared_memory = 100 * kGiB;
  facts.n_descriptors = 65536;
  facts.scratch_mb_per_s = 900;
  facts.sees_scratch_of_0 = true;
  facts.why_no_gpus = "this build is without CUDA";
  facts.why_no_nccl = "this build is without NCCL";
  facts.model = JsonObject{{"layers", 32}};
  std::vector<RankFacts> ranks(4, facts);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].host = i < 2 ? "node1" : "node2";
    ranks[i].cores =
        i % 2 == 0 ? std::vector<std::int64_t>{0, 1, 2, 3} : std::vector<std::int64_t>{4, 5, 6, 7};
  }
  return ranks;
}

const Finding& named(const std::vector<Finding>& findings, const std::string& check) {
  for (const Finding& finding : findings)
    if (finding.check == check) return finding;
  static const Finding kNone{Health::kPass, "none", "", "", ""};
  return kNone;
}

TEST(Doctor, AHealthyClusterPasses) {
  const auto findings = judge(healthy());
  EXPECT_EQ(worst_of(findings), Health::kPass) << to_text(findings);
  EXPECT_THAT(to_text(findings), HasSubstr("12 passed, 0 warned, 0 failed\n"));
}

struct Fault {
  const char* name;
  const char* check;
  Health health;
  std::function<void(std::vector<RankFacts>&)> make;
  const char* said;
};

class BrokenCluster : public testing::TestWithParam<Fault> {};

TEST_P(BrokenCluster, HasItsFaultNamed) {
  auto ranks = healthy();
  GetParam().make(ranks);
  const auto findings = judge(ranks);
  const Finding& finding = named(findings, GetParam().check);
  EXPECT_EQ(finding.health, GetParam().health) << to_text(findings);
  EXPECT_THAT(finding.text, HasSubstr(GetParam().said));
  EXPECT_FALSE(finding.mend.empty());
  for (const Finding& other : findings) {
    if (other.check == finding.check) continue;
    EXPECT_EQ(other.health, Health::kPass) << other.check;
  }
}

const std::vector<Fault> kFaults = {
    {"AnotherProgram", "program", Health::kFail,
     [](auto& ranks) {
       ranks[3].program = JsonObject{{"version", "1.2.2"}};
     },
     "node2 runs another program"},
    {"AnotherMpi", "program", Health::kFail, [](auto& ranks) { ranks[2].mpi = "MPICH 4.1"; },
     "node2"},
    {"EachTaskAlone", "launcher", Health::kFail, [](auto& ranks) { ranks.resize(1); },
     "Slurm started 4 tasks"},
    {"OtherCpus", "CPUs", Health::kWarn,
     [](auto& ranks) { ranks[2].instruction_set = ranks[3].instruction_set = "avx512"; },
     "avx512 on node2"},
    {"BoundToOneCore", "cores", Health::kWarn, [](auto& ranks) { ranks[2].cores = {0}; },
     "ranks on node2 are bound to one core"},
    {"AloneOnOneOfManyCores", "cores", Health::kWarn,
     [](auto& ranks) {
       ranks.pop_back();
       ranks[2].cores = {0};
     },
     "ranks on node2 are bound to one core"},
    {"MoreRanksThanCores", "cores", Health::kWarn,
     [](auto& ranks) { ranks[2].cores = ranks[3].cores = {0}; }, "more ranks than cores on node2"},
    {"SeveralNumaNodes", "cores", Health::kWarn,
     [](auto& ranks) {
       ranks[0].numa_nodes = {0, 1};
     },
     "node1 span"},
    {"NoMemory", "memory", Health::kFail, [](auto& ranks) { ranks[3].free_memory = kGiB / 2; },
     "512 MiB on node2"},
    {"LimitedMemory", "memory", Health::kWarn,
     [](auto& ranks) { ranks[3].free_memory = 16 * kGiB; }, "16.0 GiB on node2"},
    {"SmallSharedMemory", "/dev/shm", Health::kWarn,
     [](auto& ranks) { ranks[2].free_shared_memory = ranks[3].free_shared_memory = 64 << 20; },
     "on node2"},
    {"FewDescriptors", "limits", Health::kFail, [](auto& ranks) { ranks[1].n_descriptors = 128; },
     "on node1 (128)"},
    {"UnlimitedStack", "limits", Health::kWarn,
     [](auto& ranks) { ranks[1].unlimited_stack = true; }, "on node1"},
    {"FullDisk", "scratch", Health::kFail,
     [](auto& ranks) { ranks[2].scratch_error = "cannot write x: no space"; },
     "on node2: cannot write"},
    {"OwnDisks", "scratch", Health::kWarn, [](auto& ranks) { ranks[2].sees_scratch_of_0 = false; },
     "node2 and node1 do not share it"},
    {"SlowDisk", "scratch", Health::kWarn, [](auto& ranks) { ranks[2].scratch_mb_per_s = 4; },
     "4 MB/s on node2"},
    {"NoHdf5", "HDF5", Health::kFail,
     [](auto& ranks) { ranks[2].hdf5_error = "x.h5: its checksum is wrong"; },
     "on node2: x.h5: its checksum"},
    {"BuildWithoutHdf5", "HDF5", Health::kWarn,
     [](auto& ranks) {
       for (auto& rank : ranks) {
         rank.has_hdf5 = false;
         rank.hdf5_error = "this build has no HDF5";
       }
     },
     "none: this build"},
    {"GpusThatDoNotAnswer", "GPUs", Health::kFail,
     [](auto& ranks) { ranks[2].gpu_error = "unspecified launch failure"; },
     "on node2: unspecified"},
    {"GpusOnSomeHosts", "GPUs", Health::kWarn,
     [](auto& ranks) {
       for (std::size_t i : {0, 1}) {
         ranks[i].gpus = {"NVIDIA H200, 139 GiB", "NVIDIA H200, 139 GiB"};
         ranks[i].nccl = "2.18.5";
       }
     },
     "2 x NVIDIA H200, 139 GiB on node1\nnone: this build is without CUDA on node2"},
    {"GpusWithoutNccl", "NCCL", Health::kWarn,
     [](auto& ranks) {
       for (auto& rank : ranks) rank.gpus = {"NVIDIA H200, 139 GiB"};
       for (std::size_t i : {0, 1}) ranks[i].nccl = "2.18.5";
     },
     "none on node2: this build is without NCCL"},
    {"NoModel", "model", Health::kFail,
     [](auto& ranks) {
       ranks[2].model_error = "models/x is missing";
       ranks[2].model = nullptr;
     },
     "on node2: models/x"},
    {"AnotherModel", "model", Health::kFail,
     [](auto& ranks) {
       ranks[3].model = JsonObject{{"layers", 16}};
     },
     "node2 has another one than node1: layers"},
    {"AnotherTokenizer", "model", Health::kFail,
     [](auto& ranks) {
       for (auto& rank : ranks) rank.model = JsonObject{{"tokenizer_sha256", "a"}};
       ranks[2].model = JsonObject{{"tokenizer_sha256", "b"}};
     },
     "node2 has another one than node1: tokenizer.json"},
    {"AnotherShard", "model", Health::kFail,
     [](auto& ranks) {
       for (auto& rank : ranks)
         rank.model = JsonObject{
             {"weights", JsonObject{{"a.safetensors", JsonObject{{"sampled_sha256", "a"}}}}}};
       ranks[2].model = JsonObject{
           {"weights", JsonObject{{"a.safetensors", JsonObject{{"sampled_sha256", "b"}}}}}};
     },
     "node2 has another one than node1: a.safetensors"},
};
INSTANTIATE_TEST_SUITE_P(Of, BrokenCluster, testing::ValuesIn(kFaults),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Doctor, JudgesLinksAndClocks) {
  const std::vector<std::string> hosts = {"a", "b", "c"};
  const LinkFact good{0, 1, 50, 1.2, 0.001};
  auto findings = judge_links({good, {1, 2, 50, 1.1, -0.2}}, hosts);
  EXPECT_EQ(worst_of(findings), Health::kPass) << to_text(findings);
  EXPECT_THAT(named(findings, "links").text,
              HasSubstr("a - b  1.2 GB/s, 0.05 ms\nb - c  1.1 GB/s"));
  findings = judge_links({good, {1, 2, 50, 0.11, 0}}, hosts);
  EXPECT_EQ(named(findings, "links").health, Health::kWarn) << "one far slower than another";
  findings = judge_links({{0, 1, 300, 0.012, 0}}, hosts);
  EXPECT_EQ(named(findings, "links").health, Health::kWarn) << "100 Mbit/s";
  findings = judge_links({good, {1, 2, 50, 1.1, -70}}, hosts);
  EXPECT_EQ(named(findings, "clocks").health, Health::kWarn);
  EXPECT_THAT(named(findings, "clocks").text, HasSubstr("b and c are 70 s apart"));
}

TEST(Doctor, FactsTravelAsJson) {
  const RankFacts facts = healthy()[3];
  EXPECT_EQ(to_text(to_json(facts_from(to_json(facts)))), to_text(to_json(facts)));
}

TEST(Doctor, TriesADisk) {
  const test::TemporaryFolder folder;
  RankFacts facts;
  try_scratch(folder.path().string(), 0, facts);
  EXPECT_EQ(facts.scratch_error, "");
  EXPECT_GT(facts.scratch_mb_per_s, 0);
  EXPECT_EQ(facts.has_hdf5, build_info::kHasHdf5);
  EXPECT_EQ(facts.hdf5_error.empty(), build_info::kHasHdf5) << facts.hdf5_error;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "nothing is left behind";
  try_scratch((folder.path() / "missing").string(), 0, facts);
  EXPECT_THAT(facts.scratch_error, HasSubstr("cannot create"));
  EXPECT_FALSE(facts.hdf5_error.empty());
}

TEST(Doctor, SaysWhatThisProcessHas) {
  const RankFacts facts = facts_of_this_rank();
  EXPECT_NE(facts.gpus.empty(), facts.why_no_gpus.empty() && facts.gpu_error.empty());
  EXPECT_NE(facts.nccl.empty(), facts.why_no_nccl.empty());
  EXPECT_EQ(facts.cores.empty(), false);
}

TEST(Doctor, FitsATerminal) {
  std::istringstream lines(to_text(
      {{Health::kWarn, "cores",
        std::string(100, 'x') + " and words that go on for longer than a line has room for them",
        "reasons that are given at some length, so that they need two lines", "a remedy"}}));
  std::size_t n_long = 0;
  for (std::string line; std::getline(lines, line);) n_long += line.size() > 80 ? 1 : 0;
  EXPECT_EQ(n_long, 1U) << "only what is one word";
}

}  // namespace
}  // namespace longhaul
