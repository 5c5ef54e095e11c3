#include "partition/place_heads.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "partition/apportion.h"
#include "partition/room.h"

namespace longhaul {
namespace {

using Blocks = IndexedVector<RingPos, std::int64_t>;
using Homes = std::vector<IndexedVector<KvHeadId, Home>>;    // by layer of the stage
using SeesAll = std::vector<IndexedVector<KvHeadId, bool>>;  // the same

bool has_fixed_room(const PlacementArgs& args) {
  return std::all_of(args.room.begin(), args.room.end(), [](std::int64_t r) { return r >= 0; });
}

Homes empty_homes(const SeesAll& sees_all) {
  Homes homes;
  for (const auto& layer : sees_all) homes.emplace_back(layer.size());
  return homes;
}

// Divides by the greatest common divisor: two whole heads' worth over two ranks is 1 : 1.
void reduce(Home& home) {
  std::int64_t divisor = 0;
  for (const HomeShare& share : home.shares) divisor = std::gcd(divisor, share.weight);
  for (HomeShare& share : home.shares) share.weight /= divisor;
}

// Gives out one layer: `quota` blocks, which sum to heads.size() * document_blocks. Ranks
// take whole heads first; what is left of their quotas lies end to end over the remaining heads.
// The line starts at another rank in each layer, so that nobody always has the first blocks.
void place_layer(const PlacementArgs& args, std::int64_t document_blocks, std::size_t layer,
                 const IndexedVector<KvHeadId, bool>& sees_all, Blocks quota,
                 IndexedVector<KvHeadId, Home>& homes) {
  std::vector<Home*> heads;
  for (const KvHeadId h : homes.ids()) {
    if (sees_all[h]) heads.push_back(&homes[h]);
  }
  std::size_t next = 0;
  for (const RingPos i : quota.ids()) {
    for (; quota[i] >= document_blocks; quota[i] -= document_blocks) {
      heads[next++]->shares = {{args.ring[i], 1}};
    }
  }
  std::int64_t filled = 0;
  for (std::size_t k = 0; k < quota.size(); ++k) {
    const RingPos i{static_cast<std::int64_t>((layer + k) % quota.size())};
    while (quota[i] > 0) {
      const std::int64_t part = std::min(quota[i], document_blocks - filled);
      heads[next]->shares.push_back({args.ring[i], part});
      quota[i] -= part;
      filled += part;
      if (filled < document_blocks) continue;
      reduce(*heads[next++]);
      filled = 0;
    }
  }
}

// Retrieval heads, spread within `limits` of document blocks.
void place_split(const PlacementArgs& args, const StageDemand& demand, const SeesAll& sees_all,
                 const Blocks& limits, Homes& homes) {
  if (demand.n_all == 0) return;
  Blocks left(apportion_within(demand.n_all * demand.document_blocks, args.read_speed, limits));
  for (std::size_t layer = 0; layer < args.layers.size(); ++layer) {
    const std::int64_t n_blocks = args.layers[layer].heads.n_all * demand.document_blocks;
    if (n_blocks == 0) continue;
    // In proportion to what each rank still has to take, so all end at exactly their parts. The
    // added tiny weight keeps the weights of finished ranks above 0.
    std::vector<double> weights(left.begin(), left.end());
    for (double& weight : weights) weight += 1e-9;
    const Blocks quota(apportion_within(n_blocks, weights, left));
    for (const RingPos i : quota.ids()) left[i] -= quota[i];
    place_layer(args, demand.document_blocks, layer, sees_all[layer], quota, homes[layer]);
  }
}

// Keeps what each rank reads per decode step, in blocks over its speed: in the layer at hand and in
// all layers so far.
class ReadLoad {
 public:
  explicit ReadLoad(const PlacementArgs& args)
      : args_(args), of_layer_(args.ring.size(), 0.0), of_all_(args.ring.size(), 0.0) {
    for (const RingPos i : args.ring.ids()) position_[args.ring[i]] = i;
  }
  void start_layer() { std::fill(of_layer_.begin(), of_layer_.end(), 0.0); }
  void add(RingPos i, double blocks) {
    const double load =
        (blocks * static_cast<double>(args_.n_sequences) + args_.blocks_read_per_head) /
        args_.read_speed[i];
    of_layer_[i] += load;
    of_all_[i] += load;
  }
  void add(const Home& home, double blocks) {
    double whole = 0;
    for (const HomeShare& share : home.shares) whole += static_cast<double>(share.weight);
    for (const HomeShare& share : home.shares) {
      add(position_.at(share.rank), blocks * static_cast<double>(share.weight) / whole);
    }
  }
  // The rank with room that has the least to read, in this layer and then over all.
  template <typename HasRoom>
  std::optional<RingPos> least(const HasRoom& has_room) const {
    std::optional<RingPos> best;
    for (const RingPos i : of_layer_.ids()) {
      if (!has_room(i)) continue;
      if (!best || of_layer_[i] < of_layer_[*best] ||
          (of_layer_[i] == of_layer_[*best] && of_all_[i] < of_all_[*best])) {
        best = i;
      }
    }
    return best;
  }

