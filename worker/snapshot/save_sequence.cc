#include "worker/snapshot/save_sequence.h"

#include "base/error.h"

namespace longhaul {

void save_sequence(const SaveSequenceArgs& /*args*/) {
  throw Error(ErrorCode::kUnsupported, "this build cannot save KV caches to files");
}

}  // namespace longhaul
