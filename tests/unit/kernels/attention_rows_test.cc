// Attention of every number of rows, on every device: few rows multiply keys and values as they
// lie, by tiles of their own number of rows, many pack them first.

#include "kernels/attention.h"
#include "tests/support/compare.h"
#include "tests/unit/kernels/attention_case.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

class AttentionRows : public EachDevice {};
LONGHAUL_ON_EACH_DEVICE(AttentionRows);

TEST_P(AttentionRows, OfEveryNumberMatchTheReference) {
  for (const KvType type : kAllKvTypes) {
    for (std::int64_t rows = 1; rows <= 18; ++rows) {
      // A window that begins within a block, and within a group of its tokens.
      const AttentionShape shape = {.gqa_group = rows,
                                    .head_dim = 96,
                                    .n_blocks = 6,
                                    .k_type = type,
                                    .v_type = type,
                                    .mask = {.sink = 5, .recent = 141 + 3 * rows},
                                    .gaps = rows % 2 == 0,
                                    .after_keys = true};
      SCOPED_TRACE(describe(shape));
      AttentionProblem problem(stream(), shape, base_seed());
      EXPECT_TRUE(close(problem.run(), reference::attention(problem.reference_case()).out,
                        attention_tolerance(type, stream().device())));
    }
  }
}

// Rows of one group of heads over K and V of different widths, in panels of any number of runs.
TEST_P(AttentionRows, OverCodesMatchTheReference) {
  for (const std::int64_t head_dim : {32, 64, 96, 128, 256}) {
    for (const std::int64_t rows : {4, 5, 8}) {
      for (const KvType k_type : {KvType::kInt8, KvType::kInt4}) {
        for (const KvType v_type : {KvType::kInt8, KvType::kInt4}) {
          const AttentionShape shape = {.gqa_group = rows,
                                        .head_dim = head_dim,
                                        .n_blocks = 5,
                                        .block_size = 32 + 32 * (rows % 3),
                                        .k_type = k_type,
                                        .v_type = v_type,
                                        .after_keys = true};
          SCOPED_TRACE(describe(shape));
          AttentionProblem problem(stream(), shape, base_seed());
          EXPECT_TRUE(close(problem.run(), reference::attention(problem.reference_case()).out,
                            attention_tolerance(v_type, stream().device())));
        }
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::test
