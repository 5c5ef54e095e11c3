#include "worker/snapshot/block_words.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace longhaul {
namespace {

// Four words: GCC's and Clang's vectors, on any machine.
using Words = std::uint32_t __attribute__((vector_size(16)));

Words load(const std::byte* from) {
  Words words;
  std::memcpy(&words, from, sizeof(words));
  return words;
}
void store(Words words, std::byte* to) { std::memcpy(to, &words, sizeof(words)); }

// Eight codes of 4 bits: in rows dim i stands in bits 4 i, in blocks dims 0 to 3 stand in the lower
// halves of bytes and 4 to 7 in the upper ones. Of one word or of four.
template <typename T>
T spread(T codes) {  // four codes, each to the lower half of a byte
  codes = (codes | codes << 8) & 0x00ff00ffU;
  return (codes | codes << 4) & 0x0f0f0f0fU;
}
template <typename T>
T gather(T codes) {
  codes = (codes | codes >> 4) & 0x00ff00ffU;
  return (codes | codes >> 8) & 0x0000ffffU;
}
struct AsTheyAre {
  template <typename T>
  static T to_block(T word) {
    return word;
  }
  template <typename T>
  static T to_row(T word) {
    return word;
  }
};
struct Int4Codes {
  template <typename T>
  static T to_block(T word) {
    return spread(word & 0xffffU) | spread(word >> 16) << 4;
  }
  template <typename T>
  static T to_row(T word) {
    return gather(word & 0x0f0f0f0fU) | gather((word >> 4) & 0x0f0f0f0fU) << 16;
  }
};

// to[j][i] = change(from[i][j]), 32-bit words, in squares of four.
struct Transposition {
  const std::byte* from = nullptr;
  std::int64_t from_stride = 0;  // words
  std::int64_t n_rows = 0;       // of `from`
  std::int64_t n_columns = 0;
  std::byte* to = nullptr;
  std::int64_t to_stride = 0;
};
template <typename Change>
void transpose(const Transposition& t, const Change& change) {
  const auto from = [&](std::int64_t i, std::int64_t j) {
    return t.from + 4 * static_cast<std::size_t>(i * t.from_stride + j);
  };
  const auto to = [&](std::int64_t j, std::int64_t i) {
    return t.to + 4 * static_cast<std::size_t>(j * t.to_stride + i);
  };
  const auto move = [&](std::int64_t i, std::int64_t j) {
    std::uint32_t word = 0;
    std::memcpy(&word, from(i, j), sizeof(word));
    word = change(word);
    std::memcpy(to(j, i), &word, sizeof(word));
  };
  std::int64_t i = 0;
  for (; i + 4 <= t.n_rows; i += 4) {
    std::int64_t j = 0;
    for (; j + 4 <= t.n_columns; j += 4) {
      const std::array<Words, 4> r = {load(from(i, j)), load(from(i + 1, j)), load(from(i + 2, j)),
                                      load(from(i + 3, j))};
      const Words low01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
      const Words high01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
      const Words low23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
      const Words high23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
      store(change(__builtin_shufflevector(low01, low23, 0, 1, 4, 5)), to(j, i));
      store(change(__builtin_shufflevector(low01, low23, 2, 3, 6, 7)), to(j + 1, i));
      store(change(__builtin_shufflevector(high01, high23, 0, 1, 4, 5)), to(j + 2, i));
      store(change(__builtin_shufflevector(high01, high23, 2, 3, 6, 7)), to(j + 3, i));
    }
    for (; j < t.n_columns; ++j) {
      for (std::int64_t k = 0; k < 4; ++k) move(i + k, j);
    }
  }
  for (; i < t.n_rows; ++i) {
    for (std::int64_t j = 0; j < t.n_columns; ++j) move(i, j);
  }
}

// Rows of T, one for each of kLanes tokens, as words that hold one element of each, and back. The
// rows of neighbouring tokens are `stride` elements apart.
template <typename T, std::size_t kLanes>
void interleave(const std::byte* rows, std::size_t stride, std::size_t n, std::byte* words) {
  constexpr unsigned kBits = 8 * sizeof(T);
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t word = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      T value;
      std::memcpy(&value, rows + (lane * stride + i) * sizeof(T), sizeof(T));
      word |= std::uint32_t{value} << (kBits * lane);
    }
    std::memcpy(words + 4 * i, &word, sizeof(word));
  }
}
template <typename T, std::size_t kLanes>
void part(const std::byte* words, std::size_t n, std::byte* rows, std::size_t stride) {
  constexpr unsigned kBits = 8 * sizeof(T);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    for (std::size_t i = 0; i < n; ++i) {
      std::uint32_t word = 0;
      std::memcpy(&word, words + 4 * i, sizeof(word));
      const auto value = static_cast<T>(word >> (kBits * lane));
      std::memcpy(rows + (lane * stride + i) * sizeof(T), &value, sizeof(T));
    }
  }
}