 private:
  const PlacementArgs& args_;
  IndexedVector<RingPos, double> of_layer_;
  IndexedVector<RingPos, double> of_all_;
  std::unordered_map<Rank, RingPos> position_;
};

// Windowed heads to the ranks with the least to read. `take(i, blocks)` says whether rank i has
// room for so many blocks more. False when some head finds no rank.
template <typename HasRoom, typename Take>
bool place_windowed(const PlacementArgs& args, const StageDemand& demand, const SeesAll& sees_all,
                    const HasRoom& has_room, const Take& take, Homes& homes) {
  ReadLoad load(args);
  for (std::size_t layer = 0; layer < args.layers.size(); ++layer) {
    const LayerDemand& wanted = args.layers[layer];
    load.start_layer();
    for (const KvHeadId h : homes[layer].ids()) {
      if (sees_all[layer][h]) {
        load.add(homes[layer][h], static_cast<double>(demand.document_blocks));
      }
    }
    for (const KvHeadId h : homes[layer].ids()) {
      if (sees_all[layer][h]) continue;
      const auto position = load.least([&](RingPos i) { return has_room(i, wanted); });
      if (!position) return false;
      take(*position, wanted);
      homes[layer][h].shares = {{args.ring[*position], 1}};
      load.add(*position, 0);
    }
  }
  return true;
}

// Room left beside the retrieval heads' homes, counted as the memory model counts it.
Blocks room_beside(const PlacementArgs& args, const Homes& homes) {
  Blocks room = args.room;
  std::unordered_map<Rank, RingPos> position;
  for (const RingPos i : args.ring.ids()) position[args.ring[i]] = i;
  for (const auto& layer : homes) {
    for (const Home& home : layer) {
      if (home.shares.empty()) continue;
      const auto blocks = blocks_by_share(home, args.document_blocks);
      const auto tail = max_blocks_in_window(home, args.tail_blocks);
      for (std::size_t s = 0; s < blocks.size(); ++s) {
        room[position.at(home.shares[s].rank)] -= blocks[s] + args.n_sequences * tail[s];
      }
    }
  }
  return room;
}

bool place_windowed_in_room(const PlacementArgs& args, const StageDemand& demand,
                            const SeesAll& sees_all, Homes& homes) {
  Blocks room = room_beside(args, homes);
  return place_windowed(
      args, demand, sees_all,
      [&](RingPos i, const LayerDemand& layer) { return room[i] >= layer.windowed_blocks; },
      [&](RingPos i, const LayerDemand& layer) { room[i] -= layer.windowed_blocks; }, homes);
}

// Document blocks for each rank that keeps `spared` of its blocks back.
Blocks limits_beside(const PlacementArgs& args, const StageDemand& demand, const Blocks& spared) {
  Blocks limits;
  for (const RingPos i : args.room.ids()) {
    limits.push_back(document_room(demand, args.room[i] - spared[i]));
  }
  return limits;
}

// Retrieval heads within limits, the others where room is left; nullopt when some finds none.
std::optional<Homes> place_in_turn(const PlacementArgs& args, const StageDemand& demand,
                                   const SeesAll& sees_all, std::int64_t spared) {
  Homes homes = empty_homes(sees_all);
  const Blocks each(args.room.size(), spared);
  place_split(args, demand, sees_all, limits_beside(args, demand, each), homes);
  if (!place_windowed_in_room(args, demand, sees_all, homes)) return std::nullopt;
  return homes;
}

// Each rank takes as many windowed heads as were counted for it.
Homes place_as_counted(const PlacementArgs& args, const StageDemand& demand,
                       const SeesAll& sees_all, IndexedVector<RingPos, std::int64_t> n_windowed) {
  Blocks spared;
  for (const std::int64_t n : n_windowed) spared.push_back(n * demand.windowed_blocks);
  Homes homes = empty_homes(sees_all);
  place_split(args, demand, sees_all, limits_beside(args, demand, spared), homes);
  place_windowed(
      args, demand, sees_all, [&](RingPos i, const LayerDemand&) { return n_windowed[i] > 0; },
      [&](RingPos i, const LayerDemand&) { --n_windowed[i]; }, homes);
  return homes;
}

Homes place_whole(const PlacementArgs& args, const StageDemand& demand, const SeesAll& sees_all) {
  Blocks room = args.room;
  Homes homes = empty_homes(sees_all);
  ReadLoad load(args);
  for (std::size_t layer = 0; layer < args.layers.size(); ++layer) {
    load.start_layer();
    for (const KvHeadId h : homes[layer].ids()) {
      if (!sees_all[layer][h]) continue;
      const std::int64_t blocks =
          args.document_blocks + args.n_sequences * args.tail_blocks;  // as the memory model counts
      const auto position = load.least([&](RingPos i) { return room[i] >= blocks; });
      room[*position] -= blocks;
      homes[layer][h].shares = {{args.ring[*position], 1}};
      load.add(*position, static_cast<double>(demand.document_blocks));
    }
  }
  place_windowed_in_room(args, demand, sees_all, homes);
  return homes;
}

}  // namespace

bool heads_fit(const PlacementArgs& args) {
  if (!has_fixed_room(args)) return false;
  const StageDemand demand = stage_demand(args);
  if (args.whole_heads) return whole_fits(args, demand);
  return spare_fits(args, demand) || share_fits(args, demand) || whole_fits(args, demand);
}

std::vector<IndexedVector<KvHeadId, Home>> place_heads(
    const PlacementArgs& args, const std::vector<IndexedVector<KvHeadId, bool>>& sees_all) {
  const StageDemand demand = stage_demand(args);
  require(has_fixed_room(args), "place_heads: the weights alone do not fit");
  std::optional<Homes> homes;
  if (args.whole_heads) {
    if (whole_fits(args, demand)) homes = place_whole(args, demand, sees_all);
  } else if (spare_fits(args, demand)) {
    homes = place_in_turn(args, demand, sees_all, demand.n_windowed * demand.windowed_blocks);
  } else if (const auto n_windowed = share_fits(args, demand)) {
    homes = place_in_turn(args, demand, sees_all, 0);
    if (!homes) homes = place_as_counted(args, demand, sees_all, *n_windowed);
  } else if (whole_fits(args, demand)) {
    homes = place_whole(args, demand, sees_all);
  }
  require(homes.has_value(), "place_heads: the heads do not fit");
  return std::move(*homes);
}

}  // namespace longhaul
