#include "partition/weight_support.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/int4_format.h"

namespace longhaul {

std::optional<std::string> why_not_weights(const ModelSpec& spec, DType weights) {
  if (weights != DType::kI4) return std::nullopt;
  // Of the output projection: the outputs of one KV head's query heads are quantised together.
  const std::int64_t group = spec.gqa_group() * spec.head_dim;
  if (group % kInt4Line == 0) return std::nullopt;
  return fmt::format("query heads of one KV head have {} values, no multiple of {}: --weights int8",
                     group, kInt4Line);
}

void require_weights(const ModelSpec& spec, DType weights) {
  if (const auto why = why_not_weights(spec, weights))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--weights {}: {}", name_of(weights), *why));
}

}  // namespace longhaul
