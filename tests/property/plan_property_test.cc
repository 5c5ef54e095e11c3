// Laws of plans, over random models, clusters and workloads: what make_plan makes passes
// check_plan; every block, token and column has exactly one place; memory more never turns a plan
// down; files give back what was written. The seed of a failing case is in its message.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "partition/check_plan.h"
#include "partition/cost_model.h"
#include "partition/explain.h"
#include "partition/make_plan.h"
#include "partition/memory_model.h"
#include "partition/plan_json.h"
#include "partition/scratch_memory.h"
#include "partition/transfer_memory.h"
#include "tests/support/random.h"

namespace longhaul {
namespace {

using test::Random;

ModelSpec random_model(Random& random) {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.n_layers = random.integer(1, 12);
  spec.n_kv_heads = random.integer(1, 9);
  spec.n_heads = spec.n_kv_heads * random.integer(1, 4);
  spec.head_dim = 2 * random.integer(1, 64);
  spec.d_model = 8 * random.integer(1, 64);
  spec.d_ff = random.integer(1, 2000);
  spec.vocab_size = random.integer(2, 5000);
  spec.max_seq_len = 1 << 20;
  spec.tied_embeddings = random.chance(0.3);
  spec.weight_dtype = random.chance(0.5) ? DType::kBf16 : DType::kF32;
  for (std::int64_t i = 0; i < spec.n_layers; ++i) {
    spec.attention_window.push_back(random.chance(0.15) ? random.integer(1, 5000)
                                                        : ModelSpec::kNoWindow);
  }
  return spec;
}

HeadRoles random_roles(Random& random, const ModelSpec& spec) {
  HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  const double ratio = random.chance(0.2) ? 1.0 : random.uniform(0, 1);
  for (HeadRole& role : roles.roles) {
    role = random.chance(ratio) ? HeadRole::kRetrieval : HeadRole::kStreaming;
  }
  roles.sink = random.integer(0, 200);
  roles.recent = random.integer(1, 1000);
  return roles;
}

ClusterSpec random_cluster(Random& random) {
  ClusterSpec cluster;
  const std::int64_t n_ranks = random.integer(1, random.chance(0.1) ? 64 : 9);
  const bool equal = random.chance(0.4);
  const double mixed = random.chance(0.5) ? 0.0 : 0.7;  // share of ranks on GPUs
  RankSpec rank;
  for (std::int64_t r = 0; r < n_ranks; ++r) {
    if (r == 0 || !equal) {
      rank.memory_bytes = static_cast<std::int64_t>(std::exp2(random.uniform(22, 33)));
      rank.gflops = std::exp2(random.uniform(0, 14));
      rank.memory_gb_per_s = std::exp2(random.uniform(0, 10));
    }
    rank.host = "host" + std::to_string(random.integer(0, n_ranks / 2));
    rank.device = random.chance(mixed) ? Device::kCuda : Device::kCpu;
    rank.gpu = rank.device == Device::kCuda ? static_cast<int>(random.integer(0, 3)) : 0;
    cluster.ranks.push_back(rank);
  }
  cluster.headroom = random.chance(0.5) ? 0.0 : 0.05;
  return cluster;
}

Workload random_workload(Random& random) {
  Workload workload;
  workload.document_tokens =
      random.chance(0.1) ? 0 : static_cast<std::int64_t>(std::exp2(random.uniform(0, 21)));
  workload.tail_tokens = random.integer(random.chance(0.5) ? 1 : 100, 4000);
  workload.n_sequences = random.chance(0.5) ? 1 : random.integer(1, 40);
  workload.chunk_len = random.integer(1, 3000);
  workload.block_size = random.chance(0.7) ? 16 * random.integer(1, 8) : random.integer(1, 100);
  workload.k_type = random.chance(0.5) ? KvType::kF32 : KvType::kBf16;
  workload.v_type = random.chance(0.7) ? workload.k_type : KvType::kInt4;
  return workload;
}

PlanRequest random_request(Random& random) {
  PlanRequest request;
  request.spec = random_model(random);
  request.heads = duo_attention_heads(request.spec, random_roles(random, request.spec));
  request.cluster = random_cluster(random);
  request.workload = random_workload(random);
  if (random.chance(0.3)) {
    request.options.n_replicas = random.integer(1, request.cluster.n_ranks());
  }
  if (random.chance(0.2)) {
    const std::int64_t most = std::min(
        request.spec.n_layers, request.cluster.n_ranks() / request.options.n_replicas.value_or(1));
    request.options.n_stages = random.integer(1, most);
  }
  if (random.chance(0.2)) request.options.balance = DecodeBalance::kEachPhase;
  return request;
}

// Calls body(random, request) for random requests; prints the seed of a failing one.
template <typename Body>
void for_random_requests(int n_cases, const Body& body) {
  for (int i = 0; i < n_cases * test::intensity(); ++i) {
    const std::uint64_t seed = test::base_seed() * 1000003 + static_cast<std::uint64_t>(i);
    SCOPED_TRACE("case seed " + std::to_string(seed));
    Random random(seed);
    const PlanRequest request = random_request(random);
    body(random, request);
    if (testing::Test::HasFailure()) return;
  }
}

std::string listed(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += text + "\n";
  return all;
}

TEST(PlanProperty, PlansPassTheirCheck) {
  int n_plans = 0;
  int n_refusals = 0;
  for_random_requests(1600, [&](Random&, const PlanRequest& request) {
    const PlanResult result = make_plan(request);
    if (const Plan* plan = std::get_if<Plan>(&result)) {
      ++n_plans;
      EXPECT_EQ(listed(check_plan(*plan, request.spec, request.cluster, request.workload)), "");
      EXPECT_FALSE(explain(*plan, request.spec, request.cluster, request.workload).empty());
    } else {
      ++n_refusals;
      const auto& refusal = std::get<NotFitting>(result);
      EXPECT_EQ(refusal.bytes.size(), request.cluster.ranks.size());
      EXPECT_FALSE(explain(refusal, request.cluster).empty());
    }
    EXPECT_EQ(plan_fits(request), std::holds_alternative<Plan>(result));
  });
  RecordProperty("plans", n_plans);
  EXPECT_GT(n_plans, 500);
  EXPECT_GT(n_refusals, 50);
}

TEST(PlanProperty, SmallerDemandsFitWhereLargerOnesDo) {
  for_random_requests(300, [](Random& random, PlanRequest request) {
    if (!plan_fits(request)) return;
    Workload& workload = request.workload;
    workload.document_tokens = random.integer(0, workload.document_tokens);
    EXPECT_TRUE(plan_fits(request)) << "document of " << workload.document_tokens;
  });
}

// Of nodes with and without GPUs, some with more ranks than GPUs.
std::string random_mixed_cluster(Random& random) {
  std::string toml = "headroom = 0.0\n";
  const std::int64_t n_nodes = random.integer(1, 3);
  for (std::int64_t i = 0; i < n_nodes; ++i) {
    const std::int64_t n_gpus = random.integer(0, 3);
    const auto bytes = static_cast<std::int64_t>(std::exp2(random.uniform(24, 33)));
    toml += "[[node]]\ngflops = " + std::to_string(std::exp2(random.uniform(0, 14)));
    toml += "\nranks = " + std::to_string(random.integer(1, 5));
    if (n_gpus > 0) toml += "\ngpus = " + std::to_string(n_gpus);
    toml += (n_gpus > 0 ? "\ngpu_memory = " : "\nmemory = ") + std::to_string(bytes) + "\n";
  }
  return toml;
}

bool has_several_gpus(const ClusterSpec& cluster) {
  for (const Rank a : IdRange<Rank>(cluster.n_ranks())) {
    for (const Rank b : IdRange<Rank>(a.value)) {
      const Rank both[] = {a, b};
      if (may_use_nccl(cluster, both)) return true;
    }
  }
  return false;
}

// What a device is called decides nothing: its speeds do, and its memory less what operators and
// transfers take of it.
void expect_same_on_cpus(PlanRequest request) {
  const PlanResult result = make_plan(request);
  const Plan* plan = std::get_if<Plan>(&result);
  if (plan == nullptr) return;
  const auto bytes = memory_of(*plan, request.spec, request.cluster, request.workload);
  for (const Rank r : bytes.ids()) {
    RankSpec& rank = request.cluster.ranks[static_cast<std::size_t>(r.value)];
    rank.memory_bytes -=
        bytes[r].transfers + scratch_bytes(rank, request.spec, request.heads, request.workload);
    rank.device = Device::kCpu;
    rank.gpu = 0;
  }
  const PlanResult same = make_plan(request);
  ASSERT_TRUE(std::holds_alternative<Plan>(same));
  EXPECT_EQ(plan_hash(std::get<Plan>(same)), plan_hash(*plan));
}

TEST(PlanProperty, RanksOnOneGpuStayWithinItsMemoryTogether) {
  int n_plans = 0;
  for_random_requests(300, [&](Random& random, const PlanRequest& given) {
    PlanRequest request = given;
    request.options = {};
    const std::string toml = random_mixed_cluster(random);
    SCOPED_TRACE(toml);
    request.cluster = parse_cluster_toml(toml, "random");
    const PlanResult result = make_plan(request);
    const Plan* plan = std::get_if<Plan>(&result);
    if (plan == nullptr) return;
    ++n_plans;
    EXPECT_EQ(listed(check_plan(*plan, request.spec, request.cluster, request.workload)), "");
    const auto bytes = memory_of(*plan, request.spec, request.cluster, request.workload);
    std::map<std::pair<std::string, int>, std::pair<std::int64_t, std::int64_t>> gpus;
    for (const Rank r : bytes.ids()) {
      const RankSpec& rank = request.cluster.rank(r);
      auto& [used, limit] = gpus[{rank.host, rank.device == Device::kCuda ? rank.gpu : -1}];
      used += bytes[r].total();
      limit += rank.memory_bytes;
    }
    for (const auto& [gpu, sums] : gpus) EXPECT_LE(sums.first, sums.second) << gpu.first;
    // What transfers take follows the stages, so these are given where there may be transfers.
    if (has_several_gpus(request.cluster)) {
      request.options.n_replicas = 1;
      request.options.n_stages =
          random.integer(1, std::min(request.spec.n_layers, request.cluster.n_ranks()));
    }
    expect_same_on_cpus(request);
  });
  EXPECT_GT(n_plans, 0);
}

TEST(PlanProperty, MoreMemoryNeverTurnsAPlanDown) {
  int n_fitting = 0;
  for_random_requests(1500, [&](Random& random, PlanRequest request) {
    bool fitted = plan_fits(request);
    for (int step = 0; step < 6; ++step) {
      for (RankSpec& rank : request.cluster.ranks) {
        if (random.chance(0.5)) rank.memory_bytes += random.integer(0, rank.memory_bytes / 8);
      }
      const bool fits = plan_fits(request);
      EXPECT_TRUE(fits || !fitted) << "step " << step;
      fitted = fits;
    }
    n_fitting += fitted ? 1 : 0;
  });
  EXPECT_GT(n_fitting, 500);
}

TEST(PlanProperty, EveryBlockHasOneHomeAndPrefixesFollowWeights) {
  for_random_requests(200, [](Random& random, const PlanRequest& request) {
    const PlanResult result = make_plan(request);
    if (!std::holds_alternative<Plan>(result)) return;
    const Plan& plan = std::get<Plan>(result);
    const auto& stages = plan.replicas.back().stages;
    const Stage& stage = stages[static_cast<std::size_t>(
        random.integer(0, static_cast<std::int64_t>(stages.size()) - 1))];
    const LayerId layer{random.integer(stage.layers.begin, stage.layers.end - 1)};
    const KvHeadId kv_head{random.integer(0, request.spec.n_kv_heads - 1)};
    const Home& home = stage.home_of(layer, kv_head);
    std::int64_t whole = 0;
    for (const HomeShare& share : home.shares) whole += share.weight;
    std::vector<std::int64_t> counts(home.shares.size(), 0);
    const double allowed = 1 + std::log2(static_cast<double>(home.shares.size()));
    for (std::int64_t b = 0; b < 300; ++b) {
      const Rank rank = home_of_block(home, b);
      std::int64_t found = 0;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        if (home.shares[i].rank == rank) ++counts[i], ++found;
      }
      ASSERT_EQ(found, 1);
      ASSERT_EQ(blocks_by_share(home, b + 1), counts);
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const double ideal = static_cast<double>(b + 1) *
                             static_cast<double>(home.shares[i].weight) /
                             static_cast<double>(whole);
        ASSERT_LE(std::abs(static_cast<double>(counts[i]) - ideal), allowed);
      }
    }
  });
}

