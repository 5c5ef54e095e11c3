// Rows for files against kv_read, which reads the same blocks element by element.
#include "worker/snapshot/block_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <span>

#include "base/error.h"
#include "kernels/kv_append.h"
#include "kernels/reference/kv_read.h"
#include "tests/support/random.h"
#include "worker/snapshot/convert_rows.h"

namespace longhaul {
namespace {

std::vector<std::byte> rows_of(const BlockRowsArgs& wanted) {
  const std::int64_t n_rows =
      wanted.slots.size() / row_tokens(wanted.shape, wanted.side, wanted.part);
  std::vector<std::byte> rows(static_cast<std::size_t>(n_rows) *
                              row_bytes(wanted.shape, wanted.side, wanted.part));
  BlockRowsArgs args = wanted;
  args.to = rows.data();
  copy_block_rows(args);
  return rows;
}

template <typename T>
T element(const std::vector<std::byte>& rows, std::size_t i) {
  T value;
  std::memcpy(&value, rows.data() + i * sizeof(T), sizeof(T));
  return value;
}

// Code number i: of dims one after the other, the first in a byte's lowest bits.
int code_in(const std::vector<std::byte>& rows, KvType type, std::size_t i) {
  const auto n_bits = static_cast<std::size_t>(32 / kv_lanes(type));
  const unsigned byte = element<std::uint8_t>(rows, i * n_bits / 8);
  return static_cast<int>(byte >> (i * n_bits % 8) & ((1U << n_bits) - 1));
}
float code_value(KvType type, int code) {
  if (type == KvType::kFp8) return to_float(Float8E4m3{static_cast<std::uint8_t>(code)});
  return static_cast<float>(code);
}

// Which scale and minimum are those of a code: of a row, or of 32 tokens or dims.
std::size_t range_of(const BlockRowsArgs& args, std::size_t token, std::size_t d) {
  const auto head_dim = static_cast<std::size_t>(args.shape.head_dim);
  if (!quantises_groups(kv_type_of(args.shape, args.side))) return token;
  return args.side == KvSide::kKeys ? token / 32 * head_dim + d : token * (head_dim / 32) + d / 32;
}

// The floats that the rows of all parts stand for, as docs/kv_files.md says.
std::vector<float> floats_of(BlockRowsArgs args) {
  const KvType type = kv_type_of(args.shape, args.side);
  const auto head_dim = static_cast<std::size_t>(args.shape.head_dim);
  const std::vector<std::byte> rows = rows_of(args);
  std::vector<std::byte> scales;
  std::vector<std::byte> minima;
  if (is_quantised(type)) {
    args.part = RowPart::kScales;
    scales = rows_of(args);
  }
  if (has_minima(type)) {
    args.part = RowPart::kMinima;
    minima = rows_of(args);
  }
  std::vector<float> values;
  for (std::size_t i = 0; i < static_cast<std::size_t>(args.slots.size()) * head_dim; ++i) {
    if (type == KvType::kF32) {
      values.push_back(element<float>(rows, i));
    } else if (type == KvType::kBf16) {
      values.push_back(to_float(element<BFloat16>(rows, i)));
    } else {
      const std::size_t range = range_of(args, i / head_dim, i % head_dim);
      const float minimum = has_minima(type) ? to_float(element<Float16>(minima, range)) : 0.0F;
      values.push_back(code_value(type, code_in(rows, type, i)) *
                           to_float(element<Float16>(scales, range)) +
                       minimum);
    }
  }
  return values;
}

TEST(BlockRows, AreWhatKvReadSays) {
  test::Random random(test::base_seed());
  const auto type = [&] {
    return kAllKvTypes[static_cast<std::size_t>(random.integer(0, std::ssize(kAllKvTypes) - 1))];
  };
  for (int round = 0; round < 120 * test::intensity(); ++round) {
    KvBlockShape shape{.k_type = type(), .v_type = type()};
    const bool in_groups = shape.quantises_groups();
    shape.block_size = (in_groups ? 32 : 16) * random.integer(1, 4);
    shape.head_dim = in_groups ? 32 * random.integer(1, 5) : 8 * random.integer(1, 10);
    std::vector<std::byte> block(shape.bytes());
    const std::vector<float> k = random.normals(shape.block_size * shape.head_dim);
    const std::vector<float> v = random.normals(shape.block_size * shape.head_dim);
    std::byte* data = block.data();
    const KvAppendItem item = {{k.data(), {shape.block_size, shape.head_dim}},
                               {v.data(), {shape.block_size, shape.head_dim}},
                               {&data, 1},
                               0};
    kv_append(StreamRef::cpu(), {shape, {&item, 1}});
    const std::int64_t group = in_groups ? 32 : 1;
    const std::int64_t first = random.integer(0, shape.block_size / group - 1) * group;
    const std::int64_t n = random.integer(1, (shape.block_size - first) / group) * group;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      std::vector<float> want(static_cast<std::size_t>(n * shape.head_dim));
      const TensorView<float, 2> view(want.data(), {n, shape.head_dim});
      (side == KvSide::kKeys ? kv_read_k : kv_read_v)(shape, block.data(), first, view);
      EXPECT_EQ(
          floats_of(
              {.shape = shape, .side = side, .block = block.data(), .slots = {first, first + n}}),
          want)
          << "round " << round;
    }
  }
}

TEST(BlockRows, RefusesSlotsOutsideTheBlock) {
  const KvBlockShape shape{.block_size = 16, .head_dim = 4};
  EXPECT_THROW(copy_block_rows({.shape = shape, .slots = {10, 17}}), Error);
  EXPECT_THROW(copy_block_rows({.shape = shape, .slots = {-1, 0}}), Error);
  const KvBlockShape groups{.block_size = 64, .head_dim = 32, .k_type = KvType::kKivi4};
  EXPECT_THROW(copy_block_rows({.shape = groups, .part = RowPart::kScales, .slots = {16, 48}}),
               Error);
}

TEST(BlockRows, FillABlockWithTheBitsThatWereCopied) {
  test::Random random(test::base_seed() + 1);
  for (const KvType type : kAllKvTypes) {
    const bool in_groups = quantises_groups(type);
    const KvBlockShape shape{.block_size = in_groups ? 96 : 32,
                             .head_dim = in_groups ? 96 : 24,
                             .k_type = type,
                             .v_type = type};
    const std::int64_t cut = in_groups ? 32 : 7;
    std::vector<std::byte> block(shape.bytes());
    for (std::byte& byte : block) byte = static_cast<std::byte>(random.integer(0, 255));
    std::vector<std::byte> filled(shape.bytes());
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      for (const RowPart part : row_parts(type)) {
        for (const Extent slots : {Extent{0, cut}, Extent{cut, shape.block_size}}) {
          const auto rows = rows_of(
              {.shape = shape, .side = side, .part = part, .block = block.data(), .slots = slots});
          fill_block_rows({.shape = shape,
                           .side = side,
                           .part = part,
                           .rows = rows.data(),
                           .slots = slots,
                           .block = filled.data()});
        }
      }
    }
    EXPECT_EQ(filled, block) << name_of(type);
  }
}

