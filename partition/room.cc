#include "partition/room.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace longhaul {
namespace {

__extension__ typedef __int128 Wide;  // products of block counts

}  // namespace

StageDemand stage_demand(const PlacementArgs& args) {
  StageDemand demand;
  // Without documents, requests are what is spread.
  demand.document_blocks = std::max(
      {std::int64_t{1}, args.document_blocks, args.document_blocks == 0 ? args.tail_blocks : 0});
  demand.tail_blocks = args.n_sequences * args.tail_blocks;
  std::int64_t n_layers_with_all = 0;
  for (const LayerDemand& layer : args.layers) {
    demand.n_all += layer.n_all;
    demand.n_windowed += layer.n_windowed;
    n_layers_with_all += layer.n_all > 0 ? 1 : 0;
    if (layer.n_windowed > 0) {
      demand.windowed_blocks = std::max(demand.windowed_blocks, layer.windowed_blocks);
      demand.all_windowed_blocks += layer.n_windowed * layer.windowed_blocks;
    }
  }
  demand.reserve = 2 * n_layers_with_all * demand.tail_blocks;
  return demand;
}

std::int64_t document_room(const StageDemand& demand, std::int64_t room, std::int64_t n_windowed) {
  const std::int64_t left = room - n_windowed * demand.windowed_blocks - demand.reserve;
  if (left <= 0) return 0;
  return static_cast<std::int64_t>(Wide{left} * demand.document_blocks / demand.head_blocks());
}

std::optional<std::vector<std::int64_t>> split_fits(const PlacementArgs& args,
                                                    const StageDemand& demand) {
  const std::int64_t unit = std::max<std::int64_t>(1, demand.windowed_blocks);
  std::vector<std::int64_t> n_windowed(args.room.size(), 0);
  std::int64_t left = demand.n_windowed;
  // First where they cost no document room: inside the reserve, or where the reserve is all there
  // is.
  for (std::size_t i = 0; i < args.room.size() && left > 0; ++i) {
    n_windowed[i] = std::min(left, std::min(args.room[i], demand.reserve) / unit);
    left -= n_windowed[i];
  }
  // Then where the next one costs least: it may lie partly in the reserve. After that each costs
  // its whole size anywhere.
  std::vector<std::pair<std::int64_t, std::size_t>> next;
  for (std::size_t i = 0; i < args.room.size() && left > 0; ++i) {
    if (args.room[i] / unit <= n_windowed[i]) continue;
    next.emplace_back(unit - (demand.reserve - n_windowed[i] * unit), i);
  }
  std::sort(next.begin(), next.end());
  for (const auto& [cost, i] : next) {
    if (left == 0) break;
    ++n_windowed[i];
    --left;
  }
  // Evenly over all that still have room.
  while (left > 0) {
    const std::int64_t before = left;
    const std::int64_t each =
        std::max<std::int64_t>(1, left / static_cast<std::int64_t>(args.room.size()));
    for (std::size_t i = 0; i < args.room.size() && left > 0; ++i) {
      const std::int64_t more = std::min({left, each, args.room[i] / unit - n_windowed[i]});
      n_windowed[i] += more;
      left -= more;
    }
    if (left == before) return std::nullopt;
  }
  if (demand.n_all == 0) return n_windowed;
  Wide room = 0;  // for documents and their whole heads' tails, before rounding to document blocks
  for (std::size_t i = 0; i < args.room.size(); ++i) {
    room += std::max<std::int64_t>(
        0, args.room[i] - n_windowed[i] * demand.windowed_blocks - demand.reserve);
  }
  const Wide document = Wide{demand.n_all} * demand.document_blocks;
  // Each rank's room loses less than one document block to rounding.
  const auto rounding = demand.tail_blocks == 0 ? Wide{0} : static_cast<Wide>(args.room.size());
  if (room * demand.document_blocks < (document + rounding) * demand.head_blocks()) {
    return std::nullopt;
  }
  return n_windowed;
}

bool whole_fits(const PlacementArgs& args, const StageDemand& demand) {
  if (args.room.size() == 1) {
    const Wide all = Wide{demand.n_all} * demand.head_blocks() + demand.all_windowed_blocks;
    return all <= args.room.front();
  }
  // In units of a windowed head, a head that keeps everything takes a whole number of units.
  const std::int64_t unit = demand.n_windowed == 0 ? demand.head_blocks() : demand.windowed_blocks;
  const std::int64_t per_head = ceil_div(demand.head_blocks(), unit);
  Wide n_heads = 0;
  Wide n_units = 0;
  for (const std::int64_t room : args.room) {
    n_heads += room / unit / per_head;
    n_units += room / unit;
  }
  return n_heads >= demand.n_all && n_units >= Wide{demand.n_all} * per_head + demand.n_windowed;
}

}  // namespace longhaul
