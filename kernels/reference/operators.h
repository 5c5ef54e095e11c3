// The small operators in double precision, written to be read: oracles for tests only. Tensors are
// contiguous vectors, outermost dimension first.
#pragma once
#include <cstdint>
#include <vector>

namespace longhaul::reference {

// x [n_rows, width] / sqrt(mean(x^2) + eps) * weight [width], row by row.
std::vector<double> rms_norm(const std::vector<double>& x, const std::vector<double>& weight,
                             double eps);

// x [n_tokens, n_in] times the transpose of weight [n_out, n_in], plus bias [n_out] unless empty.
std::vector<double> linear(const std::vector<double>& x, const std::vector<double>& weight,
                           std::int64_t n_in, const std::vector<double>& bias = {});

// Each group of `group` neighbours of a row of x [n_rows, width] as multiples of max|x| / 127,
// rounded as float32 rounds x * (127 / max|x|); the last group of a row may be shorter.
std::vector<double> quantised(const std::vector<float>& x, std::int64_t width, std::int64_t group);

// Rotates dimension i with i + rotary_dim / 2 of x [n_tokens, n_heads, head_dim] by the angle
// position * inverse_frequencies[i]; cos and sin are multiplied by attention_scale; rotary_dim is
// twice the number of frequencies, the other dimensions stay.
std::vector<double> rope(const std::vector<double>& x, const std::vector<std::int64_t>& positions,
                         const std::vector<double>& inverse_frequencies, std::int64_t n_heads,
                         std::int64_t head_dim, double attention_scale = 1.0);

// gate / (1 + exp(-gate)) * up.
std::vector<double> swiglu(const std::vector<double>& gate, const std::vector<double>& up);

// log of the sum of exp(x).
double log_sum_exp(const std::vector<double>& x);

// The k largest: higher logit first, equal logits by lower id.
std::vector<std::int32_t> top_k(const std::vector<double>& logits, std::int64_t k);

// The merge of partial attention states (kernels/softmax_state.h) of one query.
struct State {
  double m;
  double l;
  std::vector<double> o;
};
State merge(const State& a, const State& b);

}  // namespace longhaul::reference
