#include "model/hf_rope.h"

#include <fmt/format.h>

#include <limits>

namespace longhaul {
namespace {

constexpr double kLargest = std::numeric_limits<double>::max();

// The object that holds the scaling: as in transformers, a non-empty rope_scaling comes first.
std::optional<JsonField> rope_object(const ConfigFields& config) {
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const auto field = config.find(key);
    if (!field) continue;
    if (!field->json().is_object()) {
      field->fail(fmt::format("expected an object or null, found {}", field->json().kind_name()));
    }
    if (is_set(field)) return field;
  }
  return std::nullopt;
}

RopeScaling::Kind scaling_kind(const ConfigFields& config, const JsonField& rope) {
  auto field = rope.find("rope_type");
  if (!field) field = rope.find("type");
  if (!field || field->as_string() == "default") return RopeScaling::Kind::kNone;
  const std::string& name = field->as_string();
  if (name == "linear") return RopeScaling::Kind::kLinear;
  if (name == "llama3") return RopeScaling::Kind::kLlama3;
  if (name == "yarn") return RopeScaling::Kind::kYarn;
  config.unsupported(field->path(), fmt::format("RoPE scaling {} is not supported; supported are "
                                                "default, linear, llama3 and yarn",
                                                shown(field->json())));
}

void refuse_unsupported(const ConfigFields& config, const JsonField& rope) {
  for (const auto& [key, value] : std::get<JsonObject>(rope.json().value())) {
    const std::string path = fmt::format("{}.{}", rope.path(), key);
    if (value.is_object()) {
      config.unsupported(path, "RoPE that differs between kinds of layers is not supported");
    }
    if (key == "mrope_section" || key == "mrope_interleaved") {
      config.unsupported(path, "multimodal RoPE is not supported");
    }
  }
  if (const auto part = rope.find("partial_rotary_factor"); part && part->as_number() != 1.0) {
    config.unsupported(part->path(), fmt::format("is {}; RoPE over a part of the head is not "
                                                 "supported",
                                                 shown(part->json())));
  }
}

// Without a type, or with "default", nothing is scaled: what only scaling reads was meant
// otherwise. A factor of 1 and the length that the model has anyway change nothing.
void refuse_scaling_without_type(const JsonField& rope, std::int64_t max_seq_len) {
  constexpr std::string_view kOfScaling[] = {
      "factor",       "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
      "beta_fast",    "beta_slow",       "attention_factor", "mscale",
      "short_factor", "long_factor",     "mscale_all_dim"};
  for (const std::string_view key : kOfScaling) {
    const auto field = rope.find(key);
    if (!field) continue;
    if (key == "factor" && field->as_number() == 1.0) continue;
    if (key == "original_max_position_embeddings" &&
        field->as_integer(1, kMaxPositions) == max_seq_len)
      continue;
    const bool is_default = rope.find("rope_type") || rope.find("type");
    field->fail(fmt::format(
        "is {}, and {}, so that nothing would be scaled; give the rope_type "
        "(linear, llama3 or yarn), or remove this field",
        shown(field->json()), is_default ? "rope_type is \"default\"" : "there is no rope_type"));
  }
}

double required_number(const JsonField& rope, std::string_view key, double min) {
  return checked_number(rope.at(key), min, kLargest);
}

std::optional<double> optional_number(const JsonField& rope, std::string_view key) {
  const auto field = rope.find(key);
  return field ? std::optional(checked_number(*field, 0, kLargest)) : std::nullopt;
}

// The length that the model was trained at before it was stretched. As in transformers, a field of
// the whole configuration wins, and the present length is the default.
std::int64_t original_length(const ConfigFields& config, const JsonField& rope,
                             std::int64_t max_seq_len) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  auto field = config.find(kKey);
  if (!field) field = rope.find(kKey);
  return field ? field->as_integer(1, kMaxPositions) : max_seq_len;
}

void read_llama3(const JsonField& rope, RopeScaling& scaling) {
  constexpr double kSmallest = std::numeric_limits<double>::min();
  scaling.factor = required_number(rope, "factor", 1);
  scaling.low_freq_factor = required_number(rope, "low_freq_factor", kSmallest);
  scaling.high_freq_factor = required_number(rope, "high_freq_factor", kSmallest);
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    rope.at("high_freq_factor")
        .fail(fmt::format("{} must be above low_freq_factor {}", scaling.high_freq_factor,
                          scaling.low_freq_factor));
  }
}

// A factor of null means the ratio of the two lengths; 0 and null mean the paper's values of
// beta_fast and beta_slow.
void read_yarn(const JsonField& rope, std::int64_t max_seq_len, RopeScaling& scaling) {
  if (rope.at("factor").json().is_null()) {
    scaling.factor =
        static_cast<double>(max_seq_len) / static_cast<double>(scaling.original_max_position);
    if (scaling.factor < 1) {
      rope.at("factor").fail("is null, and max_position_embeddings is below the original length");
    }
  } else {
    scaling.factor = required_number(rope, "factor", 1);
  }
  if (const auto beta = optional_number(rope, "beta_fast"); beta && *beta != 0) {
    scaling.beta_fast = *beta;
  }
  if (const auto beta = optional_number(rope, "beta_slow"); beta && *beta != 0) {
    scaling.beta_slow = *beta;
  }
  scaling.attention_factor = optional_number(rope, "attention_factor");
  scaling.mscale = optional_number(rope, "mscale");
  scaling.mscale_all_dim = optional_number(rope, "mscale_all_dim");
  if (const auto truncate = rope.find("truncate")) scaling.truncate = truncate->as_bool();
}

}  // namespace

void read_rope(const ConfigFields& config, ModelSpec& spec) {
  const auto rope = rope_object(config);
  auto theta = config.find("rope_theta");
  if (rope && rope->find("rope_theta")) theta = rope->find("rope_theta");
  if (theta) spec.rope_theta = checked_number(*theta, 1.0 + 1e-9, kLargest);
  if (!rope) return;

  refuse_unsupported(config, *rope);
  RopeScaling& scaling = spec.rope_scaling;
  scaling.kind = scaling_kind(config, *rope);
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone:
      return refuse_scaling_without_type(*rope, spec.max_seq_len);
    case RopeScaling::Kind::kLinear:
      scaling.factor = required_number(*rope, "factor", 1);
      return;
    case RopeScaling::Kind::kLlama3:
      scaling.original_max_position = original_length(config, *rope, spec.max_seq_len);
      return read_llama3(*rope, scaling);
    case RopeScaling::Kind::kYarn:
      scaling.original_max_position = original_length(config, *rope, spec.max_seq_len);
      return read_yarn(*rope, spec.max_seq_len, scaling);
  }
}

}  // namespace longhaul
