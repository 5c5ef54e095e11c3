// What the step command SaveSequence does on one rank: writes its part of a sequence's caches, and
// on the first rank also the file that presents all parts as one. docs/kv_files.md describes both.
#pragma once
#include "base/device/device.h"
#include "cluster/comm/communicator.h"
#include "cluster/wire/step.h"
#include "model/model_spec.h"
#include "worker/kv/sequence_cache.h"

namespace longhaul {

struct SaveSequenceArgs {
  const SaveSequence& command;
  const SequenceCache& cache;           // what this rank holds of it
  StreamRef stream = StreamRef::cpu();  // that worked on the cache
  const ModelSpec& spec;
  Communicator& comm;  // the ranks of the replica
};

// Collective over comm; blocks while it writes. Fails on all ranks with the same error: files of
// this name are removed then, and the file that presents them is never there without all of its
// parts. Throws kIo with file and remedy (full disk), kFailedPrecondition when the folder holds
// other caches under this name, kUnsupported in a build without HDF5.
void save_sequence(const SaveSequenceArgs& args);

}  // namespace longhaul
