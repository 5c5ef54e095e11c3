#include "tools/identify/finder_cost.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul {
namespace {

constexpr double kFloatBytes = 4;
// Of needle scores' map from three tokens to where they stand: the node, and the tokens it holds.
constexpr double kRunBytes = 112;

double as_real(std::int64_t n) { return static_cast<double>(n); }

// Queries of a tile whose scores with all keys are written down; none for copies, whose few keys
// are looked at one by one.
double scored_rows(IdentifyPart part, const TrainingShape& shape) {
  const double tile =
      std::min(as_real(shape.tile_rows), as_real(shape.n_tokens) / as_real(shape.n_ranks));
  switch (part) {
    case IdentifyPart::kNeedle:
      return std::min(tile, as_real(shape.n_answer));
    case IdentifyPart::kRepetition:
      return tile;
    case IdentifyPart::kTraining:
    case IdentifyPart::kDistance:
    case IdentifyPart::kCopies:
      break;
  }
  return 0;
}

// What is remembered between tiles.
double remembered_bytes(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape) {
  if (part == IdentifyPart::kNeedle) return kRunBytes * as_real(shape.n_tokens);
  if (part != IdentifyPart::kRepetition) return 0;
  // The best score of every token of the first copy; ranks exchange them (Communicator's
  // all_reduce: two take all of each other's, more a slice of everybody's).
  const double best =
      as_real(spec.n_layers * spec.n_kv_heads) * as_real(shape.n_tokens / 2) * kFloatBytes;
  return best * (shape.n_ranks == 1 ? 1 : shape.n_ranks == 2 ? 3 : 2);
}

double in_gib(double bytes) { return bytes / (1 << 30); }

}  // namespace

const std::vector<std::pair<std::string, IdentifyMethod>>& identify_methods() {
  static const std::vector<std::pair<std::string, IdentifyMethod>> methods = {
      {"gates", IdentifyMethod::kGates},         {"echo", IdentifyMethod::kEcho},
      {"induction", IdentifyMethod::kInduction}, {"razor", IdentifyMethod::kRazor},
      {"needle", IdentifyMethod::kNeedle},       {"repetition", IdentifyMethod::kRepetition}};
  return methods;
}

std::string_view word_of(IdentifyMethod method) {
  for (const auto& [word, meaning] : identify_methods()) {
    if (meaning == method) return word;
  }
  return "";
}

IdentifyPart part_of(IdentifyMethod method) {
  switch (method) {
    case IdentifyMethod::kGates:
      return IdentifyPart::kTraining;
    case IdentifyMethod::kEcho:
    case IdentifyMethod::kInduction:
    case IdentifyMethod::kRazor:
      return IdentifyPart::kCopies;
    case IdentifyMethod::kNeedle:
      return IdentifyPart::kNeedle;
    case IdentifyMethod::kRepetition:
      return IdentifyPart::kRepetition;
  }
  return IdentifyPart::kTraining;
}

std::string_view name_of(IdentifyPart part) {
  switch (part) {
    case IdentifyPart::kTraining:
      return "a training step of gates";
    case IdentifyPart::kDistance:
      return "the distance that --target asks for";
    case IdentifyPart::kCopies:
      return "echo and induction scores";
    case IdentifyPart::kNeedle:
      return "needle scores";
    case IdentifyPart::kRepetition:
      return "repetition scores";
  }
  return "";
}

