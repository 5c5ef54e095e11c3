// A job as a command sees it: one rank or several, the same code and the same answers.
#include "kernels/cpu/threads.h"
#include "tools/job/job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "base/error.h"
#include "kernels/cpu/parallel.h"
#include "tests/support/process_threads.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul {
namespace {

using test::done;

constexpr auto kLong = std::chrono::minutes(5);
constexpr std::int64_t kChunk = 64;

StepDone step(Link& link, StepCommand command) {
  link.send(std::move(command));
  return done(link.receive(deadline_in(kLong)));
}

// Reads a text of 200 tokens in chunks and generates 8.
std::vector<std::int32_t> generate(Link& link) {
  const SequenceId sequence{1};
  step(link, OpenSequence{.sequence = sequence, .sampling = {}});
  StepDone last;
  for (std::int32_t begin = 0; begin < 200; begin += kChunk) {
    const std::int32_t end = std::min<std::int32_t>(200, begin + kChunk);
    PrefillChunk chunk{.sequence = sequence, .tokens = {}};
    for (std::int32_t i = begin; i < end; ++i) chunk.tokens.push_back(i * 31 % 97);
    if (end == 200) chunk.after = AfterPrefill::kSample;
    last = step(link, chunk);
  }
  std::vector<std::int32_t> tokens = {last.picked.at(0).token};
  for (int i = 0; i < 7; ++i) {
    last = step(link, DecodeBatch{.rows = {{.sequence = sequence, .token = tokens.back()}}});
    tokens.push_back(last.picked.at(0).token);
  }
  step(link, DropSequences{.sequences = {sequence}});
  return tokens;
}

class RunJob : public testing::Test {
 protected:
  RunJob()
      : model_(test::tiny_spec(), DType::kF32, [this](Extent layers, const DeviceId& device) {
          ++n_loads_;
          EXPECT_EQ(layers, (Extent{0, test::tiny_spec().n_layers}));
          return Weights::synthetic(test::tiny_spec(), DType::kF32, 7, device);
        }) {
    config_.n_threads = 1;
    config_.chunk_len = kChunk;
  }

  // In one ring, whatever is predicted to be faster.
  void use_ranks(std::int64_t n_ranks) {
    config_.n_ranks = n_ranks;
    config_.n_stages = 1;
    config_.n_replicas = 1;
  }

  JobWork work(const HeadRoles& roles) {
    JobWork work;
    work.model = &model_;
    work.heads = duo_attention_heads(test::tiny_spec(), roles);
    work.workload.document_tokens = 256;
    work.workload.tail_tokens = 64;
    work.workload.chunk_len = kChunk;
    work.workload.block_size = 16;
    work.workload.k_type = KvType::kF32;
    work.workload.v_type = KvType::kF32;
    work.workload.weight_dtype = DType::kF32;
    return work;
  }
  static HeadRoles dense() {
    const ModelSpec spec = test::tiny_spec();
    return HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  }
  static HeadRoles streaming() {
    HeadRoles roles = dense();
    for (std::size_t i = 0; i < roles.roles.size(); i += 2) roles.roles[i] = HeadRole::kStreaming;
    roles.sink = 4;
    roles.recent = 16;
    return roles;
  }
  int lead(const std::function<int(JobRanks&)>& lead) {
    return run_job(
        config_, [] { return std::shared_ptr<ModelSource>(); }, lead);
  }
  // Answers of the two works after each other, in one job.
  std::vector<std::vector<std::int32_t>> answers() {
    std::vector<std::vector<std::int32_t>> answers;
    lead([&](JobRanks& ranks) {
      for (const HeadRoles& roles : {dense(), streaming()}) {
        ranks.run(work(roles),
                  [&](JobRun& run) { answers.push_back(generate(*run.replicas.at(0))); });
      }
      return 0;
    });
    return answers;
  }