// 4-bit codes of eight tokens: a word of a block has one dim of each, a byte of a row two dims. Two
// words become two others that have the row bytes of tokens 0 to 3 and of 4 to 7, and back.
constexpr std::uint32_t kLow = 0x0f0f0f0fU;
constexpr std::size_t kAtOnce = 32;  // bytes of a row
using Bytes = std::array<std::byte, 4 * kAtOnce>;

void interleave_int4(const std::byte* rows, std::size_t n_dims, std::byte* words) {
  const std::size_t stride = n_dims / 2;
  for (std::size_t first = 0; first < stride; first += kAtOnce) {
    const std::size_t n = std::min(kAtOnce, stride - first);
    Bytes lower;
    Bytes upper;
    interleave<std::uint8_t, 4>(rows + first, stride, n, lower.data());
    interleave<std::uint8_t, 4>(rows + 4 * stride + first, stride, n, upper.data());
    for (std::size_t i = 0; i < n; ++i) {
      std::uint32_t low = 0;
      std::uint32_t high = 0;
      std::memcpy(&low, lower.data() + 4 * i, sizeof(low));
      std::memcpy(&high, upper.data() + 4 * i, sizeof(high));
      const std::array two = {(low & kLow) | (high & kLow) << 4,
                              (low >> 4 & kLow) | (high & ~kLow)};
      std::memcpy(words + 8 * (first + i), two.data(), sizeof(two));
    }
  }
}
void part_int4(const std::byte* words, std::size_t n_dims, std::byte* rows) {
  const std::size_t stride = n_dims / 2;
  for (std::size_t first = 0; first < stride; first += kAtOnce) {
    const std::size_t n = std::min(kAtOnce, stride - first);
    Bytes lower;
    Bytes upper;
    for (std::size_t i = 0; i < n; ++i) {
      std::array<std::uint32_t, 2> two;  // the even dim and the odd one
      std::memcpy(two.data(), words + 8 * (first + i), sizeof(two));
      const std::uint32_t low = (two[0] & kLow) | (two[1] & kLow) << 4;
      const std::uint32_t high = (two[0] >> 4 & kLow) | (two[1] & ~kLow);
      std::memcpy(lower.data() + 4 * i, &low, sizeof(low));
      std::memcpy(upper.data() + 4 * i, &high, sizeof(high));
    }
    part<std::uint8_t, 4>(lower.data(), n, rows + first, stride);
    part<std::uint8_t, 4>(upper.data(), n, rows + 4 * stride + first, stride);
  }
}

std::int64_t n_words(const KvBlockShape& shape) { return shape.head_dim / kv_lanes(shape.k_type); }

}  // namespace

void keys_to_rows(const KeyWordsArgs& args, const std::byte* block, std::byte* rows) {
  const Transposition t{.from = block + 4 * args.slots.begin,
                        .from_stride = args.shape.block_size,
                        .n_rows = n_words(args.shape),
                        .n_columns = args.slots.size(),
                        .to = rows,
                        .to_stride = n_words(args.shape)};
  if (args.shape.k_type == KvType::kInt4)
    return transpose(t, [](auto words) { return Int4Codes::to_row(words); });
  transpose(t, [](auto words) { return AsTheyAre::to_row(words); });
}

void keys_from_rows(const KeyWordsArgs& args, const std::byte* rows, std::byte* block) {
  const Transposition t{.from = rows,
                        .from_stride = n_words(args.shape),
                        .n_rows = args.slots.size(),
                        .n_columns = n_words(args.shape),
                        .to = block + 4 * args.slots.begin,
                        .to_stride = args.shape.block_size};
  if (args.shape.k_type == KvType::kInt4)
    return transpose(t, [](auto words) { return Int4Codes::to_block(words); });
  transpose(t, [](auto words) { return AsTheyAre::to_block(words); });
}

void values_to_rows(const KvBlockShape& shape, const std::byte* words, std::byte* rows) {
  const auto n = static_cast<std::size_t>(shape.head_dim);
  switch (shape.v_type) {
    case KvType::kF32:
      std::memcpy(rows, words, 4 * n);
      return;
    case KvType::kBf16:
      return part<std::uint16_t, 2>(words, n, rows, n);
    case KvType::kInt8:
      return part<std::uint8_t, 4>(words, n, rows, n);
    case KvType::kInt4:
      return part_int4(words, n, rows);
    case KvType::kKivi4:
    case KvType::kKivi2:
      break;
  }
  throw Error(ErrorCode::kInternal, "rows of files hold no groups of tokens");
}

void values_from_rows(const KvBlockShape& shape, const std::byte* rows, std::byte* words) {
  const auto n = static_cast<std::size_t>(shape.head_dim);
  switch (shape.v_type) {
    case KvType::kF32:
      std::memcpy(words, rows, 4 * n);
      return;
    case KvType::kBf16:
      return interleave<std::uint16_t, 2>(rows, n, n, words);
    case KvType::kInt8:
      return interleave<std::uint8_t, 4>(rows, n, n, words);
    case KvType::kInt4:
      return interleave_int4(rows, n, words);
    case KvType::kKivi4:
    case KvType::kKivi2:
      break;
  }
  throw Error(ErrorCode::kInternal, "rows of files hold no groups of tokens");
}

}  // namespace longhaul
