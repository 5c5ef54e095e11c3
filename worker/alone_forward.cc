#include "worker/alone_forward.h"

namespace longhaul {

HiddenRows AloneForward::prefill(const ForwardChunk& chunk) {
  const auto n_new = static_cast<std::int64_t>(chunk.tokens.size());
  const BatchSegment segment{
      .cache = &chunk.cache, .rows = {0, n_new}, .first_position = chunk.first_position};
  const bool wants_all = chunk.wanted == WantedRows::kAll;
  const auto rows = transformer_.forward({.tokens = chunk.tokens,
                                          .segments = {&segment, 1},
                                          .wanted = Extent{wants_all ? 0 : n_new - 1, n_new}});
  const std::int64_t end = chunk.positions().end;
  return {.rows = rows, .tokens = {{end - rows.dim(0), end}}};
}

TensorView<const float, 2> AloneForward::decode(std::span<const DecodeRow> rows,
                                                std::span<const std::int32_t> tokens) {
  segments_.clear();
  for (const DecodeRow& row : rows) {
    const auto i = static_cast<std::int64_t>(segments_.size());
    segments_.push_back({.cache = row.cache, .rows = {i, i + 1}, .first_position = row.position});
  }
  return transformer_.forward({.tokens = tokens, .segments = segments_});
}

}  // namespace longhaul