  std::atomic<int> n_loads_ = 0;
  ModelSource model_;
  JobConfig config_;
};

TEST_F(RunJob, OneRankAloneHasNoPlan) {
  const int status = lead([&](JobRanks& ranks) {
    EXPECT_EQ(ranks.n_ranks, 1);
    EXPECT_FALSE(ranks.plans);
    ranks.run(work(dense()), [&](JobRun& run) {
      EXPECT_EQ(run.job, nullptr);
      EXPECT_EQ(run.replicas.size(), 1U);
      EXPECT_EQ(run.hosts.size(), 1U);
    });
    return 42;
  });
  EXPECT_EQ(status, 42);
}

// OpenMP puts threads that wait to sleep sooner where a process has more of them than cores, which
// cost a fifth of generation.
TEST_F(RunJob, ThreadsThatHelpedToLoadEndBeforeTheWork) {
  if (!test::kKernelHelpersEnd) GTEST_SKIP() << "LLVM's OpenMP keeps helpers";
  test::ThreadIds helpers;
  ModelSource model(test::tiny_spec(), DType::kF32, [&](Extent, const DeviceId& device) {
    const test::ThreadIds before = test::process_threads();
    set_kernel_threads(3);
    parallel_for(64, [](std::int64_t) {});
    set_kernel_threads(0);
    helpers = test::threads_since(before);
    return Weights::synthetic(test::tiny_spec(), DType::kF32, 7, device);
  });
  lead([&](JobRanks& ranks) {
    JobWork one = work(dense());
    one.model = &model;
    ranks.run(one, [&](JobRun& run) {
      generate(*run.replicas.at(0));
      EXPECT_EQ(helpers.size(), 2U);
      EXPECT_TRUE(test::only_stay(helpers, 0));
    });
    return 0;
  });
}

TEST_F(RunJob, AWorkerBesideADraftModelLeavesItsCoresWhileItWaits) {
  if (!test::kKernelHelpersEnd) GTEST_SKIP() << "LLVM's OpenMP keeps helpers";
#ifdef LONGHAUL_SANITIZES_THREADS
  GTEST_SKIP() << "OpenMP's own synchronisation is invisible to ThreadSanitizer";
#endif
  config_.n_threads = 3;
  for (const char* draft_model : {"", "another"}) {
    config_.draft_model = draft_model;
    const std::size_t n_helpers = config_.draft_model.empty() ? 2 : 0;
    lead([&](JobRanks& ranks) {
      const test::ThreadIds before = test::process_threads();
      ranks.run(work(dense()), [&](JobRun& run) {
        generate(*run.replicas.at(0));
        const test::ThreadIds of_worker = test::threads_since(before);
        EXPECT_TRUE(test::only_stay(of_worker, 1 + n_helpers)) << "draft " << draft_model;
      });
      return 0;
    });
  }
}

TEST_F(RunJob, RanksAnswerAsOneRankDoesWorkAfterWork) {
  const auto alone = answers();
  EXPECT_EQ(n_loads_, 1) << "the second work has the weights of the first";
  for (const std::int64_t n_ranks : {1, 2, 3}) {
    use_ranks(n_ranks);
    EXPECT_EQ(answers(), alone) << n_ranks << " ranks";
  }
  EXPECT_EQ(n_loads_, 1);
}

TEST_F(RunJob, ATaskRunsOnEveryRank) {
  for (const std::int64_t n_ranks : {0, 1, 3}) {
    if (n_ranks > 0) use_ranks(n_ranks);
    std::atomic<std::int64_t> sum = 0;
    const int status = run_job(
        config_, [] { return std::shared_ptr<ModelSource>(); },
        [&](JobRanks& ranks) {
          ranks.together(model_, "an order");
          ranks.run(work(dense()), [&](JobRun& run) { generate(*run.replicas.at(0)); });
          ranks.together(model_, "another");
          return 7;
        },
        [&](Communicator& comm, ModelSource& model, const std::string& order) {
          EXPECT_EQ(&model, &model_);
          std::array<double, 1> one = {order == "an order" ? 1.0 : 10.0};
          comm.all_reduce_sum(std::span<double>(one));
          sum += static_cast<std::int64_t>(one[0]);
        });
    EXPECT_EQ(status, 7);
    const std::int64_t n = std::max<std::int64_t>(n_ranks, 1);
    EXPECT_EQ(sum, n * n * 11);
  }
}

TEST_F(RunJob, RanksThatAreIdleHearOfTheEnd) {
  use_ranks(3);
  config_.n_replicas = 2;
  std::size_t n_replicas = 0;
  lead([&](JobRanks& ranks) {
    ranks.run(work(dense()), [&](JobRun& run) {
      n_replicas = run.replicas.size();
      for (Link* link : run.replicas) generate(*link);
    });
    return 0;
  });
  EXPECT_EQ(n_replicas, 2U);
}

TEST_F(RunJob, GoesOnAfterWorkThatDoesNotFit) {
  use_ranks(2);
  lead([&](JobRanks& ranks) {
    JobWork large = work(dense());
    large.workload.document_tokens = Workload::kMaxTokens;
    bool driven = false;
    EXPECT_THROW(ranks.run(large, [&](JobRun&) { driven = true; }), Error);
    EXPECT_FALSE(driven);
    ranks.run(work(dense()), [&](JobRun&) { driven = true; });
    EXPECT_TRUE(driven);
    return 0;
  });
}

TEST_F(RunJob, WhatTheLeadThrowsComesThrough) {
  EXPECT_THROW(lead([&](JobRanks& ranks) -> int {
                 ranks.run(work(dense()), [](JobRun&) {
                   throw Error(ErrorCode::kInvalidArgument, "a wrong question");
                 });
                 return 0;
               }),
               Error);
  use_ranks(2);
  EXPECT_THROW(lead([](JobRanks&) -> int { throw Error(ErrorCode::kIo, "no disk"); }), Error);
}

TEST_F(RunJob, RanksFindOutWhatClusterTheyAre) {
  for (const std::int64_t n_ranks : {0, 1, 3}) {
    if (n_ranks > 0) use_ranks(n_ranks);
    lead([&](JobRanks& ranks) {
      const ClusterSpec cluster = ranks.find_cluster(model_);
      EXPECT_EQ(cluster.n_ranks(), std::max<std::int64_t>(1, n_ranks));
      EXPECT_EQ(ranks.find_cluster(model_), cluster) << "it was measured again";
      return 0;
    });
  }
  EXPECT_EQ(n_loads_, 0);
}

TEST_F(RunJob, EachWorkMayHaveItsOwnThreads) {
  use_ranks(2);
  lead([&](JobRanks& ranks) {
    for (const int n_threads : {1, 2}) {
      JobWork work = this->work(dense());
      work.n_threads = n_threads;
      ranks.run(work, [&](JobRun& run) { EXPECT_EQ(run.job->n_threads, n_threads); });
    }
    return 0;
  });
}

}  // namespace
}  // namespace longhaul
