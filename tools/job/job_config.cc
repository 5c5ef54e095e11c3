#include "tools/job/job_config.h"

#include <algorithm>

namespace longhaul {

std::int64_t default_chunk_len(std::int64_t n_ranks) {
  return 2048 * std::clamp<std::int64_t>(n_ranks, 1, 4);
}

}  // namespace longhaul