FinderBytes finder_bytes(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape) {
  const double n = as_real(shape.n_tokens);
  const double ranks = as_real(shape.n_ranks);
  const double own = n / ranks;
  const double kv = as_real(spec.n_kv_heads * spec.head_dim);
  const double q = as_real(spec.n_heads * spec.head_dim);
  const double d = as_real(spec.d_model);
  const double tile = std::min(as_real(shape.tile_rows), own);
  // Every layer's rows are all of the rank's tokens: a position of 8 bytes for each, and one more.
  const double rows = own * (d * kFloatBytes + as_real(spec.n_layers + 2) * 8) + n * 4;
  // Of several ranks the own keys, everybody's by rank, and everybody's in the text's order.
  const double key_floats = shape.n_ranks == 1 ? n * kv : own * kv + 2 * n * kv;
  const double keys = n * 2 * kv * as_real(static_cast<std::int64_t>(shape.kv_value_bytes)) +
                      key_floats * kFloatBytes;
  // Products with bf16 weights round what they read into a copy, of floats at most.
  const double ffn = std::min(tile, 512.0) * as_real(spec.d_ff);
  const double copies = shape.weight_dtype == DType::kBf16 && shape.device == Device::kCpu
                            ? std::max({tile * d, tile * q, ffn})
                            : 0;  // GPUs: among the scratch memory
  const double forward =
      (tile * (2 * d + 2 * q + 2 * kv + 2 * as_real(spec.n_heads) + as_real(spec.head_dim)) +
       2 * ffn + copies) *
      kFloatBytes;
  const double scored = scored_rows(part, shape);
  const double scores = scored * (n + as_real(spec.head_dim)) * kFloatBytes;
  const auto bytes = [](double x) { return static_cast<std::size_t>(x); };
  return {.rows = bytes(rows),
          .keys = bytes(keys),
          .forward = bytes(forward),
          .scores = bytes(scores + remembered_bytes(part, spec, shape)),
          .scratch = bytes(forward_scratch_bytes(spec, shape))};
}

double finder_flops(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape) {
  TrainingShape dense = shape;
  dense.n_answer = shape.n_tokens;  // of the last layer all rows are computed, too
  double n_scored = 0;
  if (part == IdentifyPart::kNeedle) n_scored = as_real(shape.n_answer);
  if (part == IdentifyPart::kRepetition) n_scored = as_real(shape.n_tokens - shape.n_tokens / 2);
  return training_flops(spec, dense).teacher +
         n_scored * as_real(shape.n_tokens) * 2 *
             as_real(spec.n_layers * spec.n_heads * spec.head_dim);
}

std::int64_t bytes_of(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape) {
  switch (part) {
    case IdentifyPart::kTraining:
      return static_cast<std::int64_t>(training_bytes(spec, shape).total());
    case IdentifyPart::kDistance: {
      const TrainingBytes step = training_bytes(spec, shape);
      return static_cast<std::int64_t>(step.total() - step.backward);
    }
    case IdentifyPart::kCopies:
    case IdentifyPart::kNeedle:
    case IdentifyPart::kRepetition:
      break;
  }
  return static_cast<std::int64_t>(finder_bytes(part, spec, shape).total());
}

std::string describe_cost(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape) {
  if (part == IdentifyPart::kTraining) return describe_training(spec, shape);
  const std::string ranks = fmt::format("{} rank{}", shape.n_ranks, shape.n_ranks == 1 ? "" : "s");
  if (part == IdentifyPart::kDistance) {
    const TrainingFlops flops = training_flops(spec, shape);
    return fmt::format("{} ({} tokens), {}:\n  {:.4g} TFLOP; {:.2f} GiB a rank besides weights\n",
                       name_of(part), shape.n_tokens, ranks, (flops.teacher + flops.student) / 1e12,
                       in_gib(as_real(bytes_of(part, spec, shape))));
  }
  const FinderBytes bytes = finder_bytes(part, spec, shape);
  const auto shown = [](std::size_t n) { return in_gib(static_cast<double>(n)); };
  return fmt::format(
      "{} ({} tokens), {}:\n"
      "  {:.4g} TFLOP; {:.2f} GiB a rank besides weights: rows {:.2f}, a layer's keys {:.2f},\n"
      "  forward {:.2f}, scores {:.2f}{}\n",
      name_of(part), shape.n_tokens, ranks, finder_flops(part, spec, shape) / 1e12,
      shown(bytes.total()), shown(bytes.rows), shown(bytes.keys), shown(bytes.forward),
      shown(bytes.scores),
      bytes.scratch > 0 ? fmt::format(", the GPU's operators {:.2f}", shown(bytes.scratch)) : "");
}

}  // namespace longhaul
