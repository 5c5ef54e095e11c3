#include "worker/ring/stage_links.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/device/device_memory.h"
#include "base/error.h"
#include "worker/ring/float_bytes.h"
#include "worker/ring/ring_chunk.h"

namespace longhaul {
namespace {

std::int64_t total_size(const std::vector<Extent>& extents) {
  std::int64_t n = 0;
  for (const Extent& extent : extents) n += extent.size();
  return n;
}

// Rows of position `of` that lie in slabs of position `in`: extents of rows, counted in the slabs
// of `of`, in token order.
std::vector<Extent> common_rows(const std::vector<Extent>& of, const std::vector<Extent>& in) {
  std::vector<Extent> rows;
  std::int64_t first_row = 0;
  for (const Extent& slab : of) {
    for (const Extent& other : in) {
      const Extent tokens{std::max(slab.begin, other.begin), std::min(slab.end, other.end)};
      if (tokens.empty()) continue;
      rows.push_back({first_row + tokens.begin - slab.begin, first_row + tokens.end - slab.begin});
    }
    first_row += slab.size();
  }
  return rows;
}

OfRing<std::vector<Extent>> slabs_in(const Stage& stage, Extent chunk, std::int64_t block_size) {
  return slabs_by_owner(slabs_of_chunk(stage.token_share, chunk, block_size));
}

}  // namespace

// All ranks come to the links of even stages with the next ones first, then to those of odd ones.
StageLinks::StageLinks(const RingStage& stage, const RingContext& replica)
    : stage_(stage), stream_(replica.stream) {
  for (const std::int64_t parity : {0, 1}) {
    const bool is_first = stage.number() % 2 == parity;  // of the two stages
    Link& link = is_first ? after_ : before_;
    const std::int64_t first_stage = is_first ? stage.number() : stage.number() - 1;
    link.comm = link_with(replica, first_stage);
    if (!link.comm) continue;
    link.comm->prepare_exchanges();
    link.context.emplace(RingContext{.comm = *link.comm,
                                     .times = replica.times,
                                     .board = replica.board,
                                     .trace = replica.trace,
                                     .stream = replica.stream});
  }
}

// Collective over the replica's ranks. Between that stage and the next one; null where one of them
// is not there.
std::unique_ptr<Communicator> StageLinks::link_with(const RingContext& replica,
                                                    std::int64_t first_stage) const {
  const auto n_stages = static_cast<std::int64_t>(stage_.replica().stages.size());
  if (n_stages == 1) return nullptr;
  const bool is_there = first_stage >= 0 && first_stage + 1 < n_stages;
  return replica.comm.split(is_there ? static_cast<int>(first_stage) : -1, replica.comm.rank());
}

int StageLinks::Link::peer(const Stage& stage, RingPos position) const {
  const Rank rank = stage.ring[position];
  for (int i = 0; i < comm->size(); ++i) {
    if (Rank{comm->job_rank_of(i)} == rank) return i;
  }
  throw Error(ErrorCode::kInvalidArgument, "a rank of the plan is not in the communicator");
}

void StageLinks::receive_chunk(Extent chunk, const TensorView<float, 2>& hidden) {
  const Stage& before = stage_at(-1);
  const auto theirs = slabs_in(before, chunk, stage_.block_size());
  const auto own = slabs_in(stage_.stage(), chunk, stage_.block_size())[stage_.position()];
  const std::size_t row_bytes = float_bytes(hidden.dim(1));
  std::byte* at = received_.reserve(stream_, static_cast<std::size_t>(total_size(own)) * row_bytes);
  std::vector<Incoming> in;
  for (const RingPos from : theirs.ids()) {
    const std::size_t n_bytes =
        static_cast<std::size_t>(total_size(common_rows(own, theirs[from]))) * row_bytes;
    in.push_back({before_.peer(before, from), {at, n_bytes}});
    at += n_bytes;
  }
  Exchange moving = before_.comm->start_exchange({Traffic::kHidden}, in, {});
  at = received_.data();
  for (const RingPos from : theirs.ids()) {
    const auto i = static_cast<std::size_t>(from.value);
    before_.context->wait(moving.receives[i], in[i].from);
    for (const Extent& extent : common_rows(own, theirs[from])) {
      const std::size_t n = static_cast<std::size_t>(extent.size()) * row_bytes;
      copy_bytes(stream_, as_bytes(hidden[extent.begin].data()), at, n);
      at += n;
    }
  }
}

void StageLinks::send_chunk(Extent chunk, const TensorView<const float, 2>& hidden) {
  const Stage& after = stage_at(1);
  const auto theirs = slabs_in(after, chunk, stage_.block_size());
  const auto own = slabs_in(stage_.stage(), chunk, stage_.block_size())[stage_.position()];
  const std::size_t row_bytes = float_bytes(hidden.dim(1));
  Sending sending;
  for (const RingPos to : theirs.ids()) {
    const std::vector<Extent> common = common_rows(own, theirs[to]);
    if (common.empty()) continue;
    std::byte* at = add(sending, after_.peer(after, to),
                        static_cast<std::size_t>(total_size(common)) * row_bytes);
    for (const Extent& extent : common) {
      const std::size_t n = static_cast<std::size_t>(extent.size()) * row_bytes;
      copy_bytes(stream_, at, as_bytes(hidden[extent.begin].data()), n);
      at += n;
    }
  }
  send(std::move(sending));
}

void StageLinks::receive_rows(const TensorView<float, 2>& hidden) {
  const Stage& before = stage_at(-1);
  const int rank = before_.peer(before, RingPos{stage_.position().value % before.ring.n()});
  const Incoming from{rank, std::as_writable_bytes(
                                std::span(hidden.data(), static_cast<std::size_t>(hidden.size())))};
  Exchange moving = before_.comm->start_exchange({Traffic::kHidden}, {&from, 1}, {});
  before_.context->wait(moving.receives.front(), rank);
}

void StageLinks::send_rows(const TensorView<const float, 2>& hidden) {
  const Stage& after = stage_at(1);
  Sending sending;
  for (auto to = stage_.position().value; to < after.ring.n(); to += stage_.n_ranks()) {
    const std::size_t n_bytes = float_bytes(hidden.size());
    copy_bytes(stream_, add(sending, after_.peer(after, RingPos{to}), n_bytes),
               as_bytes(hidden.data()), n_bytes);
  }
  send(std::move(sending));
}

// Room for what goes to a peer.
std::byte* StageLinks::add(Sending& sending, int peer, std::size_t n_bytes) {
  Rows& rows = sending.emplace_back();
  rows.peer = peer;
  rows.n_bytes = n_bytes;
  if (!spare_.empty()) {
    rows.memory = std::move(spare_.back());
    spare_.pop_back();
  }
  return rows.memory.reserve(stream_, n_bytes);
}

// Starts the transfers and keeps their memory until they are complete.
void StageLinks::send(Sending sending) {
  end_those_that_arrived();
  while (sending_.size() >= kChunksInFlight) wait_for_oldest();
  std::vector<Outgoing> out;
  for (Rows& rows : sending) out.push_back({rows.peer, {rows.memory.data(), rows.n_bytes}});
  Exchange moving = after_.comm->start_exchange({Traffic::kHidden}, {}, out);
  for (std::size_t i = 0; i < sending.size(); ++i) sending[i].transfer = std::move(moving.sends[i]);
  sending_.push_back(std::move(sending));
}

void StageLinks::wait_for_oldest() {
  for (Rows& rows : sending_.front()) after_.context->wait(rows.transfer, rows.peer);
  end_oldest();
}

void StageLinks::end_oldest() {
  for (Rows& rows : sending_.front()) spare_.push_back(std::move(rows.memory));
  sending_.pop_front();
}

void StageLinks::end_those_that_arrived() {
  while (!sending_.empty() && std::all_of(sending_.front().begin(), sending_.front().end(),
                                          [](Rows& rows) { return rows.transfer.test(); })) {
    end_oldest();
  }
}

bool StageLinks::advance() {
  if (sending_.empty()) return false;
  after_.comm->progress();
  end_those_that_arrived();
  return !sending_.empty();
}

TrafficCounters StageLinks::traffic() const {
  TrafficCounters sum;
  for (const Link* link : {&before_, &after_}) {
    if (link->comm) sum += link->comm->traffic();
  }
  return sum;
}

void StageLinks::drain() {
  while (!sending_.empty()) wait_for_oldest();
}

}  // namespace longhaul
