// What the step command RestoreSequence does on one rank: fills the blocks that it is home of from
// saved caches, whoever wrote them and on however many ranks (docs/kv_files.md).
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "base/device/device.h"
#include "cluster/comm/communicator.h"
#include "cluster/wire/step.h"
#include "model/model_spec.h"
#include "model/token_class.h"
#include "worker/kv/sequence_cache.h"

namespace longhaul {

struct RestoreSequenceArgs {
  const RestoreSequence& command;
  SequenceCache& cache;                 // empty; filled
  StreamRef stream = StreamRef::cpu();  // that works on the cache
  const ModelSpec& spec;
  Communicator& comm;  // the ranks of the replica
  // Whether this rank stores block `block` (position / block_size) of a head that it serves.
  std::function<bool(LayerId, KvHeadId, std::int64_t block)> is_home;
  // Of the vocabulary, where heads ask what kinds of tokens there are; else null.
  const TokenClasses* token_classes = nullptr;
};

// Collective over comm; blocks while it reads. Every file is checked whole before any of it is
// used, the parts by the ranks in turns. The last token's hidden row, [d_model]: what scores the
// next one; empty where the files have none. Fails on all ranks with the same error, and the cache
// can only be dropped then: kCorruptData naming file and data set, kFailedPrecondition naming what
// differs from this run, kUnsupported for another format version, kOutOfMemory.
std::vector<float> restore_sequence(const RestoreSequenceArgs& args);

}  // namespace longhaul
