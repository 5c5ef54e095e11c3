// How fast caches are saved and restored, beside what the same disk takes and gives in the same
// process: a plain file of as many bytes, written and synced, and read after the system forgot it.
#pragma once
#include <cstdint>
#include <filesystem>

#include "kernels/kv_block.h"

namespace longhaul::bench {

struct KvSpeedCase {
  std::filesystem::path folder;  // on the disk to be measured; made, and removed when it is empty
  KvBlockShape shape;
  std::int64_t n_layers = 1;
  std::int64_t n_kv_heads = 8;  // that keep every token
  std::int64_t n_tokens = 1024;
};

struct KvSpeed {
  std::int64_t n_bytes = 0;  // of the saved files
  // Seconds, the fastest of three, taken in turns: a system that gives memory for the first time is
  // several times as slow, for either.
  double plain_write = 0.0;   // on one thread by way of the page cache, as dd does it
  double direct_write = 0.0;  // past it, on as many threads as caches are saved with
  double save = 0.0;          // with checksums, synced
  double plain_read = 0.0;
  double direct_read = 0.0;
  // Caches are restored into memory that the system gives and clears; plain files are read into the
  // same few pieces again and again. This is direct_read into as much new memory.
  double read_to_new_memory = 0.0;
  double restore = 0.0;  // with checksums
};

// One rank's caches, of random bytes. Blocks; takes their memory twice, and their bytes on the disk
// twice at a time.
KvSpeed measure_kv_speed(const KvSpeedCase& c);

}  // namespace longhaul::bench
