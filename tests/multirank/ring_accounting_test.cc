// What a ring holds and sends, counted and compared with the plan's formulas: after every chunk the
// cache bytes of every rank, by kind; and every byte that travels in prefill.
#include <gtest/gtest.h>

#include <algorithm>

#include "partition/open_blocks.h"
#include "partition/ring_bytes.h"
#include "partition/sum_hops.h"
#include "partition/window_pieces.h"
#include "tests/multirank/ring_cases.h"
#include "tests/property/worker_cases.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

constexpr SequenceId kDocument{1};
enum class Caches { kOfTokens, kOfGroups };  // quantised in groups: their newest blocks are open

// A random model and plan of one stage or more, and a document in random chunks.
struct Case {
  explicit Case(std::uint64_t case_seed, std::int64_t ranks, Caches caches)
      : seed(case_seed), random(case_seed), n_ranks(ranks) {
    spec = random_spec(random);
    if (caches == Caches::kOfGroups) spec.head_dim = kKvGroup;
    heads = duo_attention_heads(spec, random_roles(random, spec));
    if (caches == Caches::kOfTokens && random.chance(0.5)) heads = with_compensation_keys(heads);
    kv = {.block_size = 16, .head_dim = spec.head_dim};
    if (caches == Caches::kOfGroups)
      kv = {KvType::kKivi2, KvType::kKivi4, 2 * kKvGroup, spec.head_dim};
    const std::int64_t most = std::min<std::int64_t>({3, n_ranks, spec.n_layers});
    plan = random_plan(random, spec, heads, n_ranks, random.integer(1, most), kv);
    for (std::int64_t n : {random.integer(1, 150), random.integer(1, 150), std::int64_t{33}}) {
      chunks.push_back(n);
    }
  }
  RingRun run(HistoryChoice history) {
    std::vector<StepCommand> script{OpenSequence{kDocument, {}}};
    for (const std::int64_t n : chunks) {
      script.push_back(PrefillChunk{kDocument, random_tokens(random, n, spec.vocab_size),
                                    AfterPrefill::kNothing, /*score_logprobs=*/0});
    }
    script.push_back(DropSequences{{kDocument}});
    return run_on_ring({.weights = tiny_weights(spec, DType::kF32, seed),
                        .plan = plan,
                        .history = history,
                        .with_reports = true},
                       script);
  }
  // The stage and ring position of a rank.
  std::pair<const Stage*, RingPos> place_of(Rank rank) const {
    for (const Stage& stage : plan.replicas.front().stages) {
      if (const auto position = stage.ring_position(rank)) return {&stage, *position};
    }
    return {nullptr, {}};
  }

  std::uint64_t seed;
  Random random;
  std::int64_t n_ranks;
  ModelSpec spec;
  HeadTable heads;
  KvFormat kv;
  Plan plan;
  std::vector<std::int64_t> chunks;
};

// Bytes of retrieval and of streaming heads at a rank, for a document of n tokens.
std::pair<std::int64_t, std::int64_t> planned_bytes(const Case& c, Rank rank,
                                                    std::int64_t n_tokens) {
  const Stage& stage = *c.place_of(rank).first;
  std::int64_t retrieval = 0;
  std::int64_t streaming = 0;
  const std::int64_t bs = c.kv.block_size;
  // The partial last block, where it lies open: its bytes instead of a block's.
  const std::int64_t open = c.kv.has_open_blocks() && n_tokens % bs != 0
                                ? c.kv.open_block_bytes() - c.kv.block_bytes()
                                : 0;
  for (const LayerId layer : stage.layer_ids()) {
    for (const KvHeadId head : IdRange<KvHeadId>(c.spec.n_kv_heads)) {
      const Home& home = stage.home_of(layer, head);
      const KeyWindow kept = c.heads.window(layer, head);
      if (kept.is_unlimited()) {
        retrieval += blocks_at(home, rank, ceil_div(n_tokens, bs)) * c.kv.block_bytes();
        if (home_of_block(home, n_tokens / bs) == rank) retrieval += open;
      } else if (home.shares.front().rank == rank) {
        streaming += kept_blocks(kept, bs, n_tokens) * c.kv.block_bytes() + open;
      }
    }
  }
  return {retrieval, streaming};
}

std::int64_t sent(const RankReport& report, const std::string& kind) {
  for (const auto& [name, bytes] : report.sent_bytes) {
    if (name == kind) return bytes;
  }
  return 0;
}

