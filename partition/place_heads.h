// Homes for the heads of one stage: where their blocks live, within each rank's room.
//
// Retrieval heads take what each rank may carry: in proportion to how fast it reads memory, as far
// as its room goes (a rank without room gets none). In each layer a rank first gets whole heads;
// what remains of its part is a piece of one or two heads that it shares with its neighbours, with
// the numbers of blocks as weights. Windowed heads then go, layer by layer, to the ranks that have
// the least to read there. Whether everything fits is a condition of its own that only gets easier
// with more room, so more memory never turns a plan down.
#pragma once
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/indexed_vector.h"
#include "model/heads/kept_blocks.h"
#include "partition/homes.h"

namespace longhaul {

// One layer's demand.
struct LayerDemand {
  LayerHeads heads;
  std::int64_t windowed_blocks = 0;  // of a head that keeps a window, its forks' included
};

struct PlacementArgs {
  IndexedVector<RingPos, Rank> ring;
  IndexedVector<RingPos, std::int64_t> room;  // blocks; negative: not even the fixed parts fit
  IndexedVector<RingPos, double> read_speed;  // any unit
  std::vector<LayerDemand> layers;
  std::int64_t document_blocks = 0;  // of one head
  std::int64_t tail_blocks = 0;      // that one fork can touch
  std::int64_t n_sequences = 1;      // forks
  bool whole_heads = false;          // each head has one home
  double blocks_read_per_head = 0;   // a head's projections, in blocks: read whatever it keeps
};

// True when place_heads will succeed. O(ring + layers).
bool heads_fit(const PlacementArgs& args);

// Homes of the heads of each of args.layers; sees_all, of the same shape, says which heads see
// every token. Throws kInvalidArgument unless heads_fit(args).
std::vector<IndexedVector<KvHeadId, Home>> place_heads(
    const PlacementArgs& args, const std::vector<IndexedVector<KvHeadId, bool>>& sees_all);

}  // namespace longhaul
