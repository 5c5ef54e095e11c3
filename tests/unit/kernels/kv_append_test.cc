// Cache writes: what is appended is read back, and lies where kernels/kv_block.h says.
#include "kernels/kv_append.h"
#include "kernels/reference/kv_read.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

class KvAppend : public EachDevice {};
LONGHAUL_ON_EACH_DEVICE(KvAppend);

struct Blocks {
  StreamRef stream;
  KvBlockShape shape;
  std::vector<Memory<std::byte>> memory;
  std::vector<std::byte*> pointers;
  Blocks(StreamRef on, const KvBlockShape& s, std::size_t n) : stream(on), shape(s) {
    for (std::size_t i = 0; i < n; ++i) {
      memory.emplace_back(on, static_cast<std::int64_t>(s.bytes()));
    }
    for (auto& block : memory) pointers.push_back(block.data());
  }
  std::vector<std::byte> bytes(std::size_t block) const { return memory[block].values(); }
};

// Tokens of k and v [n, 3 head_dim], of which the first head_dim count: other heads lie between.
void append(Blocks& blocks, const std::vector<float>& k, const std::vector<float>& v,
            std::int64_t first_token, std::int64_t n_tokens) {
  const std::int64_t head_dim = blocks.shape.head_dim;
  const Memory k_there(blocks.stream, k);
  const Memory v_there(blocks.stream, v);
  const auto rows = [&](const Memory<float>& x) {
    return TensorView<const float, 2>(x.data() + first_token * 3 * head_dim, {n_tokens, head_dim},
                                      {3 * head_dim, 1});
  };
  const KvAppendItem item = {rows(k_there), rows(v_there), blocks.pointers, first_token};
  kv_append(blocks.stream, {blocks.shape, {&item, 1}});
}

// All slots of the first block from contiguous rows.
void fill_block(Blocks& blocks, const std::vector<float>& x) {
  const Memory there(blocks.stream, x);
  const TensorView<const float, 2> view(there.data(),
                                        {blocks.shape.block_size, blocks.shape.head_dim});
  const KvAppendItem item = {view, view, blocks.pointers, 0};
  kv_append(blocks.stream, {blocks.shape, {&item, 1}});
}

// Rows in runs and one by one, some of them twice, over the edge of a block: as if they lay there.
TEST_P(KvAppend, OfListedRowsAreTheBytesOfTheseRows) {
  const std::vector<std::int32_t> listed = {3,  4,  5,  9,  9,  0, 22, 7, 8,
                                            12, 13, 14, 15, 16, 1, 2,  21};
  constexpr std::int64_t kDim = 16;
  for (const KvType type : kPlainKvTypes) {
    for (const std::int64_t first_slot : {0, 5}) {
      const KvBlockShape shape = {
          .block_size = 16, .head_dim = kDim, .k_type = type, .v_type = type};
      Random random(base_seed());
      const std::vector<float> x = random.normals(23 * kDim);
      std::vector<float> gathered;
      for (const std::int32_t row : listed)
        gathered.insert(gathered.end(), x.begin() + row * kDim, x.begin() + (row + 1) * kDim);
      const auto bytes_of = [&](const std::vector<float>& values,
                                std::span<const std::int32_t> rows) {
        Blocks blocks(stream(), shape, 2);
        const Memory there(stream(), values);
        const TensorView<const float, 2> view(
            there.data(), {static_cast<std::int64_t>(values.size()) / kDim, kDim});
        const KvAppendItem item{.k = view,
                                .v = view,
                                .blocks = blocks.pointers,
                                .first_slot = first_slot,
                                .rows = rows};
        kv_append(stream(), {shape, {&item, 1}});
        return std::vector{blocks.bytes(0), blocks.bytes(1)};
      };
      EXPECT_EQ(bytes_of(x, listed), bytes_of(gathered, {})) << name_of(type) << " " << first_slot;
    }
  }
  const KvBlockShape shape = {.block_size = 16, .head_dim = kDim};
  Blocks blocks(stream(), shape, 1);
  const Memory<float> there(stream(), 2 * kDim);
  const TensorView<const float, 2> view(there.data(), {2, kDim});
  const std::vector<std::int32_t> beyond = {2};
  const KvAppendItem item{.k = view, .v = view, .blocks = blocks.pointers, .rows = beyond};
  EXPECT_THROW(kv_append(stream(), {shape, {&item, 1}}), Error);
}