// What one rank sends for one chunk in one layer.
struct Planned {
  std::int64_t keys = 0;
  std::int64_t queries = 0;
  std::int64_t windows = 0;
  std::int64_t open_blocks = 0;
};
Planned planned_traffic(const Case& c, const Stage& stage, RingPos position, LayerId layer,
                        Extent tokens, bool keys_travel) {
  Planned planned;
  const std::int64_t n_ranks = stage.ring.n();
  if (n_ranks == 1) return planned;
  const RingPos next{(position.value + 1) % n_ranks};
  const auto made_slabs = slabs_of_chunk(stage.token_share, tokens, c.kv.block_size);
  const auto made = slabs_by_owner(made_slabs);
  const auto slabs = stored_slabs(made_slabs, c.kv);
  const std::int64_t begin = slabs.front().tokens.begin;  // of what is stored
  planned.open_blocks = open_bytes_sent(stage, made_slabs, layer, c.kv)[position];
  const LayerHeads heads = layer_heads(c.heads, layer);
  planned.keys = chunk_key_bytes_sent(slabs, heads.n_all, c.kv)[position];
  std::vector<RingPos> window_homes;
  std::vector<RingPos> homes_with_rest;
  const std::int64_t state = 4 * (c.spec.head_dim + 2);
  const std::int64_t query = 4 * c.spec.head_dim;
  for (const KvHeadId head : IdRange<KvHeadId>(c.spec.n_kv_heads)) {
    const Home& home = stage.home_of(layer, head);
    if (!c.heads.window(layer, head).is_unlimited()) {
      window_homes.push_back(*stage.ring_position(home.shares.front().rank));
      if (c.heads.at(layer, head).rest != Rest::kNothing)
        homes_with_rest.push_back(window_homes.back());
    } else if (begin > 0 && keys_travel) {
      // All trains but that of the next rank, which has come all the way round.
      const std::int64_t n_blocks = ceil_div(begin, c.kv.block_size);
      const Rank next_rank = stage.ring[next];
      planned.keys += (n_blocks - blocks_at(home, next_rank, n_blocks)) * c.kv.block_bytes();
    } else if (begin > 0) {
      for (const RingPos origin : made.ids()) {
        std::int64_t n = 0;
        for (const Extent& slab : made[origin]) n += slab.size();
        planned.queries += n * c.spec.gqa_group() * (origin == next ? state : query + state);
      }
    }
  }
  const WindowChunk window{slabs, made, heads.window, c.kv.block_size};
  if (!window_homes.empty())
    planned.windows = window_bytes_sent(window, window_homes, c.kv)[position];
  if (!homes_with_rest.empty()) {
    planned.windows += sum_bytes_sent(sum_hops(slabs, heads.window, homes_with_rest), n_ranks,
                                      c.spec.head_dim)[position];
  }
  return planned;
}

