// Gradients of the operators in double precision, written to be read: oracles for tests only.
// Tensors are contiguous vectors, outermost dimension first. d_x is the gradient of
// sum(d_out * out) with respect to x.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/reference/attention.h"

namespace longhaul::reference {

// Of linear(x, weight): d_out [n_tokens, n_out] times weight [n_out, n_in].
std::vector<double> linear_backward(const std::vector<double>& d_out,
                                    const std::vector<double>& weight, std::int64_t n_in);

// Of rms_norm(x [n_rows, width], weight [width], eps).
std::vector<double> rms_norm_backward(const std::vector<double>& x,
                                      const std::vector<double>& weight, double eps,
                                      const std::vector<double>& d_out);

struct SwigluGradient {
  std::vector<double> d_gate;
  std::vector<double> d_up;
};
SwigluGradient swiglu_backward(const std::vector<double>& gate, const std::vector<double>& up,
                               const std::vector<double>& d_out);

// Of rope with the same arguments.
std::vector<double> rope_backward(const std::vector<double>& d_out,
                                  const std::vector<std::int64_t>& positions,
                                  const std::vector<double>& inverse_frequencies,
                                  std::int64_t n_heads, std::int64_t head_dim,
                                  double attention_scale = 1.0);

// Of attention(c), whose `masks` hold one or none.
struct AttentionGradient {
  std::vector<double> d_q;  // as c.q
  std::vector<double> d_k;  // as c.k
  std::vector<double> d_v;  // as c.v
};
AttentionGradient attention_backward(const AttentionCase& c, const std::vector<double>& d_out);

}  // namespace longhaul::reference
