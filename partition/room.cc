#include "partition/room.h"

#include <algorithm>
#include <cstddef>

namespace longhaul {
namespace {

__extension__ typedef __int128 Wide;  // products of block counts

// `room` blocks, summed over the ring, for all documents and the tails of their whole heads. Each
// rank's part loses less than one document block when it is rounded.
bool has_document_room(const PlacementArgs& args, const StageDemand& demand, Wide room) {
  if (demand.n_all == 0) return room >= 0;
  const auto rounding = demand.tail_blocks == 0 ? Wide{0} : static_cast<Wide>(args.room.size());
  const Wide document = Wide{demand.n_all} * demand.document_blocks;
  return room * demand.document_blocks >= (document + rounding) * demand.head_blocks();
}

}  // namespace

StageDemand stage_demand(const PlacementArgs& args) {
  StageDemand demand;
  // Without documents, requests are what is spread.
  demand.document_blocks = std::max(
      {std::int64_t{1}, args.document_blocks, args.document_blocks == 0 ? args.tail_blocks : 0});
  demand.tail_blocks = args.n_sequences * args.tail_blocks;
  std::int64_t n_layers_with_all = 0;
  for (const LayerDemand& layer : args.layers) {
    demand.n_all += layer.heads.n_all;
    demand.n_windowed += layer.heads.n_windowed;
    n_layers_with_all += layer.heads.n_all > 0 ? 1 : 0;
    if (layer.heads.n_windowed > 0) {
      demand.windowed_blocks = std::max(demand.windowed_blocks, layer.windowed_blocks);
      demand.all_windowed_blocks += layer.heads.n_windowed * layer.windowed_blocks;
    }
  }
  demand.reserve = 2 * n_layers_with_all * demand.tail_blocks;
  return demand;
}

std::int64_t document_room(const StageDemand& demand, std::int64_t room) {
  const std::int64_t left = room - demand.reserve;
  if (left <= 0) return 0;
  return static_cast<std::int64_t>(Wide{left} * demand.document_blocks / demand.head_blocks());
}

bool spare_fits(const PlacementArgs& args, const StageDemand& demand) {
  const std::int64_t unit = std::max<std::int64_t>(1, demand.windowed_blocks);
  const std::int64_t spared = demand.n_windowed * demand.windowed_blocks;
  Wide n_windowed = 0;
  Wide room = 0;
  for (const std::int64_t r : args.room) {
    n_windowed += std::min(r, spared) / unit;
    room += std::max<std::int64_t>(0, r - spared - demand.reserve);
  }
  return n_windowed >= demand.n_windowed && has_document_room(args, demand, room);
}

std::optional<IndexedVector<RingPos, std::int64_t>> share_fits(const PlacementArgs& args,
                                                               const StageDemand& demand) {
  const std::int64_t unit = std::max<std::int64_t>(1, demand.windowed_blocks);
  Wide room = 0;
  for (const std::int64_t r : args.room) room += std::max<std::int64_t>(0, r - demand.reserve);
  room -= Wide{demand.n_windowed} * demand.windowed_blocks;
  if (!has_document_room(args, demand, room)) return std::nullopt;
  // Evenly over all that still have room.
  IndexedVector<RingPos, std::int64_t> n_windowed(args.room.size(), 0);
  std::int64_t left = demand.n_windowed;
  while (left > 0) {
    const std::int64_t before = left;
    const std::int64_t each = std::max<std::int64_t>(1, left / args.room.n());
    for (const RingPos i : args.room.ids()) {
      if (left == 0) break;
      const std::int64_t most = std::max<std::int64_t>(0, args.room[i] - demand.reserve) / unit;
      const std::int64_t more = std::min({left, each, most - n_windowed[i]});
      n_windowed[i] += more;
      left -= more;
    }
    if (left == before) return std::nullopt;
  }
  return n_windowed;
}

bool whole_fits(const PlacementArgs& args, const StageDemand& demand) {
  if (args.room.size() == 1) {
    const Wide all = Wide{demand.n_all} * demand.head_blocks() + demand.all_windowed_blocks;
    return all <= args.room.front();
  }
  // However the heads that keep everything lie, less than one windowed head's room is lost on each
  // rank beside them.
  Wide n_heads = 0;
  Wide room = 0;
  for (const std::int64_t r : args.room) {
    n_heads += r / demand.head_blocks();
    room += r;
  }
  if (demand.n_windowed > 0) room -= Wide(args.room.size()) * (demand.windowed_blocks - 1);
  return n_heads >= demand.n_all && room >= Wide{demand.n_all} * demand.head_blocks() +
                                                Wide{demand.n_windowed} * demand.windowed_blocks;
}

}  // namespace longhaul
