// Fills cache blocks of one head from the rows of saved parts. Private to this folder.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/kv_block.h"
#include "worker/snapshot/part_pieces.h"
#include "worker/snapshot/rows_to_blocks.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {

// The parts of one saved sequence, open for reading. Takes the HDF5 lock for each read, so that
// threads of one process fill blocks at the same time.
class HeadLoader {
 public:
  explicit HeadLoader(const SavedHeader& header);
  // Of some parts of it only, which are whole: fills what they have, and no more.
  HeadLoader(const SavedHeader& header, std::span<const WrittenFile> parts);
  ~HeadLoader();
  HeadLoader(const HeadLoader&) = delete;
  HeadLoader& operator=(const HeadLoader&) = delete;

  // Writes the rows at the blocks' positions into them, converted where `shape` has other types
  // than the files; of files whose types quantise groups of tokens then the newest ones, too. Reads
  // chunks of rows that hold at least one of them, each once. Blocks ascend by position. Positions
  // that no row has stay as they are; all that the head keeps have one. Throws kCorruptData naming
  // part and data set.
  void fill(LayerId layer, KvHeadId kv_head, const KvBlockShape& shape,
            std::span<const BlockToFill> blocks);
  // The positions of a head that the parts have rows of, in no order; those of its newest tokens,
  // where they are apart, are open_rows'.
  std::vector<Extent> runs(LayerId layer, KvHeadId kv_head);
  // All rows of a head as floats, by position: what its codes stand for, where it has codes.
  SavedRows rows(LayerId layer, KvHeadId kv_head);
  // The newest tokens (open_rows.h); none where there are none.
  OpenRows open_rows(LayerId layer, KvHeadId kv_head);
  // [d_model]; empty when the files have none.
  std::vector<float> last_hidden();
  // What methods go on with (PartReader): queries and sums, empty where there are none.
  ObservedQueries::Rows queries(LayerId layer);
  SavedMerging merging(LayerId layer);
  using AttentionOf = PartReader::AttentionOf;
  std::map<std::int64_t, double> attention(LayerId layer, KvHeadId kv_head, AttentionOf of);
  GoneSums gone(LayerId layer, KvHeadId kv_head);

 private:
  SavedHead head(LayerId layer, KvHeadId kv_head);
  void fill_newest(LayerId layer, KvHeadId kv_head, const KvBlockShape& shape,
                   std::span<const BlockToFill> blocks);

  const SavedHeader& header_;
  bool may_lack_rows_ = false;
  std::unique_ptr<PartReader> reader_;
};

}  // namespace longhaul
