#include "tools/identify/training_room.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

ModelSpec spec() {
  ModelSpec spec;
  spec.n_layers = 3;
  spec.d_model = 64;
  spec.d_ff = 96;
  spec.n_heads = 4;
  spec.n_kv_heads = 2;
  spec.head_dim = 16;
  spec.attention_window.assign(3, ModelSpec::kNoWindow);
  return spec;
}

TrainingShape shape_of(std::int64_t n_tokens, std::int64_t n_ranks = 1) {
  return {.window = {.sink = 64, .recent = 64},
          .n_tokens = n_tokens,
          .n_answer = 100,
          .n_ranks = n_ranks};
}

std::int64_t bytes_of(const TrainingShape& shape) {
  return static_cast<std::int64_t>(training_bytes(spec(), shape).total());
}

TEST(TrainingRoom, CountsWeightsAndStep) {
  const TrainingShape shape = shape_of(8000);
  const std::int64_t needed = 1000 + bytes_of(shape);
  EXPECT_EQ(missing_bytes(spec(), shape, {.weight_bytes = 1000, .usable_bytes = needed}), 0);
  EXPECT_EQ(missing_bytes(spec(), shape, {.weight_bytes = 1000, .usable_bytes = needed - 7}), 7);
  EXPECT_NE(describe_room(spec(), shape, {1000, needed}, "--x").find(": fits\n"),
            std::string::npos);
}

TEST(TrainingRoom, SaysTheLongestTextThatFits) {
  const TrainingRoom room{.weight_bytes = 0, .usable_bytes = bytes_of(shape_of(5000))};
  const TrainingShape wanted = shape_of(9000);
  const std::int64_t longest = changes_that_fit(spec(), wanted, room).n_tokens;
  EXPECT_EQ(missing_bytes(spec(), shape_of(longest), room), 0);
  EXPECT_GT(missing_bytes(spec(), shape_of(longest + 64), room), 0);
  EXPECT_NE(describe_room(spec(), wanted, room, "--max-length")
                .find("it fits with --max-length " + std::to_string(longest)),
            std::string::npos);
}

TEST(TrainingRoom, SaysHowManyRanksWouldDo) {
  const TrainingRoom room{.weight_bytes = 0, .usable_bytes = bytes_of(shape_of(9000, 3))};
  const std::int64_t n_ranks = changes_that_fit(spec(), shape_of(9000), room).n_ranks;
  EXPECT_EQ(n_ranks, 4);
  EXPECT_EQ(missing_bytes(spec(), shape_of(9000, n_ranks), room), 0);
}

TEST(TrainingRoom, PromisesNothingWhereWeightsAloneDoNotFit) {
  const TrainingRoom room{.weight_bytes = 2000, .usable_bytes = 1000};
  const RoomChanges changes = changes_that_fit(spec(), shape_of(9000), room);
  EXPECT_EQ(changes.n_tokens, 0);
  EXPECT_EQ(changes.n_ranks, 0);
}

}  // namespace
}  // namespace longhaul
