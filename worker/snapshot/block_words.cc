#include "worker/snapshot/block_words.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

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

// Values of kLanes neighbouring tokens: as many vectors of words, or 16 bytes of each token's row.
template <std::size_t kLanes>
using Tile = std::array<Words, kLanes>;

Tile<4> transposed(const Tile<4>& r) {
  const Words low01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  const Words high01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  const Words low23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const Words high23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  return {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
          __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
          __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
          __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
}

// Eight codes of 4 bits: in rows dim i stands in bits 4 i, in blocks dims 0 to 3 stand in the lower
// halves of bytes and 4 to 7 in the upper ones. Of one word or of four.
template <int kDistance, typename T>
T exchanged(T word, std::uint32_t lower) {  // bits of `lower`, and those at that distance above
  const T differences = (word ^ word >> kDistance) & lower;
  return word ^ differences ^ differences << kDistance;
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
struct FourBits {
  template <typename T>
  static T to_block(T word) {
    return exchanged<4>(exchanged<8>(word, 0x0000ff00U), 0x00f000f0U);
  }
  template <typename T>
  static T to_row(T word) {
    return exchanged<8>(exchanged<4>(word, 0x00f000f0U), 0x0000ff00U);
  }
};

// Sixteen codes of 2 bits: in rows dim i stands in bits 2 i, in blocks dim i stands in byte i % 4,
// bits 2 (i / 4): rows and columns of a square change places, so one function does both.
struct TwoBits {
  template <typename T>
  static T to_block(T word) {
    return exchanged<12>(exchanged<6>(word, 0x00cc00ccU), 0x0000f0f0U);
  }
  template <typename T>
  static T to_row(T word) {
    return to_block(word);
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
      const Tile<4> columns = transposed(
          {load(from(i, j)), load(from(i + 1, j)), load(from(i + 2, j)), load(from(i + 3, j))});
      for (std::int64_t k = 0; k < 4; ++k)
        store(change(columns[static_cast<std::size_t>(k)]), to(j + k, i));
    }
    for (; j < t.n_columns; ++j) {
      for (std::int64_t k = 0; k < 4; ++k) move(i + k, j);
    }
  }
  for (; i < t.n_rows; ++i) {
    for (std::int64_t j = 0; j < t.n_columns; ++j) move(i, j);
  }
}

// Every second element of two vectors, and the others; and the other way.
using Bytes = std::uint8_t __attribute__((vector_size(16)));
using Halves = std::uint16_t __attribute__((vector_size(16)));
template <typename Elements>
struct Two {
  Elements first;
  Elements second;
};
Two<Halves> part(Halves a, Halves b) {
  return {__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14),
          __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)};
}
Two<Halves> interleave(Halves a, Halves b) {
  return {__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11),
          __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)};
}
Two<Bytes> part(Bytes a, Bytes b) {
  return {__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
          __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)};
}
Two<Bytes> interleave(Bytes a, Bytes b) {
  return {
      __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
      __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)};
}

// Halves of two tokens.
Tile<2> rows_of(const Tile<2>& words) {
  const auto [first, second] = part(Halves(words[0]), Halves(words[1]));
  return {Words(first), Words(second)};
}
Tile<2> words_of(const Tile<2>& rows) {
  const auto [first, second] = interleave(Halves(rows[0]), Halves(rows[1]));
  return {Words(first), Words(second)};
}

// Bytes of four.
Tile<4> rows_of(const Tile<4>& words) {
  const auto [even0, odd0] = part(Bytes(words[0]), Bytes(words[1]));
  const auto [even1, odd1] = part(Bytes(words[2]), Bytes(words[3]));
  const auto [row0, row2] = part(even0, even1);
  const auto [row1, row3] = part(odd0, odd1);
  return {Words(row0), Words(row1), Words(row2), Words(row3)};
}
Tile<4> words_of(const Tile<4>& rows) {
  const auto [even0, even1] = interleave(Bytes(rows[0]), Bytes(rows[2]));
  const auto [odd0, odd1] = interleave(Bytes(rows[1]), Bytes(rows[3]));
  const auto [words0, words1] = interleave(even0, odd0);
  const auto [words2, words3] = interleave(even1, odd1);
  return {Words(words0), Words(words1), Words(words2), Words(words3)};
}

