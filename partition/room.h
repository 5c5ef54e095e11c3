// The conditions under which a stage's heads have room, apart from where they go: what heads_fit
// (partition/place_heads.h) tests and what place_heads works within. Internal to partition/.
//
// Three ways, tried in this order. In the first two any head that keeps everything may be spread
// over ranks. A rank that then stores x heads' worth of the document needs x * document blocks, and
// for the tails of forks no more than (floor(x) + 2) times a whole tail, since it holds at most two
// partial heads a layer. The `2` is reserved beforehand, so the rest is one sum.
//   spare   every rank spares room for all windowed heads, which are small, before it stores others
//   share   windowed heads have their room counted rank by rank
//   whole   every head has one home: exact also where tails outweigh documents
// Each condition is made of sums that only grow with each rank's room.
#pragma once
#include <cstdint>
#include <optional>

#include "partition/place_heads.h"

namespace longhaul {

struct StageDemand {
  std::int64_t n_all = 0;            // heads that keep everything, over all layers
  std::int64_t n_windowed = 0;       // heads that keep a window, over all layers
  std::int64_t windowed_blocks = 0;  // of the largest windowed head
  std::int64_t all_windowed_blocks = 0;
  std::int64_t document_blocks = 0;  // of one head; at least 1
  std::int64_t tail_blocks = 0;      // of one whole head, all forks
  std::int64_t reserve = 0;          // for tails of partial heads, on a rank that has any
  std::int64_t head_blocks() const { return document_blocks + tail_blocks; }
};
StageDemand stage_demand(const PlacementArgs& args);

bool spare_fits(const PlacementArgs& args, const StageDemand& demand);
// How many windowed heads each rank takes; nullopt when they do not fit that way.
std::optional<IndexedVector<RingPos, std::int64_t>> share_fits(const PlacementArgs& args,
                                                               const StageDemand& demand);
// Document blocks that a rank with `room` blocks can take when heads are spread.
std::int64_t document_room(const StageDemand& demand, std::int64_t room);

bool whole_fits(const PlacementArgs& args, const StageDemand& demand);

}  // namespace longhaul
