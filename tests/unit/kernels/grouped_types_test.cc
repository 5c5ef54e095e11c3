// Caches that quantise groups of tokens (KIVI): codes and ranges are those of the published
// formula, and lie where kernels/kv_block.h says.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "kernels/kv_append.h"
#include "kernels/kv_close.h"
#include "kernels/kv_copy.h"
#include "kernels/kv_quantise.h"
#include "kernels/read_keys.h"
#include "kernels/reference/kv_read.h"
#include "tests/support/paths.h"
#include "tests/support/random.h"

namespace longhaul::test {
namespace {

// tests/golden/make_kivi_goldens.py made them.
TEST(GroupedTypes, CodesAndRangesAreThePublishedFormulas) {
  const std::string path = source_path("tests/golden/kivi_groups.json");
  const Json json = parse_json(read_file(path, 1 << 20), path);
  const JsonField groups = JsonField(json, path).at("groups");
  ASSERT_EQ(groups.size(), 60U);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const JsonField group = groups.at(i);
    std::vector<float> values;
    for (std::size_t v = 0; v < group.at("values").size(); ++v)
      values.push_back(static_cast<float>(group.at("values").at(v).as_number()));
    for (const KvType type : kGroupedKvTypes) {
      const JsonField want = group.at(std::string(name_of(type)));
      std::vector<std::uint8_t> codes(values.size());
      const KvGroupRange range = quantise_group(type, values, codes);
      EXPECT_EQ(range.scale.bits, want.at("scale").as_integer(0, 65535)) << "group " << i;
      EXPECT_EQ(range.minimum.bits, want.at("minimum").as_integer(0, 65535)) << "group " << i;
      for (std::size_t v = 0; v < codes.size(); ++v)
        EXPECT_EQ(codes[v], want.at("codes").at(v).as_integer(0, 15)) << "group " << i;
    }
  }
}

TEST(GroupedTypes, WhatF16CannotHoldSaturatesAndNansStay) {
  std::vector<std::uint8_t> codes(3);
  const KvGroupRange large =
      quantise_group(KvType::kKivi2, std::vector<float>{-1e9F, 0.0F, 1e9F}, codes);
  EXPECT_EQ(to_float(large.minimum), -65504.0F);
  EXPECT_EQ(to_float(large.scale), 65504.0F);
  EXPECT_EQ(codes[2], 3);
  const float bad = std::numeric_limits<float>::infinity();
  const KvGroupRange nan = quantise_group(KvType::kKivi4, std::vector<float>{1, bad, 2}, codes);
  EXPECT_TRUE(std::isnan(to_float(nan.minimum)));
}

// One block of random tokens, closed.
struct Closed {
  KvBlockShape shape;
  std::vector<float> k;  // [block_size, head_dim]
  std::vector<float> v;
  std::vector<std::byte> block;
};

Closed close_random(const KvBlockShape& shape, std::uint64_t seed) {
  Random random(seed);
  Closed out{.shape = shape, .k = {}, .v = {}, .block = std::vector<std::byte>(shape.bytes())};
  out.k = random.normals(shape.block_size * shape.head_dim);
  out.v = random.normals(shape.block_size * shape.head_dim);
  const KvBlockShape open_shape = open_block_shape(shape);
  std::vector<std::byte> open(open_shape.bytes());
  std::byte* to = open.data();
  const auto rows = [&](const std::vector<float>& x) {
    return TensorView<const float, 2>(x.data(), {shape.block_size, shape.head_dim});
  };
  const KvAppendItem item{.k = rows(out.k), .v = rows(out.v), .blocks = {&to, 1}};
  kv_append(StreamRef::cpu(), {open_shape, {&item, 1}});
  const KvCloseItem close{.open = open.data(), .closed = out.block.data()};
  kv_close(StreamRef::cpu(), {.shape = shape, .items = {&close, 1}});
  return out;
}

// The layout by hand: words, bits, scales and minima.
TEST(GroupedTypes, LayoutIsTheOneWrittenDown) {
  for (const KvType type : kGroupedKvTypes) {
    const KvBlockShape shape{.block_size = 64, .head_dim = 96, .k_type = type, .v_type = type};
    const Closed closed = close_random(shape, base_seed());
    const int bits = type == KvType::kKivi4 ? 4 : 2;
    const std::size_t lanes = static_cast<std::size_t>(32 / bits);
    const auto byte_at = [&](std::size_t at) { return static_cast<unsigned>(closed.block[at]); };
    const auto code = [&](std::size_t word, std::size_t index) {
      return byte_at(4 * word + index % 4) >> (bits * (index / 4)) & ((1U << bits) - 1);
    };
    const auto half = [&](std::size_t at) {
      return to_float(Float16{static_cast<std::uint16_t>(byte_at(at) | byte_at(at + 1) << 8)});
    };
    const std::size_t codes = 64 * 96 * static_cast<std::size_t>(bits) / 8;
    const std::size_t ranges = 2 * 64 * 96 / 32;  // bytes of all scales, and of all minima
    EXPECT_EQ(shape.k_bytes(), codes + 2 * ranges);
    std::vector<float> group(32);
    std::vector<std::uint8_t> want(32);
    for (std::size_t d = 0; d < 96; ++d) {
      for (std::size_t begin = 0; begin < 64; begin += 32) {
        for (std::size_t i = 0; i < 32; ++i) group[i] = closed.k[(begin + i) * 96 + d];
        const KvGroupRange range = quantise_group(type, group, want);
        for (std::size_t i = 0; i < 32; ++i)
          ASSERT_EQ(code(d / lanes * 64 + begin + i, d % lanes), want[i]);
        const std::size_t at = codes + 2 * (begin / 32 * 96 + d);
        ASSERT_EQ(half(at), to_float(range.scale));
        ASSERT_EQ(half(at + ranges), to_float(range.minimum));
      }
    }
    const std::size_t v = shape.k_bytes();
    for (std::size_t token = 0; token < 64; ++token) {
      for (std::size_t begin = 0; begin < 96; begin += 32) {
        for (std::size_t i = 0; i < 32; ++i) group[i] = closed.v[token * 96 + begin + i];
        const KvGroupRange range = quantise_group(type, group, want);
        for (std::size_t i = 0; i < 32; ++i)
          ASSERT_EQ(code(v / 4 + token / lanes * 96 + begin + i, token % lanes), want[i]);
        const std::size_t at = v + codes + 2 * (begin / 32 * 64 + token);
        ASSERT_EQ(half(at), to_float(range.scale));
        ASSERT_EQ(half(at + ranges), to_float(range.minimum));
      }
    }
  }
}

TEST(GroupedTypes, AllReadersAgreeAndOtherTypesMayLieBeside) {
  for (const KvType k_type : kAllKvTypes) {
    for (const KvType v_type : kAllKvTypes) {
      const KvBlockShape shape{
          .block_size = 32, .head_dim = 64, .k_type = k_type, .v_type = v_type};
      const Closed closed = close_random(shape, base_seed() + 1);
      Tensor<float, 2> k({32, 64});
      Tensor<float, 2> v({32, 64});
      kv_read_k(shape, closed.block.data(), 0, k.view());
      kv_read_v(shape, closed.block.data(), 0, v.view());
      std::vector<float> value(64);
      for (const Extent slots : {Extent{0, 32}, Extent{5, 29}, Extent{31, 32}}) {
        KeyReader reader(shape, closed.block.data(), slots);
        std::vector<float> key(static_cast<std::size_t>(slots.size()));
        for (std::int64_t d = 0; d < 64; ++d) {
          reader.read(d, key);
          for (std::int64_t slot = slots.begin; slot < slots.end; ++slot)
            ASSERT_EQ(key[static_cast<std::size_t>(slot - slots.begin)], k.view()[slot][d]);
        }
      }
      for (std::int64_t slot = 0; slot < 32; ++slot) {
        read_value(shape, closed.block.data(), slot, value);
        for (std::int64_t d = 0; d < 64; ++d)
          ASSERT_EQ(value[static_cast<std::size_t>(d)], v.view()[slot][d]);
      }
      // Of normal numbers: three quarters of a step of 2 bits at the most.
      for (std::size_t i = 0; i < closed.k.size(); ++i) {
        ASSERT_NEAR(k.data()[i], closed.k[i], 1.5) << name_of(k_type);
        ASSERT_NEAR(v.data()[i], closed.v[i], 1.5) << name_of(v_type);
      }
    }
  }
}

TEST(GroupedTypes, WhatCannotBeIsRefused) {
  const auto refused = [](const KvBlockShape& shape, std::int64_t n_tokens, std::int64_t slot) {
    std::vector<std::byte> block(1 << 16);
    std::byte* to = block.data();
    const std::vector<float> x(64 * 64);
    const TensorView<const float, 2> rows(x.data(), {n_tokens, shape.head_dim});
    const KvAppendItem item{.k = rows, .v = rows, .blocks = {&to, 1}, .first_slot = slot};
    EXPECT_THROW(kv_append(StreamRef::cpu(), {shape, {&item, 1}}), Error);
  };
  const KvBlockShape good{.block_size = 64, .head_dim = 64, .k_type = KvType::kKivi4};
  refused(good, 33, 0);
  refused(good, 32, 16);
  refused({.block_size = 48, .head_dim = 64, .v_type = KvType::kKivi2}, 32, 0);
  refused({.block_size = 64, .head_dim = 48, .v_type = KvType::kKivi2}, 32, 0);
  std::vector<std::byte> from(good.bytes());
  std::vector<std::byte> to(good.bytes());
  const KvCopyItem part{.from = from.data(), .to = to.data(), .n_tokens = 32};
  EXPECT_THROW(kv_copy(StreamRef::cpu(), {good, {&part, 1}}), Error);
}

}  // namespace
}  // namespace longhaul::test
