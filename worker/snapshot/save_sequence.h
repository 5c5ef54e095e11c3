// What the step command SaveSequence does on one rank: writes its part of a sequence's caches, and
// on the first rank also the file that presents all parts as one. docs/kv_files.md describes both.
#pragma once
#include <span>
#include <string>

#include "base/device/device.h"
#include "cluster/comm/communicator.h"
#include "cluster/wire/step.h"
#include "model/model_spec.h"
#include "worker/kv/sequence_cache.h"

namespace longhaul {

// Throws kInvalidArgument for what may not be the name of files in the user's folder.
void check_file_name(const std::string& name);

struct SaveSequenceArgs {
  const SaveSequence& command;
  const SequenceCache& cache;               // what this rank holds of it
  std::span<const float> last_hidden = {};  // [d_model], on the rank that answers
  StreamRef stream = StreamRef::cpu();      // that worked on the cache
  const ModelSpec& spec;
  Communicator& comm;  // the ranks of the replica
};

// Collective over comm; blocks while it writes. Fails on all ranks with the same error: what it
// wrote is removed then, and the file that presents the parts is never there without all of them.
// What an earlier command of this name saved stays until this one's files are whole, where it goes
// on. Throws kIo with file and remedy (full disk), kFailedPrecondition when the folder holds other
// caches under this name, kUnsupported in a build without HDF5.
void save_sequence(const SaveSequenceArgs& args);

}  // namespace longhaul
