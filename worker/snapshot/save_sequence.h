// What the step command SaveSequence does on one rank: writes its part of a sequence's caches, and
// on the first rank also the file that presents all parts as one. docs/kv_files.md describes both.
#pragma once
#include <memory>
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
  // Whether this rank writes what all ranks of its stage have: the newest queries.
  bool writes_queries = true;
};

// A sequence that is being saved. What the parts are written from is as it was when this was made:
// where the command goes on from earlier files and the caches are on the host, a thread writes this
// rank's part while others of the sequence's tokens are computed. For that at most kMostCopiedBytes
// are copied (frozen_cache.h); where it would be more, and on GPUs, the part is written at once.
// MPI is used by the calling thread alone.
//
// Both calls are collective over comm and fail on all ranks with the same error: what was written
// is removed then, and the file that presents the parts is never there without all of them. What an
// earlier command of this name saved stays until this one's files are whole, where it goes on. They
// throw kIo with file and remedy (full disk), kFailedPrecondition when the folder holds other
// caches under this name, kUnsupported in a build without HDF5.
class SaveUnderWay {
 public:
  static constexpr std::size_t kMostCopiedBytes = std::size_t{64} << 20;

  // Blocks while it copies, or writes. What args refer to but the caches and last_hidden must
  // outlive it.
  explicit SaveUnderWay(const SaveSequenceArgs& args);
  // Waits for a thread that writes; no file is then made of its part.
  ~SaveUnderWay();
  SaveUnderWay(const SaveUnderWay&) = delete;
  SaveUnderWay& operator=(const SaveUnderWay&) = delete;

  // Blocks until the parts are written, and makes them the document's.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Both at once.
void save_sequence(const SaveSequenceArgs& args);

}  // namespace longhaul