TEST(BlockRows, RunsLeaveOutPositionsAndJoinNeighbours) {
  const std::vector<KvBlockRef> blocks = {{nullptr, 0, 16}, {nullptr, 16, 16}, {nullptr, 48, 3}};
  EXPECT_EQ(n_tokens_in(block_runs(blocks, {})), 35);
  EXPECT_THAT(position_runs(block_runs(blocks, {})),
              testing::ElementsAre(Extent{0, 32}, Extent{48, 51}));
  const auto some = block_runs(blocks, {4, 20});
  EXPECT_THAT(position_runs(some),
              testing::ElementsAre(Extent{0, 4}, Extent{20, 32}, Extent{48, 51}));
  EXPECT_EQ(some[1].slots, (Extent{4, 16}));
  EXPECT_EQ(n_tokens_in(block_runs(blocks, {0, 48})), 3);
  EXPECT_TRUE(block_runs(blocks, {0, 51}).empty());
}

TEST(BlockRows, HaveWholeGroupsOnly) {
  const KvBlockShape groups{.block_size = 64, .head_dim = 32, .v_type = KvType::kKivi2};
  EXPECT_EQ(n_closed_tokens(groups, 191), 128);
  EXPECT_EQ(whole_groups(groups, {4, 95}), (Extent{32, 64}));
  EXPECT_EQ(whole_groups(groups, {33, 95}), Extent{});
  const KvBlockShape tokens{.block_size = 64, .head_dim = 32};
  EXPECT_EQ(n_closed_tokens(tokens, 191), 191);
  EXPECT_EQ(whole_groups(tokens, {4, 95}), (Extent{4, 95}));
}

