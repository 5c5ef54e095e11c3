// Which bytes of the parts hold which rows, with a checksum of each chunk: the data set /chunks of
// parts and masters. With it caches come back in one pass over the files, on many threads, without
// HDF5. Private to this folder.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/tag128.h"
#include "worker/snapshot/hdf5_file.h"
#include "worker/snapshot/row_chunks.h"

namespace longhaul {

struct SavedChunk {
  std::int64_t file = 0;  // of /files; 0 in a part
  LayerId layer;
  KvHeadId kv_head;
  RowSet set;
  Extent rows;               // of the file's data set
  std::int64_t offset = 0;   // in the file
  std::int64_t n_bytes = 0;  // there, with HDF5's own checksum
  Tag128 tag{};              // of these bytes
  // Its rows are the document's. False for what later files replaced.
  bool is_used = true;
};

void write_chunk_table(const Hdf5File& file, const std::vector<SavedChunk>& chunks);
std::vector<SavedChunk> read_chunk_table(const Hdf5File& file);  // empty where there is none

// SHA-256 of the bytes of a file that are in none of these chunks of it, in their order.
std::string sha256_between(const std::filesystem::path& path, std::vector<Extent> chunk_bytes);
std::vector<Extent> bytes_of(const std::vector<SavedChunk>& chunks, std::int64_t file);

}  // namespace longhaul