TEST_P(KvAppend, RoundTripAtOddOffsets) {
  Random random(base_seed());
  for (const KvType k_type : {KvType::kF32, KvType::kBf16}) {
    for (const KvType v_type : {KvType::kF32, KvType::kBf16}) {
      const KvBlockShape shape = {
          .block_size = 16, .head_dim = 10, .k_type = k_type, .v_type = v_type};
      Blocks blocks(stream(), shape, 4);
      std::vector<float> k = random.normals(64 * 30);
      std::vector<float> v = random.normals(64 * 30);
      for (std::int64_t token = 0; token < 61;) {
        const std::int64_t n_tokens = std::min<std::int64_t>(61 - token, random.integer(1, 20));
        append(blocks, k, v, token, n_tokens);
        token += n_tokens;
      }
      for (std::int64_t token = 0; token < 61; ++token) {
        const std::vector<std::byte> bytes = blocks.bytes(static_cast<std::size_t>(token / 16));
        const std::byte* block = bytes.data();
        std::vector<float> got_k(10);
        std::vector<float> got_v(10);
        kv_read_k(shape, block, token % 16, TensorView<float, 2>(got_k.data(), {1, 10}));
        kv_read_v(shape, block, token % 16, TensorView<float, 2>(got_v.data(), {1, 10}));
        for (std::size_t d = 0; d < 10; ++d) {
          const std::size_t at = static_cast<std::size_t>(token) * 30 + d;
          const auto stored = [](KvType type, float x) {
            return type == KvType::kBf16 ? to_float(to_bf16(x)) : x;
          };
          EXPECT_EQ(got_k[d], stored(k_type, k[at]));
          EXPECT_EQ(got_v[d], stored(v_type, v[at]));
        }
      }
    }
  }
}

// The example in kernels/kv_block.h, at the smallest block: pairs of dims of K lie together, pairs
// of tokens of V.
TEST_P(KvAppend, LayoutIsTheOneWrittenDown) {
  const KvBlockShape shape = {
      .block_size = 16, .head_dim = 8, .k_type = KvType::kBf16, .v_type = KvType::kBf16};
  Blocks blocks(stream(), shape, 1);
  std::vector<float> k(16 * 8);
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = static_cast<float>(i);  // 8 token + dim
  fill_block(blocks, k);
  const std::vector<std::byte> bytes = blocks.bytes(0);
  const auto half = [&](std::size_t index) {
    BFloat16 x;
    std::memcpy(&x.bits, bytes.data() + 2 * index, 2);
    return to_float(x);
  };
  const auto token_dim = [](int token, int dim) { return static_cast<float>(8 * token + dim); };
  EXPECT_EQ(half(0), token_dim(0, 0));
  EXPECT_EQ(half(1), token_dim(0, 1));
  EXPECT_EQ(half(2), token_dim(1, 0));
  EXPECT_EQ(half(32), token_dim(0, 2));
  EXPECT_EQ(half(128 + 0), token_dim(0, 0));
  EXPECT_EQ(half(128 + 1), token_dim(1, 0));
  EXPECT_EQ(half(128 + 2), token_dim(0, 1));
  EXPECT_EQ(half(128 + 16), token_dim(2, 0));
}

// Quantised: a word holds 4 or 8 codes; the token's scale and minimum stand behind all words.
TEST_P(KvAppend, QuantisedLayoutIsTheOneWrittenDown) {
  for (const KvType type : {KvType::kInt8, KvType::kInt4}) {
    const KvBlockShape shape = {.block_size = 16, .head_dim = 16, .k_type = type, .v_type = type};
    const int most = type == KvType::kInt8 ? 255 : 15;
    Blocks blocks(stream(), shape, 1);
    std::vector<float> x(16 * 16);  // of each token: minimum -1, scale 0.5
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t dim = i % 16;
      const int code = dim == 0 ? 0 : dim == 15 ? most : static_cast<int>((i / 16 + dim) % 16);
      x[i] = 0.5F * static_cast<float>(code) - 1;
    }
    fill_block(blocks, x);
    const std::vector<std::byte> bytes = blocks.bytes(0);
    const auto code_at = [&](std::size_t token, std::size_t dim, bool of_k) {
      const std::size_t lanes = type == KvType::kInt8 ? 4 : 8;
      const std::size_t word = of_k ? dim / lanes * 16 + token : token / lanes * 16 + dim;
      const std::size_t index = of_k ? dim % lanes : token % lanes;
      const auto* part =
          reinterpret_cast<const unsigned char*>(bytes.data()) + (of_k ? 0 : shape.k_bytes());
      const unsigned byte = part[4 * word + index % 4];
      return type == KvType::kInt8 ? byte : index < 4 ? byte & 15U : byte >> 4;
    };
    for (std::size_t token = 0; token < 16; ++token) {
      for (std::size_t dim = 0; dim < 16; ++dim) {
        const float want = (x[token * 16 + dim] + 1) * 2;
        EXPECT_EQ(static_cast<float>(code_at(token, dim, true)), want);
        EXPECT_EQ(static_cast<float>(code_at(token, dim, false)), want);
      }
      std::uint16_t scale = 0;
      std::uint16_t minimum = 0;
      std::memcpy(&scale, bytes.data() + shape.k_bytes() - 64 + 2 * token, 2);
      std::memcpy(&minimum, bytes.data() + shape.k_bytes() - 32 + 2 * token, 2);
      EXPECT_EQ(scale, 0x3800);    // 0.5
      EXPECT_EQ(minimum, 0xbc00);  // -1
    }
  }
}

