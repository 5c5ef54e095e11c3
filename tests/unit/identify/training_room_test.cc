#include "tools/identify/training_room.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

constexpr IdentifyPart kStep = IdentifyPart::kTraining;

ModelSpec room_spec() {
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

TrainingShape room_shape(std::int64_t n_tokens, std::int64_t n_ranks = 1) {
  return {.window = {.sink = 64, .recent = 64},
          .n_tokens = n_tokens,
          .n_answer = 100,
          .n_ranks = n_ranks};
}

std::int64_t bytes_of(const TrainingShape& shape) {
  return static_cast<std::int64_t>(training_bytes(room_spec(), shape).total());
}

TEST(TrainingRoom, CountsWeightsAndStep) {
  const TrainingShape shape = room_shape(8000);
  const std::int64_t needed = 1000 + bytes_of(shape);
  EXPECT_EQ(
      missing_bytes(kStep, room_spec(), shape, {.weight_bytes = 1000, .usable_bytes = needed}), 0);
  EXPECT_EQ(
      missing_bytes(kStep, room_spec(), shape, {.weight_bytes = 1000, .usable_bytes = needed - 7}),
      7);
  EXPECT_NE(describe_room(kStep, room_spec(), shape, {1000, needed}, {"--x"}).find(": fits\n"),
            std::string::npos);
}

TEST(TrainingRoom, SaysTheLongestTextThatFits) {
  const TrainingRoom room{.weight_bytes = 0, .usable_bytes = bytes_of(room_shape(5000))};
  const TrainingShape wanted = room_shape(9000);
  const std::int64_t longest = changes_that_fit(kStep, room_spec(), wanted, room).n_tokens;
  EXPECT_EQ(missing_bytes(kStep, room_spec(), room_shape(longest), room), 0);
  EXPECT_GT(missing_bytes(kStep, room_spec(), room_shape(longest + 64), room), 0);
  EXPECT_NE(describe_room(kStep, room_spec(), wanted, room, {"--max-length"})
                .find("it fits with --max-length " + std::to_string(longest)),
            std::string::npos);
}

TEST(TrainingRoom, SaysHowManyRanksWouldDo) {
  const TrainingRoom room{.weight_bytes = 0, .usable_bytes = bytes_of(room_shape(9000, 3))};
  const std::int64_t n_ranks = changes_that_fit(kStep, room_spec(), room_shape(9000), room).n_ranks;
  EXPECT_EQ(n_ranks, 4);
  EXPECT_EQ(missing_bytes(kStep, room_spec(), room_shape(9000, n_ranks), room), 0);
}

// Random tokens are said as those of one of four copies.
TEST(TrainingRoom, SaysHowManyCopiedTokensFit) {
  TrainingShape wanted = room_shape(9000);
  wanted.n_answer = 0;
  TrainingShape fitting = wanted;
  fitting.n_tokens = 6400;
  constexpr IdentifyPart kPart = IdentifyPart::kCopies;
  const TrainingRoom room{.weight_bytes = 0, .usable_bytes = bytes_of(kPart, room_spec(), fitting)};
  EXPECT_NE(describe_room(kPart, room_spec(), wanted, room, {"--copied-tokens", 4})
                .find("it fits with --copied-tokens 1600\n"),
            std::string::npos);
}

TEST(TrainingRoom, PromisesNothingWhereWeightsAloneDoNotFit) {
  const TrainingRoom room{.weight_bytes = 2000, .usable_bytes = 1000};
  const RoomChanges changes = changes_that_fit(kStep, room_spec(), room_shape(9000), room);
  EXPECT_EQ(changes.n_tokens, 0);
  EXPECT_EQ(changes.n_ranks, 0);
}

}  // namespace
}  // namespace longhaul
