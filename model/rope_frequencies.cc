#include "model/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace longhaul {
namespace {

// theta^(-2i / head_dim)
std::vector<double> plain_frequencies(const ModelSpec& spec) {
  std::vector<double> frequencies(static_cast<std::size_t>(spec.head_dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(spec.head_dim);
    frequencies[i] = std::pow(spec.rope_theta, -exponent);
  }
  return frequencies;
}

// Llama 3.1: wavelengths that fit the trained length stay, those longer than it are stretched by
// `factor`, between them the share of stretching is linear in the number of turns.
double llama3_frequency(double frequency, const RopeScaling& scaling) {
  const double trained = static_cast<double>(scaling.original_max_position);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < trained / scaling.high_freq_factor) return frequency;
  if (wavelength > trained / scaling.low_freq_factor) return frequency / scaling.factor;
  const double kept = (trained / wavelength - scaling.low_freq_factor) /
                      (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

// The (fractional) dimension whose pair turns `turns` times over the trained length.
double yarn_dimension(double turns, const ModelSpec& spec) {
  const double trained = static_cast<double>(spec.rope_scaling.original_max_position);
  return static_cast<double>(spec.head_dim) * std::log(trained / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(spec.rope_theta));
}

// Pairs below `low` keep their frequency, those above `high` are stretched by `factor`, a linear
// ramp lies between.
void apply_yarn(const ModelSpec& spec, std::vector<double>& frequencies) {
  const RopeScaling& scaling = spec.rope_scaling;
  double low = yarn_dimension(scaling.beta_fast, spec);
  double high = yarn_dimension(scaling.beta_slow, spec);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(spec.head_dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / scaling.factor * stretched + frequencies[i] * (1 - stretched);
  }
}

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double yarn_attention_scale(const RopeScaling& scaling) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  const double mscale = scaling.mscale.value_or(0);
  const double mscale_all_dim = scaling.mscale_all_dim.value_or(0);
  if (mscale != 0 && mscale_all_dim != 0) {
    return yarn_scale(scaling.factor, mscale) / yarn_scale(scaling.factor, mscale_all_dim);
  }
  return yarn_scale(scaling.factor, 1.0);
}

}  // namespace

RopeFrequencies rope_frequencies(const ModelSpec& spec) {
  RopeFrequencies result{.inverse_frequencies = plain_frequencies(spec), .attention_scale = 1.0};
  switch (spec.rope_scaling.kind) {
    case RopeScaling::Kind::kNone:
      return result;
    case RopeScaling::Kind::kLinear:
      for (double& frequency : result.inverse_frequencies) frequency /= spec.rope_scaling.factor;
      return result;
    case RopeScaling::Kind::kLlama3:
      for (double& frequency : result.inverse_frequencies) {
        frequency = llama3_frequency(frequency, spec.rope_scaling);
      }
      return result;
    case RopeScaling::Kind::kYarn:
      apply_yarn(spec, result.inverse_frequencies);
      result.attention_scale = yarn_attention_scale(spec.rope_scaling);
      return result;
  }
  throw Error(ErrorCode::kInternal, "rope_frequencies: unknown kind of scaling");
}

}  // namespace longhaul