CacheRows rows_of_floats(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {.values = {bytes.begin(), bytes.end()}, .scales = {}, .minima = {}};
}

std::vector<float> floats_in(const CacheRows& rows) {
  std::vector<float> values(rows.values.size() / sizeof(float));
  std::memcpy(values.data(), rows.values.data(), rows.values.size());
  return values;
}

TEST(ConvertRows, LoseWhatTheNewTypeCannotHoldAndNoMore) {
  test::Random random(test::base_seed() + 2);
  constexpr std::int64_t kTokens = 5;
  constexpr std::int64_t kDims = 16;
  const std::vector<float> values = random.normals(kTokens * kDims);
  const CacheRows floats = rows_of_floats(values);
  for (const KvType type : {KvType::kBf16, KvType::kInt8, KvType::kFp8, KvType::kInt4}) {
    const KvSide side = KvSide::kKeys;
    const CacheRows there = convert_rows(floats, {side, KvType::kF32, type}, kTokens, kDims);
    const auto back = floats_in(convert_rows(there, {side, type, KvType::kF32}, kTokens, kDims));
    ASSERT_EQ(back.size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      // Half a step: of bf16's 8 bits and E4M3's 4, the first of which is always 1 (but for numbers
      // below a 28672th of the row's largest); of codes, of a row that spans at most 10.
      const double step = type == KvType::kBf16   ? std::abs(values[i]) / 128
                          : type == KvType::kFp8  ? std::abs(values[i]) / 8 + 1e-4
                          : type == KvType::kInt8 ? 10.0 / 255
                                                  : 10.0 / 15;
      EXPECT_NEAR(back[i], values[i], 0.51 * step) << name_of(type);
      if (type == KvType::kBf16) {
        EXPECT_EQ(back[i], to_float(to_bf16(values[i])));
      }
    }
  }
  EXPECT_EQ(convert_rows(floats, {}, kTokens, kDims).values, floats.values);
}

TEST(ConvertRows, GroupsBecomeWhatTheirCodesStandFor) {
  test::Random random(test::base_seed() + 3);
  for (const KvType type : kGroupedKvTypes) {
    const KvBlockShape shape{.block_size = 64, .head_dim = 64, .k_type = type, .v_type = type};
    std::vector<std::byte> block(shape.bytes());
    for (std::size_t i = 0; i < block.size(); i += 2) {  // f16 of small numbers, and codes
      const auto bits = to_f16(static_cast<float>(random.uniform(-3, 5))).bits;
      std::memcpy(block.data() + i, &bits, sizeof(bits));
    }
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      BlockRowsArgs args{.shape = shape, .side = side, .block = block.data(), .slots = {0, 64}};
      CacheRows rows{.values = rows_of(args), .scales = {}, .minima = {}};
      args.part = RowPart::kScales;
      rows.scales = rows_of(args);
      args.part = RowPart::kMinima;
      rows.minima = rows_of(args);
      std::vector<float> want(64 * 64);
      const TensorView<float, 2> view(want.data(), {64, 64});
      (side == KvSide::kKeys ? kv_read_k : kv_read_v)(shape, block.data(), 0, view);
      EXPECT_EQ(floats_in(convert_rows(rows, {side, type, KvType::kF32}, 64, 64)), want);
      EXPECT_THROW(convert_rows(rows_of_floats(want), {side, KvType::kF32, type}, 64, 64), Error);
    }
  }
}

}  // namespace
}  // namespace longhaul