// Codes of 4 bits of eight: a word of a block has one dim of each, a byte of a row two dims. Two
// neighbouring words, of an even dim and an odd one, become two others that have the row bytes of
// tokens 0 to 3 and of 4 to 7, and back.
constexpr std::uint32_t kLow = 0x0f0f0f0fU;

Tile<8> rows_of(const Tile<8>& words) {
  Tile<4> lower;
  Tile<4> upper;
  for (std::size_t i = 0; i < 4; ++i) {
    const Words even = __builtin_shufflevector(words[2 * i], words[2 * i + 1], 0, 2, 4, 6);
    const Words odd = __builtin_shufflevector(words[2 * i], words[2 * i + 1], 1, 3, 5, 7);
    lower[i] = (even & kLow) | (odd & kLow) << 4;
    upper[i] = (even >> 4 & kLow) | (odd & ~kLow);
  }
  lower = rows_of(lower);
  upper = rows_of(upper);
  return {lower[0], lower[1], lower[2], lower[3], upper[0], upper[1], upper[2], upper[3]};
}
Tile<8> words_of(const Tile<8>& rows) {
  const Tile<4> lower = words_of(Tile<4>{rows[0], rows[1], rows[2], rows[3]});
  const Tile<4> upper = words_of(Tile<4>{rows[4], rows[5], rows[6], rows[7]});
  Tile<8> words;
  for (std::size_t i = 0; i < 4; ++i) {
    const Words even = (lower[i] & kLow) | (upper[i] & kLow) << 4;
    const Words odd = (lower[i] >> 4 & kLow) | (upper[i] & ~kLow);
    words[2 * i] = __builtin_shufflevector(even, odd, 0, 4, 1, 5);
    words[2 * i + 1] = __builtin_shufflevector(even, odd, 2, 6, 3, 7);
  }
  return words;
}

// Codes of 2 bits of sixteen: a word of a block has one dim of each, a byte of a row four dims.
// Four neighbouring words become four others that have the row bytes of tokens 0 to 3, 4 to 7, and
// so on, and back: pair i of word j becomes pair j of word i, in each byte.
Tile<4> pairs_transposed(const Tile<4>& words) {
  constexpr std::uint32_t kPair = 0x03030303U;
  Tile<4> to{};
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 4; ++j)
      to[i] |= (words[j] >> static_cast<std::uint32_t>(2 * i) & kPair)
               << static_cast<std::uint32_t>(2 * j);
  }
  return to;
}
Tile<16> rows_of(const Tile<16>& words) {
  std::array<Tile<4>, 4> fours;  // [four tokens]
  for (std::size_t i = 0; i < 4; ++i) {
    const Tile<4> bytes = pairs_transposed(
        transposed({words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]}));
    for (std::size_t four = 0; four < 4; ++four) fours[four][i] = bytes[four];
  }
  Tile<16> rows;
  for (std::size_t four = 0; four < 4; ++four) {
    const Tile<4> of_four = rows_of(fours[four]);
    std::copy(of_four.begin(), of_four.end(), rows.begin() + 4 * four);
  }
  return rows;
}
Tile<16> words_of(const Tile<16>& rows) {
  std::array<Tile<4>, 4> fours;
  for (std::size_t four = 0; four < 4; ++four)
    fours[four] = words_of(
        Tile<4>{rows[4 * four], rows[4 * four + 1], rows[4 * four + 2], rows[4 * four + 3]});
  Tile<16> words;
  for (std::size_t i = 0; i < 4; ++i) {
    const Tile<4> of_dims =
        transposed(pairs_transposed({fours[0][i], fours[1][i], fours[2][i], fours[3][i]}));
    std::copy(of_dims.begin(), of_dims.end(), words.begin() + 4 * i);
  }
  return words;
}

// Calls use(first byte of a row, bytes of each row from there on) for tile after tile; the last one
// may be cut.
template <typename Use>
void each_tile(std::size_t n_row_bytes, const Use& use) {
  std::size_t at = 0;
  for (; at + sizeof(Words) <= n_row_bytes; at += sizeof(Words))
    use(at, std::integral_constant<std::size_t, sizeof(Words)>());
  if (at < n_row_bytes) use(at, n_row_bytes - at);
}

