// The arithmetic of places in attention_mma.cuh: which thread holds which dim and which key. Plain
// functions of integers, so that they can be tested anywhere.
//
// A 32-bit word of a cache block holds 2, 4, 8 or 16 values along the sum of a product (kernels/
// kv_block.h). Lane 4 g + t of a warp needs rows 2t, 2t + 1 and 2t + 8, 2t + 9 of each right side
// of 16 rows. The order of a sum is free if both sides use the same one, so rows are numbered such
// that a lane's values are neighbours in one word:
//   bf16   two words, of values 2t, 2t + 1 and 2t + 8, 2t + 9 of 16
//   int8   one word, values 4t to 4t + 3 of 16; fp8, too
//   int4   one word serves two products: values 8t to 8t + 3 of 32, then 8t + 4 to 8t + 7; kivi4,
//          too
//   kivi2  the same values, of a word that two lanes share
#pragma once
#include "kernels/cuda/kv_words.cuh"

namespace longhaul::cuda {

// Values that one word row group of K or V spans: 16, or 32 for codes of 4 and 2 bits.
LONGHAUL_HOST_DEVICE constexpr int values_of_step(KvType type) {
  return type == KvType::kInt4 || holds_groups(type) ? 32 : 16;
}

// The value (dim for scores, key for outputs) that lane t holds as number i of 4 in product `step`.
LONGHAUL_HOST_DEVICE constexpr int value_of_lane(KvType type, int step, int t, int i) {
  switch (type) {
    case KvType::kF32:
    case KvType::kBf16:
      return 16 * step + 2 * t + i % 2 + i / 2 * 8;
    case KvType::kInt8:
    case KvType::kFp8:
      return 16 * step + 4 * t + i;
    case KvType::kInt4:
    case KvType::kKivi4:
    case KvType::kKivi2:
      return 32 * (step / 2) + 8 * t + 4 * (step % 2) + i;
  }
  return 0;
}

// The row of words where lane t finds them: the first, and for bf16 the second 4 rows below.
LONGHAUL_HOST_DEVICE constexpr int word_row_of_lane(KvType type, int step, int t) {
  switch (type) {
    case KvType::kF32:
    case KvType::kBf16:
      return 8 * step + t;
    case KvType::kInt8:
    case KvType::kFp8:
      return 4 * step + t;
    case KvType::kInt4:
    case KvType::kKivi4:
      return 4 * (step / 2) + t;
    case KvType::kKivi2:
      return 2 * (step / 2) + t / 2;
  }
  return 0;
}

// Bits of a word below lane t's four codes in product `step`, for codes of 4 and 2 bits.
LONGHAUL_HOST_DEVICE constexpr int shift_of_lane(KvType type, int step, int t) {
  return type == KvType::kKivi2 ? t % 2 * 4 + step % 2 * 2 : step % 2 * 4;
}

// Which of a lane's four values in a product stand together in a register where codes of 4 bits
// come out of a word two at a time, without moving them: element e (lower half, upper half) of pair
// 0 or 1. Of other types they are neighbours.
LONGHAUL_HOST_DEVICE constexpr int value_of_pair(KvType type, int pair, int e) {
  return type == KvType::kInt4 ? 2 * e + pair : 2 * pair + e;
}

// The key whose score stands in column `column` of the tile's group `group` of 8 scores. Lane t's
// scores in columns 2t, 2t + 1 of groups 2s, 2s + 1 are its four weights in product s of the
// outputs, so they must be those of keys value_of_lane(v_type, s, t, 0 .. 3).
LONGHAUL_HOST_DEVICE constexpr int key_of_score(KvType v_type, int group, int column) {
  return value_of_lane(v_type, group / 2, column / 2, group % 2 * 2 + column % 2);
}

// Words between rows of words in shared memory beyond their width, so that lanes read different
// banks: none waits for bf16, and for V; K's codes are read in two turns, the best that rows at
// multiples of 16 bytes allow.
LONGHAUL_HOST_DEVICE constexpr int padding_of_k(KvType type) {
  return type == KvType::kInt4 || holds_groups(type) ? 4 : 8;
}
constexpr int kPaddingOfV = 8;

}  // namespace longhaul::cuda
