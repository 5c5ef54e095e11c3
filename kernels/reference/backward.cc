#include "kernels/reference/backward.h"

#include <cmath>
#include <cstddef>

namespace longhaul::reference {

std::vector<double> linear_backward(const std::vector<double>& d_out,
                                    const std::vector<double>& weight, std::int64_t n_in) {
  const auto width = static_cast<std::size_t>(n_in);
  const std::size_t n_out = weight.size() / width;
  const std::size_t n_tokens = d_out.size() / n_out;
  std::vector<double> d_x(n_tokens * width);
  for (std::size_t token = 0; token < n_tokens; ++token) {
    for (std::size_t out = 0; out < n_out; ++out) {
      for (std::size_t in = 0; in < width; ++in)
        d_x[token * width + in] += d_out[token * n_out + out] * weight[out * width + in];
    }
  }
  return d_x;
}

std::vector<double> rms_norm_backward(const std::vector<double>& x,
                                      const std::vector<double>& weight, double eps,
                                      const std::vector<double>& d_out) {
  const std::size_t width = weight.size();
  std::vector<double> d_x(x.size());
  for (std::size_t row = 0; row < x.size(); row += width) {
    double squares = 0;
    double products = 0;
    for (std::size_t i = 0; i < width; ++i) {
      squares += x[row + i] * x[row + i];
      products += x[row + i] * d_out[row + i] * weight[i];
    }
    const auto n = static_cast<double>(width);
    const double r = 1 / std::sqrt(squares / n + eps);
    for (std::size_t i = 0; i < width; ++i)
      d_x[row + i] = r * d_out[row + i] * weight[i] - x[row + i] * r * r * r * products / n;
  }
  return d_x;
}

SwigluGradient swiglu_backward(const std::vector<double>& gate, const std::vector<double>& up,
                               const std::vector<double>& d_out) {
  SwigluGradient gradient;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double s = 1 / (1 + std::exp(-gate[i]));
    gradient.d_gate.push_back(d_out[i] * up[i] * s * (1 + gate[i] * (1 - s)));
    gradient.d_up.push_back(d_out[i] * gate[i] * s);
  }
  return gradient;
}

std::vector<double> rope_backward(const std::vector<double>& d_out,
                                  const std::vector<std::int64_t>& positions,
                                  const std::vector<double>& inverse_frequencies,
                                  std::int64_t n_heads, std::int64_t head_dim,
                                  double attention_scale) {
  std::vector<double> d_x = d_out;
  const std::size_t half = inverse_frequencies.size();
  for (std::size_t token = 0; token < positions.size(); ++token) {
    for (std::int64_t head = 0; head < n_heads; ++head) {
      const std::size_t at =
          (token * static_cast<std::size_t>(n_heads) + static_cast<std::size_t>(head)) *
          static_cast<std::size_t>(head_dim);
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(positions[token]) * inverse_frequencies[i];
        const double cosine = attention_scale * std::cos(angle);
        const double sine = attention_scale * std::sin(angle);
        d_x[at + i] = cosine * d_out[at + i] + sine * d_out[at + half + i];
        d_x[at + half + i] = cosine * d_out[at + half + i] - sine * d_out[at + i];
      }
    }
  }
  return d_x;
}

AttentionGradient attention_backward(const AttentionCase& c, const std::vector<double>& d_out) {
  AttentionGradient gradient{.d_q = std::vector<double>(c.q.size()),
                             .d_k = std::vector<double>(c.k.size()),
                             .d_v = std::vector<double>(c.v.size())};
  const auto dims = static_cast<std::size_t>(c.head_dim);
  const auto heads = static_cast<std::size_t>(c.n_heads);
  const auto kv_heads = static_cast<std::size_t>(c.n_kv_heads);
  const Mask mask = c.masks.empty() ? Mask{} : c.masks.front();
  const auto dot = [&](const std::vector<double>& a, std::size_t i, const std::vector<double>& b,
                       std::size_t j) {
    double sum = 0;
    for (std::size_t d = 0; d < dims; ++d) sum += a[i + d] * b[j + d];
    return sum;
  };
  for (std::size_t query = 0; query < c.q_positions.size(); ++query) {
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t q_at = (query * heads + head) * dims;
      const auto k_at = [&](std::size_t key) {
        return (key * kv_heads + head / (heads / kv_heads)) * dims;
      };
      std::vector<std::size_t> keys;
      std::vector<double> p;
      double sum = c.sink_logits.empty() ? 0 : std::exp(c.sink_logits[head]);
      for (std::size_t key = 0; key < c.k_positions.size(); ++key) {
        if (!mask.shows(c.q_positions[query], c.k_positions[key])) continue;
        keys.push_back(key);
        p.push_back(std::exp(c.sm_scale * dot(c.q, q_at, c.k, k_at(key))));
        sum += p.back();
      }
      double mean = 0;  // of d_p, by p
      for (std::size_t i = 0; i < keys.size(); ++i)
        mean += (p[i] /= sum) * dot(d_out, q_at, c.v, k_at(keys[i]));
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const std::size_t at = k_at(keys[i]);
        const double d_s = p[i] * (dot(d_out, q_at, c.v, at) - mean);
        for (std::size_t d = 0; d < dims; ++d) {
          gradient.d_v[at + d] += p[i] * d_out[q_at + d];
          gradient.d_q[q_at + d] += c.sm_scale * d_s * c.k[at + d];
          gradient.d_k[at + d] += c.sm_scale * d_s * c.q[q_at + d];
        }
      }
    }
  }
  return gradient;
}

}  // namespace longhaul::reference