template <std::size_t kLanes>
void tokens_to_rows(const std::byte* words, std::size_t n_row_bytes, std::byte* rows) {
  each_tile(n_row_bytes, [&](std::size_t at, auto n) {
    Tile<kLanes> tile{};
    std::memcpy(tile.data(), words + kLanes * at, kLanes * n);
    tile = rows_of(tile);
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      std::memcpy(rows + lane * n_row_bytes + at, &tile[lane], n);
  });
}
template <std::size_t kLanes>
void tokens_from_rows(const std::byte* rows, std::size_t n_row_bytes, std::byte* words) {
  each_tile(n_row_bytes, [&](std::size_t at, auto n) {
    Tile<kLanes> tile{};
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      std::memcpy(&tile[lane], rows + lane * n_row_bytes + at, n);
    tile = words_of(tile);
    std::memcpy(words + kLanes * at, tile.data(), kLanes * n);
  });
}

std::int64_t n_words(const KvBlockShape& shape) { return shape.head_dim / kv_lanes(shape.k_type); }

// Calls use() with how codes of this type change their order.
template <typename Use>
void with_codes_of(KvType type, const Use& use) {
  switch (type) {
    case KvType::kF32:
    case KvType::kBf16:
    case KvType::kInt8:
    case KvType::kFp8:
      return use(AsTheyAre{});
    case KvType::kInt4:
    case KvType::kKivi4:
      return use(FourBits{});
    case KvType::kKivi2:
      return use(TwoBits{});
  }
}

}  // namespace

void keys_to_rows(const KeyWordsArgs& args, const std::byte* block, std::byte* rows) {
  const Transposition t{.from = block + 4 * args.slots.begin,
                        .from_stride = args.shape.block_size,
                        .n_rows = n_words(args.shape),
                        .n_columns = args.slots.size(),
                        .to = rows,
                        .to_stride = n_words(args.shape)};
  with_codes_of(args.shape.k_type, [&](auto codes) {
    transpose(t, [codes](auto words) { return codes.to_row(words); });
  });
}

void keys_from_rows(const KeyWordsArgs& args, const std::byte* rows, std::byte* block) {
  const Transposition t{.from = rows,
                        .from_stride = n_words(args.shape),
                        .n_rows = args.slots.size(),
                        .n_columns = n_words(args.shape),
                        .to = block + 4 * args.slots.begin,
                        .to_stride = args.shape.block_size};
  with_codes_of(args.shape.k_type, [&](auto codes) {
    transpose(t, [codes](auto words) { return codes.to_block(words); });
  });
}

void values_to_rows(const KvBlockShape& shape, const std::byte* words, std::byte* rows) {
  const auto n = static_cast<std::size_t>(shape.head_dim);
  switch (shape.v_type) {
    case KvType::kF32:
      std::memcpy(rows, words, 4 * n);
      return;
    case KvType::kBf16:
      return tokens_to_rows<2>(words, 2 * n, rows);
    case KvType::kInt8:
    case KvType::kFp8:
      return tokens_to_rows<4>(words, n, rows);
    case KvType::kInt4:
    case KvType::kKivi4:
      return tokens_to_rows<8>(words, n / 2, rows);
    case KvType::kKivi2:
      return tokens_to_rows<16>(words, n / 4, rows);
  }
}

void values_from_rows(const KvBlockShape& shape, const std::byte* rows, std::byte* words) {
  const auto n = static_cast<std::size_t>(shape.head_dim);
  switch (shape.v_type) {
    case KvType::kF32:
      std::memcpy(words, rows, 4 * n);
      return;
    case KvType::kBf16:
      return tokens_from_rows<2>(rows, 2 * n, words);
    case KvType::kInt8:
    case KvType::kFp8:
      return tokens_from_rows<4>(rows, n, words);
    case KvType::kInt4:
    case KvType::kKivi4:
      return tokens_from_rows<8>(rows, n / 2, words);
    case KvType::kKivi2:
      return tokens_from_rows<16>(rows, n / 4, words);
  }
}

}  // namespace longhaul
