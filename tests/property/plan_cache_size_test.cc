// The planner counts caches as the cache itself does (worker/kv/cache_size.h): the same blocks for
// every head and length, and never less than what a document and its forks take.
#include <gtest/gtest.h>

#include "partition/kept_keys.h"
#include "partition/memory_model.h"
#include "tests/support/random.h"
#include "tests/unit/partition/models.h"
#include "worker/kv/cache_layout.h"
#include "worker/kv/cache_size.h"

namespace longhaul {
namespace {

using test::Random;

TEST(PlanCacheSize, SameBlocksAsTheCache) {
  Random random(test::base_seed());
  for (int i = 0; i < 20000 * test::intensity(); ++i) {
    KeptKeys kept;
    AttentionMask mask;
    if (random.chance(0.9)) {
      kept = {.all = false, .sink = random.integer(0, 300), .recent = random.integer(1, 600)};
      mask = {.sink = kept.sink, .recent = kept.recent};
    }
    const std::int64_t block_size = random.integer(1, 100);
    const std::int64_t n_tokens = random.integer(0, 3000);
    const std::int64_t first = random.integer(0, 40);
    ASSERT_EQ(kept_blocks(kept, block_size, n_tokens, first),
              head_cache_blocks(mask, block_size, n_tokens, first))
        << "seed " << test::base_seed() << " case " << i;
  }
}

TEST(PlanCacheSize, NeverLessThanADocumentAndItsForks) {
  Random random(test::base_seed() + 1);
  for (int i = 0; i < 300 * test::intensity(); ++i) {
    PlanRequest request;
    request.spec = test::tiny_model(3, 3);
    if (random.chance(0.3)) request.spec.attention_window[1] = random.integer(1, 500);
    request.roles = test::first_heads(request.spec, random.integer(0, 3), random.integer(0, 100),
                                      random.integer(1, 300));
    request.cluster = equal_cluster(1, std::int64_t{1} << 32);
    request.workload.document_tokens = random.integer(0, 2000);
    request.workload.tail_tokens = random.integer(1, 500);
    request.workload.n_sequences = random.integer(1, 4);
    request.workload.block_size = 16 * random.integer(1, 5);
    request.workload.k_type = kKvTypes[static_cast<std::size_t>(random.integer(0, 3))];
    request.workload.v_type = kKvTypes[static_cast<std::size_t>(random.integer(0, 3))];
    const Plan plan = std::get<Plan>(make_plan(request));
    const RankBytes planned = memory_of(plan, request.spec, request.cluster, request.workload)[0];
    const KvBlockShape shape{.block_size = request.workload.block_size,
                             .head_dim = request.spec.head_dim,
                             .k_type = request.workload.k_type,
                             .v_type = request.workload.v_type};
    const CacheSizeArgs args{request.spec, request.roles, {0, 3}, shape};
    // Any document up to the longest, any tail up to the longest.
    const std::int64_t n_document = random.integer(0, request.workload.document_tokens);
    const std::int64_t n_all = n_document + random.integer(1, request.workload.tail_tokens);
    const std::size_t held = sequence_cache_bytes(args, n_document) +
                             static_cast<std::size_t>(request.workload.n_sequences) *
                                 fork_cache_bytes(args, n_document, n_all);
    ASSERT_LE(held, static_cast<std::size_t>(planned.kv_retrieval + planned.kv_streaming))
        << "seed " << test::base_seed() << " case " << i;
  }
}

}  // namespace
}  // namespace longhaul