template <typename Check>
void for_cases(int n, Check check) {
  for (int round = 0; round < n * intensity(); ++round) {
    for (const std::int64_t n_ranks : {1, 2, 3, 5}) {
      for (const Caches caches : {Caches::kOfTokens, Caches::kOfGroups}) {
        Case c(base_seed() * 1000 + static_cast<std::uint64_t>(round), n_ranks, caches);
        SCOPED_TRACE(testing::Message() << "seed " << c.seed << ", " << n_ranks
                                        << " ranks, keys of " << name_of(c.kv.k_type));
        check(c);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(RingAccounting, CachesAreWhereThePlanSays) {
  for_cases(6, [](Case& c) {
    const RingRun run = c.run(HistoryChoice::kByCost);
    std::int64_t n_tokens = 0;
    for (std::size_t i = 0; i < c.chunks.size(); ++i) {
      n_tokens += c.chunks[i];
      for (const RankReport& report : run.reports[i + 1]) {
        const auto [retrieval, streaming] = planned_bytes(c, report.rank, n_tokens);
        EXPECT_EQ(report.kv_retrieval_bytes, retrieval) << "rank " << report.rank.value;
        EXPECT_EQ(report.kv_streaming_bytes, streaming) << "rank " << report.rank.value;
      }
    }
    for (const RankReport& report : run.reports.back()) {
      EXPECT_EQ(report.kv_retrieval_bytes + report.kv_streaming_bytes, 0) << "after the drop";
    }
  });
}

TEST(RingAccounting, OnlyWhatMustTravelTravels) {
  for (const bool keys_travel : {false, true}) {
    for_cases(4, [&](Case& c) {
      const RingRun run =
          c.run(keys_travel ? HistoryChoice::kKeysTravel : HistoryChoice::kQueriesTravel);
      std::int64_t begin = 0;
      for (std::size_t i = 0; i < c.chunks.size(); ++i) {
        const Extent tokens{begin, begin + c.chunks[i]};
        begin = tokens.end;
        for (const Rank rank : IdRange<Rank>(c.n_ranks)) {
          const auto r = static_cast<std::size_t>(rank.value);
          const auto [stage, position] = c.place_of(rank);
          Planned planned;
          for (const LayerId layer : stage->layer_ids()) {
            const Planned one = planned_traffic(c, *stage, position, layer, tokens, keys_travel);
            planned.keys += one.keys;
            planned.queries += one.queries;
            planned.windows += one.windows;
            planned.open_blocks += one.open_blocks;
          }
          const RankReport& after = run.reports[i + 1][r];
          const RankReport& before = run.reports[i][r];
          EXPECT_EQ(sent(after, "keys") - sent(before, "keys"), planned.keys);
          EXPECT_EQ(sent(after, "queries") - sent(before, "queries"), planned.queries);
          EXPECT_EQ(sent(after, "halo") - sent(before, "halo"), planned.windows);
          EXPECT_EQ(sent(after, "open blocks") - sent(before, "open blocks"), planned.open_blocks);
        }
      }
    });
  }
}

// The sum over ranks is what `longhaul plan` prints.
TEST(RingAccounting, TheTotalsAreThoseOfThePlanner) {
  for_cases(4, [](Case& c) {
    const Extent tokens{150, 290};
    for (const Stage& stage : c.plan.replicas.front().stages) {
      for (const LayerId layer : stage.layer_ids()) {
        const ChunkTraffic want = chunk_traffic(c.plan, stage, c.spec, layer, tokens);
        Planned keys;
        Planned queries;
        for (const RingPos position : stage.ring.ids()) {
          const Planned by_keys = planned_traffic(c, stage, position, layer, tokens, true);
          const Planned by_queries = planned_traffic(c, stage, position, layer, tokens, false);
          keys.keys += by_keys.keys;
          keys.windows += by_keys.windows;
          keys.open_blocks += by_keys.open_blocks;
          queries.keys += by_queries.keys;
          queries.queries += by_queries.queries;
        }
        EXPECT_EQ(queries.keys, want.chunk_keys);
        EXPECT_EQ(keys.keys, want.chunk_keys + want.history_keys);
        EXPECT_EQ(queries.queries, want.history_queries);
        EXPECT_EQ(keys.windows, want.windows);
        EXPECT_EQ(keys.open_blocks, want.open_blocks);
      }
    }
  });
}

TEST(RingAccounting, LayersWithoutRetrievalHeadsSendNothingRoundTheRing) {
  for_cases(2, [](Case& c) {
    c.plan.heads = streaming_heads(c.spec, {4, 12});
    for (auto& stage : c.plan.replicas.front().stages) {
      for (auto& homes : stage.home) {
        for (Home& home : homes) home.shares.resize(1);
      }
    }
    const RingRun run = c.run(HistoryChoice::kKeysTravel);
    for (const RankReport& report : run.reports.back()) {
      EXPECT_EQ(sent(report, "keys") + sent(report, "queries"), 0);
    }
  });
}

TEST(RingAccounting, DecodeSendsSumsAndTheScalesOfSplitHeads) {
  static_assert(Communicator::kDirectReduceBytes == kOneRoundReduceBytes);
  for_cases(4, [](Case& c) {
    const std::vector<StepCommand> script{
        OpenSequence{kDocument, {}}, PrefillChunk{kDocument, {1, 2, 3}, AfterPrefill::kSample, -1},
        DecodeBatch{{{kDocument, 5}}}};
    // So narrow an FFN is one group of activations: with int8 weights one rank has it all.
    for (Stage& stage : c.plan.replicas.front().stages) {
      std::fill(stage.ffn_slice.begin(), stage.ffn_slice.end(), Extent{});
      stage.ffn_slice.front() = {0, c.spec.d_ff};
    }
    for (const DType weights : {DType::kF32, DType::kI8}) {
      const RingRun run = run_on_ring(
          {.weights = tiny_weights(c.spec, weights, c.seed), .plan = c.plan, .with_reports = true},
          script);
      std::int64_t want = 0;
      std::int64_t got = 0;
      for (const Stage& stage : c.plan.replicas.front().stages) {
        for (const LayerId layer : stage.layer_ids()) {
          want += decode_traffic(stage, c.spec, layer, 1, weights).total;
        }
      }
      for (std::size_t r = 0; r < run.reports[2].size(); ++r) {
        for (const char* kind : {"all_reduce", "all_gather"}) {
          got += sent(run.reports[2][r], kind) - sent(run.reports[1][r], kind);
        }
      }
      EXPECT_EQ(got, want) << name_of(weights);
    }
  });
}

TEST(RingAccounting, HomesCostNoExtraByte) {
  for_cases(2, [](Case& c) {
    const RingRun spread = c.run(HistoryChoice::kQueriesTravel);
    for (auto& stage : c.plan.replicas.front().stages) {
      for (auto& homes : stage.home) {
        for (Home& home : homes) home = Home{{{stage.ring.front(), 1}}};
      }
    }
    const RingRun together = c.run(HistoryChoice::kQueriesTravel);
    for (std::size_t r = 0; r < spread.reports.back().size(); ++r) {
      for (const char* kind : {"keys", "queries"}) {
        EXPECT_EQ(sent(spread.reports.back()[r], kind), sent(together.reports.back()[r], kind));
      }
    }
  });
}

}  // namespace
}  // namespace longhaul::test
