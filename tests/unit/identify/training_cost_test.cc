#include "tools/identify/training_cost.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

ModelSpec spec_of(std::int64_t n_layers) {
  ModelSpec spec;
  spec.n_layers = n_layers;
  spec.d_model = 10;
  spec.d_ff = 7;
  spec.n_heads = 4;
  spec.n_kv_heads = 2;
  spec.head_dim = 2;
  spec.attention_window.assign(static_cast<std::size_t>(n_layers), ModelSpec::kNoWindow);
  return spec;
}

TrainingShape shape_of(std::int64_t n_tokens) {
  return {.window = {.sink = 2, .recent = 3}, .n_tokens = n_tokens, .n_answer = 4, .block_size = 1};
}

// By hand: one layer, 20 tokens, 4 compared. Products of a row: K and V 160, Q 160, outputs 160,
// feed-forward network 420. It reads 2 sinks and 6 tokens, and writes 4.
TEST(TrainingCost, OfOneLayerByHand) {
  const TrainingFlops flops = training_flops(spec_of(1), shape_of(20));
  const double dense_keys = 17 + 18 + 19 + 20;
  EXPECT_DOUBLE_EQ(flops.teacher, 20 * 160 + 4 * (320 + 420) + 4 * 8 * dense_keys);
  EXPECT_DOUBLE_EQ(flops.student, 8 * 160 + 4 * (320 + 420) + 4 * 8 * (4 * 5));
  EXPECT_DOUBLE_EQ(flops.backward, 8 * 160 + 4 * (160 + 280) + 4 * (160 + 420) + 12 * 8 * (4 * 5));
  // Rows of the answers: middle, output and the teacher's heads; what the layer read; and the
  // answers' states that are compared.
  EXPECT_EQ(training_bytes(spec_of(1), shape_of(20)).kept,
            (4U * (10 + 10 + 8) + 8U * 10 + 3U * 4 * 10) * 4);
}

TEST(TrainingCost, OfStudentAndBackwardDoesNotGrowWithTheText) {
  const ModelSpec spec = spec_of(3);
  const TrainingFlops shorter = training_flops(spec, shape_of(1000));
  const TrainingFlops longer = training_flops(spec, shape_of(4000));
  EXPECT_DOUBLE_EQ(longer.student, shorter.student);
  EXPECT_DOUBLE_EQ(longer.backward, shorter.backward);
  EXPECT_GT(longer.teacher, 4 * shorter.teacher);
  EXPECT_EQ(training_bytes(spec, shape_of(4000)).kept, training_bytes(spec, shape_of(1000)).kept);
}

TEST(TrainingCost, RanksShareRows) {
  TrainingShape shape = shape_of(1000);
  const TrainingBytes one = training_bytes(spec_of(3), shape);
  shape.n_ranks = 4;
  const TrainingBytes four = training_bytes(spec_of(3), shape);
  EXPECT_EQ(four.kept, one.kept / 4);
  EXPECT_EQ(four.keys, one.keys);
  EXPECT_LT(four.forward, one.forward);
}

}  // namespace
}  // namespace longhaul
