#include "worker/alone_forward.h"

#include <algorithm>
#include <limits>

#include "worker/attention/accumulate.h"
#include "worker/attention/compaction.h"

namespace longhaul {

AloneForward::AloneForward(LayerCompute& compute, const CacheLayout& layout)
    : compute_(compute),
      layout_(layout),
      n_observed_(observes_all(layout) ? std::numeric_limits<std::int64_t>::max()
                                       : n_observed_queries(layout)),
      transformer_(compute, layout) {}

HiddenRows AloneForward::prefill(const ForwardChunk& chunk) {
  const auto n_new = static_cast<std::int64_t>(chunk.tokens.size());
  const BatchSegment segment{
      .cache = &chunk.cache, .rows = {0, n_new}, .first_position = chunk.first_position};
  const std::int64_t n_wanted =
      chunk.wanted == WantedRows::kAll ? n_new : std::clamp<std::int64_t>(n_observed_, 1, n_new);
  const auto rows = transformer_.forward({.tokens = chunk.tokens,
                                          .segments = {&segment, 1},
                                          .wanted = Extent{n_new - n_wanted, n_new},
                                          .is_prompt = true});
  const std::int64_t end = chunk.positions().end;
  return {.rows = rows, .tokens = {{end - rows.dim(0), end}}};
}

TensorView<const float, 2> AloneForward::decode(std::span<const DecodeRow> rows,
                                                std::span<const std::int32_t> tokens) {
  segments_.clear();
  std::int64_t first = 0;
  for (const DecodeRow& row : rows) {
    const Extent of_row{first, first + row.n_tokens()};
    segments_.push_back({.cache = row.cache,
                         .rows = of_row,
                         .first_position = row.position,
                         .n_uncertain = row.n_uncertain});
    first = of_row.end;
  }
  return transformer_.forward({.tokens = tokens, .segments = segments_});
}

void AloneForward::compact(SequenceCache& cache, KeepWhen when) {
  const GatherBytes alone = of_one_rank;
  longhaul::compact({.stream = compute_.stream(),
                     .weights = compute_.weights(),
                     .layout = layout_,
                     .when = when,
                     .gather = alone},
                    cache);
}

}  // namespace longhaul
