// How decode attention over blocks by number (kernels/block_table.h) is cut into work. Pure; needs
// no CUDA. The host says for each item how many blocks its rows see and how many ranges they make;
// thread blocks find their range, and its blocks, themselves (attention_work.h): so the host's work
// is a few integers for each item, however long it is.
//
// Items are cut as attention_schedule.h cuts lists of the same blocks, and forks share tiles in the
// same way: results have the same bits.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/cuda/attention_schedule.h"

namespace longhaul::cuda {

struct TableSchedule {
  std::vector<AttentionItemRef> items;
  std::vector<TableRef> tables;  // of each item
  std::vector<std::int64_t> positions;
  std::vector<AttentionMember> members;
  // Of ranges, as AttentionWork::n_ranges says.
  std::vector<AttentionTask> decode;
  std::vector<AttentionTask> wide_decode;
  std::vector<AttentionSplit> splits;
  std::int64_t n_partial_floats = 0;
  std::int64_t n_ranges = 0;  // a power of two, not less than any item has
};

// Whether the item can be done by its table: of few rows, which see no block that is gone.
bool goes_by_table(const KvBlockShape& shape, AttentionKernels kernels, const AttentionItem& item);
// Of such items.
TableSchedule make_table_schedule(const AttentionArgs& args, AttentionKernels kernels);

}  // namespace longhaul::cuda
