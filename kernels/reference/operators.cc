#include "kernels/reference/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace longhaul::reference {

std::vector<double> rms_norm(const std::vector<double>& x, const std::vector<double>& weight,
                             double eps) {
  const std::size_t width = weight.size();
  std::vector<double> out(x.size());
  for (std::size_t row = 0; row < x.size(); row += width) {
    double square = 0;
    for (std::size_t i = 0; i < width; ++i) square += x[row + i] * x[row + i];
    const double norm = std::sqrt(square / static_cast<double>(width) + eps);
    for (std::size_t i = 0; i < width; ++i) out[row + i] = x[row + i] / norm * weight[i];
  }
  return out;
}

std::vector<double> linear(const std::vector<double>& x, const std::vector<double>& weight,
                           std::int64_t n_in, const std::vector<double>& bias) {
  const auto width = static_cast<std::size_t>(n_in);
  const std::size_t n_tokens = x.size() / width;
  const std::size_t n_out = weight.size() / width;
  std::vector<double> out(n_tokens * n_out);
  for (std::size_t t = 0; t < n_tokens; ++t) {
    for (std::size_t o = 0; o < n_out; ++o) {
      double sum = bias.empty() ? 0.0 : bias[o];
      for (std::size_t i = 0; i < width; ++i) sum += x[t * width + i] * weight[o * width + i];
      out[t * n_out + o] = sum;
    }
  }
  return out;
}

std::vector<double> quantised(const std::vector<float>& x, std::int64_t width, std::int64_t group) {
  std::vector<double> out;
  const auto n_rows = static_cast<std::int64_t>(x.size()) / width;
  for (std::int64_t row = 0; row < n_rows; ++row) {
    for (std::int64_t begin = 0; begin < width; begin += group) {
      const auto first = x.begin() + row * width + begin;
      const auto last = first + std::min(group, width - begin);
      float largest = 0;
      for (auto v = first; v != last; ++v) largest = std::max(largest, std::abs(*v));
      for (auto v = first; v != last; ++v) {
        const float integer = largest > 0 ? std::nearbyint(*v * (127.0F / largest)) : 0.0F;
        out.push_back(static_cast<double>(integer) * static_cast<double>(largest) / 127.0);
      }
    }
  }
  return out;
}

std::vector<double> rope(const std::vector<double>& x, const std::vector<std::int64_t>& positions,
                         const std::vector<double>& inverse_frequencies, std::int64_t n_heads,
                         std::int64_t head_dim, double attention_scale) {
  const std::size_t half = inverse_frequencies.size();
  std::vector<double> out = x;
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (std::size_t h = 0; h < static_cast<std::size_t>(n_heads); ++h) {
      const std::size_t at =
          (t * static_cast<std::size_t>(n_heads) + h) * static_cast<std::size_t>(head_dim);
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(positions[t]) * inverse_frequencies[i];
        const double cos = std::cos(angle) * attention_scale;
        const double sin = std::sin(angle) * attention_scale;
        out[at + i] = x[at + i] * cos - x[at + half + i] * sin;
        out[at + half + i] = x[at + half + i] * cos + x[at + i] * sin;
      }
    }
  }
  return out;
}

std::vector<double> swiglu(const std::vector<double>& gate, const std::vector<double>& up) {
  std::vector<double> out(gate.size());
  for (std::size_t i = 0; i < gate.size(); ++i) out[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  return out;
}

double log_sum_exp(const std::vector<double>& x) {
  const double max = *std::max_element(x.begin(), x.end());
  if (std::isinf(max)) return max;
  double sum = 0;
  for (const double value : x) sum += std::exp(value - max);
  return max + std::log(sum);
}

std::vector<std::int32_t> top_k(const std::vector<double>& logits, std::int64_t k) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  ids.resize(static_cast<std::size_t>(k));
  return ids;
}

State merge(const State& a, const State& b) {
  const double m = std::max(a.m, b.m);
  if (m == -std::numeric_limits<double>::infinity()) return a;
  const double wa = std::exp(a.m - m);
  const double wb = std::exp(b.m - m);
  State out = {m, wa * a.l + wb * b.l, std::vector<double>(a.o.size())};
  for (std::size_t i = 0; i < a.o.size(); ++i) out.o[i] = wa * a.o[i] + wb * b.o[i];
  return out;
}

}  // namespace longhaul::reference
