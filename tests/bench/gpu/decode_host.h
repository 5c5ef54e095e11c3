// What the host does for a token that a GPU decodes far into a document, without a GPU: on the
// emulated one, whose work is left undone (cuda_on_host::leave_work_undone, to be called before).
// Host work depends on layers, KV heads and tokens, not on widths, so the model is narrow.
#pragma once
#include <cstddef>
#include <cstdint>

#include "model/heads/head_table.h"
#include "model/model_spec.h"

namespace longhaul::bench {

// 8 KV heads of 4 heads each.
ModelSpec narrow_model(std::int64_t n_layers);

struct DecodeHostTimes {
  double median_seconds = 0;  // for a token, of the runs' means
  double best_seconds = 0;    // of the runs' means
  double longest_seconds = 0;
  std::int64_t n_steps = 0;
  std::int64_t n_replays = 0;
  std::size_t n_commands = 0;  // of a step
  std::size_t n_bytes = 0;     // to the GPU in a step
};
// Of steps after n_tokens, in runs in which each block begins and is filled twice.
DecodeHostTimes time_decode_host(const ModelSpec& spec, const HeadTable& heads,
                                 std::int64_t n_tokens, int n_runs);

}  // namespace longhaul::bench