TEST(PlanProperty, SlabsCoverEveryTokenOnce) {
  for (int i = 0; i < 2000 * test::intensity(); ++i) {
    const std::uint64_t seed = test::base_seed() * 7919 + static_cast<std::uint64_t>(i);
    SCOPED_TRACE("case seed " + std::to_string(seed));
    Random random(seed);
    IndexedVector<RingPos, std::int64_t> shares;
    for (std::int64_t p = random.integer(1, 12); p > 0; --p) {
      shares.push_back(random.chance(0.2) ? 0 : random.integer(1, 1000));
    }
    if (std::ranges::all_of(shares, [](std::int64_t share) { return share == 0; })) {
      shares.front() = 1;
    }
    const std::int64_t block_size = random.integer(1, 70);
    const std::int64_t begin = random.integer(0, 5000);
    const Extent tokens = {begin, begin + random.integer(1, 5000)};
    const auto slabs = slabs_of_chunk(shares, tokens, block_size);
    const std::int64_t n_ranks = shares.n();
    ASSERT_EQ(slabs.size(), 2 * shares.size());
    std::int64_t next = tokens.begin;
    for (std::int64_t s = 0; s < 2 * n_ranks; ++s) {
      const Slab& slab = slabs[static_cast<std::size_t>(s)];
      ASSERT_EQ(slab.owner.value, s < n_ranks ? s : 2 * n_ranks - 1 - s);
      ASSERT_EQ(slab.tokens.begin, next);
      ASSERT_LE(slab.tokens.begin, slab.tokens.end);
      if (s + 1 < 2 * n_ranks && slab.tokens.end != tokens.begin) {
        ASSERT_EQ(slab.tokens.end % block_size, 0) << "an edge inside a block";
      }
      if (shares[slab.owner] == 0 && s + 1 < 2 * n_ranks) {
        ASSERT_TRUE(slab.tokens.empty());
      }
      next = slab.tokens.end;
    }
    ASSERT_EQ(next, tokens.end);
    ASSERT_FALSE(slabs.back().tokens.empty());
  }
}

