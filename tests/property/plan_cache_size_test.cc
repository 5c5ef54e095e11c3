// The planner never counts less than what a document and its forks take (model/heads/kept_blocks.h,
// which the caches themselves are tested against).
#include <gtest/gtest.h>

#include "model/heads/kept_blocks.h"
#include "partition/memory_model.h"
#include "tests/support/fork_blocks.h"
#include "tests/support/random.h"
#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

using test::Random;

TEST(PlanCacheSize, NeverLessThanADocumentAndItsForks) {
  Random random(test::base_seed() + 1);
  for (int i = 0; i < 300 * test::intensity(); ++i) {
    PlanRequest request;
    request.spec = test::tiny_model(3, 3);
    if (random.chance(0.3)) request.spec.attention_window[1] = random.integer(1, 500);
    request.heads = test::first_heads(request.spec, random.integer(0, 3), random.integer(0, 100),
                                      random.integer(1, 300));
    request.cluster = equal_cluster(1, std::int64_t{1} << 32);
    request.workload.document_tokens = random.integer(0, 2000);
    request.workload.tail_tokens = random.integer(1, 500);
    request.workload.n_sequences = random.integer(1, 4);
    request.workload.block_size = 16 * random.integer(1, 5);
    request.workload.k_type =
        kPlainKvTypes[static_cast<std::size_t>(random.integer(0, std::ssize(kPlainKvTypes) - 1))];
    request.workload.v_type =
        kPlainKvTypes[static_cast<std::size_t>(random.integer(0, std::ssize(kPlainKvTypes) - 1))];
    const Plan plan = std::get<Plan>(make_plan(request));
    const RankBytes planned =
        memory_of(plan, request.spec, request.cluster, request.workload)[Rank{0}];
    // Any document up to the longest, any tail up to the longest.
    const std::int64_t n_document = random.integer(0, request.workload.document_tokens);
    const std::int64_t n_all = n_document + random.integer(1, request.workload.tail_tokens);
    const std::int64_t block_size = request.workload.block_size;
    const std::int64_t held =
        sequence_blocks(request.heads, {0, 3}, block_size, n_document) +
        request.workload.n_sequences *
            test::fork_blocks(request.heads, {0, 3}, block_size, n_document, n_all);
    ASSERT_LE(held * plan.kv.block_bytes(), planned.kv_retrieval + planned.kv_streaming)
        << "seed " << test::base_seed() << " case " << i;
  }
}

}  // namespace
}  // namespace longhaul
