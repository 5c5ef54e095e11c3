#include "partition/kv_format.h"

#include <fmt/format.h>

#include "base/error.h"

namespace longhaul {

void require_one_rank(const KvFormat& kv) {
  if (!kv.has_open_blocks()) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("caches of {} and {} lie on one rank so far: take one rank for each "
                          "replica (--ranks 1, or as many --replicas as ranks), or other cache "
                          "types",
                          name_of(kv.k_type), name_of(kv.v_type)));
}

}  // namespace longhaul