TEST(PlanProperty, NoChunkGivesARankMoreBlocksThanItsBuffersHold) {
  for_random_requests(300, [](Random& random, const PlanRequest& request) {
    const PlanResult result = make_plan(request);
    if (!std::holds_alternative<Plan>(result)) return;
    const Workload& workload = request.workload;
    for (const Stage& stage : std::get<Plan>(result).replicas[0].stages) {
      const std::int64_t start = random.integer(0, 10000);
      const auto slabs =
          slabs_of_chunk(stage, random.integer(1, workload.chunk_len), start, workload.block_size);
      IndexedVector<RingPos, std::int64_t> own(stage.ring.size(), 0);
      for (const Slab& slab : slabs) {
        own[slab.owner] += blocks_of(slab.tokens, workload.block_size).size();
      }
      for (const RingPos i : own.ids()) {
        ASSERT_LE(own[i], max_own_blocks(workload, own.n(), i, stage.token_share[i]));
      }
    }
  });
}

TEST(PlanProperty, JsonGivesBackThePlan) {
  for_random_requests(150, [](Random&, const PlanRequest& request) {
    const PlanResult result = make_plan(request);
    if (!std::holds_alternative<Plan>(result)) return;
    const Plan& plan = std::get<Plan>(result);
    const Json json = parse_json(to_text(plan_to_json(plan)), "plan");
    const Plan again = plan_from_json(json, "plan");
    EXPECT_EQ(again, plan);
    EXPECT_EQ(plan_hash(again), plan_hash(plan));
  });
}

}  // namespace
}  // namespace longhaul
