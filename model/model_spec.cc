#include "model/model_spec.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "base/error.h"

namespace longhaul {
namespace {

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorCode::kInvalidArgument, "model: " + reason);
}

void check_positive(std::string_view name, std::int64_t value) {
  if (value < 1) refuse(fmt::format("{} is {}; it must be at least 1", name, value));
}

void check_positive(std::string_view name, double value) {
  if (!std::isfinite(value) || value <= 0) {
    refuse(fmt::format("{} is {}; it must be a finite number above 0", name, value));
  }
}

void check_factor(const RopeScaling& scaling) {
  if (!std::isfinite(scaling.factor) || scaling.factor < 1) {
    refuse(fmt::format("rope_scaling.factor is {}; it must be a finite number of at least 1",
                       scaling.factor));
  }
}

void check_yarn(const RopeScaling& scaling) {
  check_factor(scaling);
  check_positive("rope_scaling.original_max_position", scaling.original_max_position);
  check_positive("rope_scaling.beta_fast", scaling.beta_fast);
  check_positive("rope_scaling.beta_slow", scaling.beta_slow);
  if (scaling.attention_factor) {
    check_positive("rope_scaling.attention_factor", *scaling.attention_factor);
  }
  for (const auto& mscale : {scaling.mscale, scaling.mscale_all_dim}) {
    if (mscale && (!std::isfinite(*mscale) || *mscale < 0)) {
      refuse(fmt::format("rope_scaling.mscale is {}; it must not be negative", *mscale));
    }
  }
}

void check_rope(const ModelSpec& spec) {
  if (!std::isfinite(spec.rope_theta) || spec.rope_theta <= 1) {
    refuse(fmt::format("rope_theta is {}; it must be a finite number above 1", spec.rope_theta));
  }
  const RopeScaling& scaling = spec.rope_scaling;
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone:
      return;
    case RopeScaling::Kind::kLinear:
      return check_factor(scaling);
    case RopeScaling::Kind::kLlama3:
      check_factor(scaling);
      check_positive("rope_scaling.original_max_position", scaling.original_max_position);
      check_positive("rope_scaling.low_freq_factor", scaling.low_freq_factor);
      check_positive("rope_scaling.high_freq_factor", scaling.high_freq_factor);
      if (scaling.high_freq_factor <= scaling.low_freq_factor) {
        refuse(fmt::format("rope_scaling.high_freq_factor {} must be above low_freq_factor {}",
                           scaling.high_freq_factor, scaling.low_freq_factor));
      }
      return;
    case RopeScaling::Kind::kYarn:
      return check_yarn(scaling);
  }
}

void check_windows(const ModelSpec& spec) {
  if (static_cast<std::int64_t>(spec.attention_window.size()) != spec.n_layers) {
    refuse(
        fmt::format("attention_window has {} entries for {} layers; give one per layer (kNoWindow "
                    "where all keys are seen)",
                    spec.attention_window.size(), spec.n_layers));
  }
  for (std::size_t layer = 0; layer < spec.attention_window.size(); ++layer) {
    if (spec.attention_window[layer] < 1) {
      refuse(fmt::format("attention_window[{}] is {}; it must be at least 1", layer,
                         spec.attention_window[layer]));
    }
  }
}

void check_merging(const ModelSpec& spec) {
  if (!spec.token_merging) return;
  const TokenMerging& merging = *spec.token_merging;
  constexpr std::int64_t kMostWindow = 4096;
  if (merging.window < 1 || merging.window > kMostWindow) {
    refuse(fmt::format("dmc_window_size is {}; it must be 1 to {}", merging.window, kMostWindow));
  }
  if (!std::isfinite(merging.init_val)) refuse("dmc_init_val must be a finite number");
  for (const std::int64_t window : spec.attention_window) {
    if (window != ModelSpec::kNoWindow)
      refuse("tokens are merged (dmc_window_size) in layers with a sliding window: not supported");
  }
}

// Far above any model, so that no sum or product of bytes overflows.
void check_size(const ModelSpec& spec) {
  constexpr double kMaxParameters = 1e13;
  constexpr double kMaxHeadValues = 1e8;
  const auto d_model = static_cast<double>(spec.d_model);
  const auto n_layers = static_cast<double>(spec.n_layers);
  const double q_rows = static_cast<double>(spec.n_heads) * static_cast<double>(spec.head_dim);
  const double parameters =
      d_model * (2.0 * static_cast<double>(spec.vocab_size) +
                 n_layers * (4.0 * q_rows + 3.0 * static_cast<double>(spec.d_ff)));
  if (parameters > kMaxParameters || n_layers * q_rows > kMaxHeadValues) {
    refuse(
        fmt::format("{} layers of {} heads with head_dim {}, d_model {}, d_ff {} and a "
                    "vocabulary of {} are too large: more than {:.0e} parameters, or {:.0e} "
                    "values of heads in all layers",
                    spec.n_layers, spec.n_heads, spec.head_dim, spec.d_model, spec.d_ff,
                    spec.vocab_size, kMaxParameters, kMaxHeadValues));
  }
}

}  // namespace

float ModelSpec::sm_scale() const {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

void ModelSpec::validate() const {
  check_positive("vocab_size", vocab_size);
  check_positive("d_model", d_model);
  check_positive("d_ff", d_ff);
  check_positive("n_layers", n_layers);
  check_positive("n_heads", n_heads);
  check_positive("n_kv_heads", n_kv_heads);
  check_positive("head_dim", head_dim);
  check_positive("max_seq_len", max_seq_len);
  if (n_heads % n_kv_heads != 0) {
    refuse(fmt::format(
        "n_heads {} is no multiple of n_kv_heads {}; every KV head must serve equally many heads",
        n_heads, n_kv_heads));
  }
  if (head_dim % 2 != 0) {
    refuse(fmt::format("head_dim {} is odd; RoPE rotates pairs", head_dim));
  }
  check_size(*this);
  check_positive("norm_eps", norm_eps);
  check_rope(*this);
  check_windows(*this);
  check_merging(*this);
}

}  // namespace longhaul