// fp8: words as of int8, behind them a scale for each token and nothing else.
TEST_P(KvAppend, Fp8LayoutIsTheOneWrittenDown) {
  const KvBlockShape shape = {
      .block_size = 16, .head_dim = 16, .k_type = KvType::kFp8, .v_type = KvType::kFp8};
  ASSERT_EQ(shape.k_bytes(), 16U * 16 + 2 * 16);
  Blocks blocks(stream(), shape, 1);
  std::vector<float> x(16 * 16);  // of each token, the largest 0.5 x 448
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t dim = i % 16;
    x[i] = dim == 0 ? -224.0F : 0.5F * static_cast<float>((i / 16 + dim) % 16);
  }
  fill_block(blocks, x);
  const std::vector<std::byte> bytes = blocks.bytes(0);
  for (std::size_t token = 0; token < 16; ++token) {
    for (std::size_t dim = 0; dim < 16; ++dim) {
      const auto want = static_cast<std::byte>(to_e4m3(2 * x[token * 16 + dim]).bits);
      EXPECT_EQ(bytes[4 * (dim / 4 * 16 + token) + dim % 4], want);
      EXPECT_EQ(bytes[shape.k_bytes() + 4 * (token / 4 * 16 + dim) + token % 4], want);
    }
    std::uint16_t scale = 0;
    std::memcpy(&scale, bytes.data() + 16 * 16 + 2 * token, 2);
    EXPECT_EQ(scale, 0x3800);  // 0.5
  }
}

TEST_P(KvAppend, NeighbouringSlotsStay) {
  const KvBlockShape shape = {.block_size = 16, .head_dim = 8, .v_type = KvType::kBf16};
  Blocks blocks(stream(), shape, 1);
  const std::vector<float> k(16 * 24, 1.0F);
  append(blocks, k, k, 5, 3);
  const std::vector<std::byte> bytes = blocks.bytes(0);
  std::vector<float> all(16 * 8);
  const TensorView<float, 2> view(all.data(), {16, 8});
  for (const bool of_k : {true, false}) {
    (of_k ? kv_read_k : kv_read_v)(shape, bytes.data(), 0, view);
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i], i / 8 >= 5 && i / 8 < 8 ? 1.0F : 0.0F);
    }
  }
}

// Appended in pieces that begin and end within words, on any device: the CPU's bytes, to the bit.
TEST_P(KvAppend, EveryDeviceWritesTheSameBytes) {
  Random random(base_seed());
  for (const KvType k_type : kPlainKvTypes) {
    for (const KvType v_type : kPlainKvTypes) {
      const KvBlockShape shape = {
          .block_size = 32, .head_dim = 40, .k_type = k_type, .v_type = v_type};
      Blocks there(stream(), shape, 3);
      Blocks here(StreamRef::cpu(), shape, 3);
      std::vector<float> k = random.normals(96 * 120, random.chance(0.5) ? 1.0 : 1e4);
      const std::vector<float> v = random.normals(96 * 120, random.chance(0.5) ? 1.0 : 1e-6);
      k[3 * 120 + 7] = 1e6F;                                        // beyond f16
      for (std::size_t i = 0; i < 40; ++i) k[4 * 120 + i] = -0.3F;  // a constant group
      // GPUs have a NaN of their own in 16 bits.
      if (k_type != KvType::kBf16) k[5 * 120 + 8] = std::nanf("");
      for (std::int64_t token = 0; token < 96;) {
        const std::int64_t n_tokens = std::min<std::int64_t>(96 - token, random.integer(1, 45));
        append(there, k, v, token, n_tokens);
        append(here, k, v, token, n_tokens);
        token += n_tokens;
      }
      for (std::size_t block = 0; block < 3; ++block) {
        EXPECT_EQ(there.bytes(block), here.bytes(block))
            << name_of(k_type) << " " << name_of(v_type) << " block " << block;
      }
    }
  }
}

TEST(KvAppendArguments, BadOnesAreRefused) {
  const KvBlockShape shape = {.block_size = 16, .head_dim = 8};
  Blocks blocks(StreamRef::cpu(), shape, 2);
  std::vector<float> k(40 * 8);
  const auto refused = [&](KvBlockShape s, std::int64_t n_tokens, std::int64_t first_slot) {
    const TensorView<const float, 2> view(k.data(), {n_tokens, 8});
    const KvAppendItem item = {view, view, blocks.pointers, first_slot};
    EXPECT_THROW(kv_append(StreamRef::cpu(), {s, {&item, 1}}), Error);
  };
  refused(shape, 33, 0);
  refused(shape, 1, 32);
  refused(shape, 1, -1);
  refused({.block_size = 17, .head_dim = 8}, 1, 0);
  refused({.block_size = 16, .head_dim = 9}, 1, 0);
  refused({.block_size = 16, .head_dim = 16}, 1, 0);
  refused({.block_size = 16, .head_dim = 12, .k_type = KvType::kInt4}, 1, 0);
  const TensorView<float, 2> out(k.data(), {10, 8});
  EXPECT_THROW(kv_read_k(shape, blocks.pointers[0], 7, out), Error);
}

}  // namespace
}  // namespace longhaul::test
