// What the heads of a table need of a rank, counted over the heads of each layer: once for a
// workload, however many stages are tried with it. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "model/heads/head_table.h"
#include "model/heads/kept_blocks.h"
#include "model/model_spec.h"
#include "partition/choice_memory.h"
#include "partition/cluster_spec.h"
#include "partition/workload.h"

namespace longhaul {

// What methods of some heads need beside their blocks: bounds of pages, sums of attention, room in
// which chosen tokens are gathered, and open blocks.
struct BesideBlocks {
  std::int64_t of_block = 0;       // bytes, at most, whether tokens are gathered in it or not
  std::int64_t of_heads = 0;       // bytes, whatever blocks they have
  std::int64_t most_gathered = 0;  // blocks
  std::int64_t n_times = 0;        // that a head gathers its tokens, at most
  void add(const BesideBlocks& other);
};

struct HeadNeeds {
  HeadNeeds(const HeadTable& heads, const ModelSpec& spec, const ClusterSpec& cluster,
            const Workload& workload);
  std::vector<LayerHeads> heads;     // [n_layers]
  std::vector<BesideBlocks> beside;  // [n_layers]
  std::vector<LayerChoice> choice;   // [n_layers]
  std::int64_t scratch = 0;          // of a rank on a GPU, where there are any (scratch_memory.h)
};

// The newest tokens of the document and of all its forks, where these are quantised in groups: at
// each home of a head, since any may be that of the newest block.
std::int64_t open_bytes_of_head(const KvFormat& kv, const Workload& workload);

}  // namespace longhaul
