// Fills cache blocks of one head from the rows of saved parts. Private to this folder.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/kv_block.h"
#include "worker/snapshot/part_pieces.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {

// A block to be filled: zero but for what is written.
struct BlockToFill {
  Extent positions;           // of its tokens, which begin with its first slot
  std::byte* data = nullptr;  // on the host
};

// The parts of one saved sequence, open for reading. Takes the HDF5 lock for each read, so that
// threads of one process fill blocks at the same time.
class HeadLoader {
 public:
  explicit HeadLoader(const SavedHeader& header);
  ~HeadLoader();
  HeadLoader(const HeadLoader&) = delete;
  HeadLoader& operator=(const HeadLoader&) = delete;

  // Writes the rows at the blocks' positions into them, converted where `shape` has other types
  // than the files. Reads chunks of rows that hold at least one of them, each once. Blocks ascend
  // by position. Positions that no row has stay as they are; all that the head keeps have one.
  // Throws kCorruptData naming part and data set.
  void fill(LayerId layer, KvHeadId kv_head, const KvBlockShape& shape,
            std::span<const BlockToFill> blocks);
  // All rows of a head as floats, by position: what its codes stand for, where it has codes.
  SavedRows rows(LayerId layer, KvHeadId kv_head);
  // [d_model]; empty when the files have none.
  std::vector<float> last_hidden();

 private:
  const SavedHeader& header_;
  std::unique_ptr<PartReader> reader_;
};

}  // namespace longhaul
