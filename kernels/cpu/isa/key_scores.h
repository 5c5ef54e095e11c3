// Tasks of scoring keys for methods that choose by attention (kernels/key_scores.h): plain products
// of many queries with the keys of a block, and sums of exponentials over many rows. See
// kernels/cpu/isa/kernels.h.
#pragma once
#include <cstdint>

namespace longhaul::cpu {

// scores[r][j] = sum over d of q[r][d] keys[d][j], each by itself and in the order of d.
struct KeyProductsTask {
  const float* q;  // [n_rows, head_dim]
  std::int64_t n_rows;
  std::int64_t head_dim;
  const float* keys;  // [head_dim, key_stride]
  std::int64_t key_stride;
  std::int64_t n_keys;
  float* scores;  // [n_rows, score_stride]
  std::int64_t score_stride;
};

// sums[j] += exp(scores[r][j] - maxima[r]) * inverses[r] row after row, in double precision; scores
// are at most their row's maximum.
struct AddExpsTask {
  const float* scores;  // [n_rows, score_stride]
  std::int64_t score_stride;
  std::int64_t n_rows;
  const float* maxima;     // [n_rows]
  const double* inverses;  // [n_rows]
  double* sums;            // [n]
  std::int64_t n;
};

// Of no elements (-inf, 0); NaN where an element is none.
struct RowExpSum {
  float max;
  double sum;  // of exp(x - max), added in double precision
};

}  // namespace longhaul::cpu
