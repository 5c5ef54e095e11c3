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

StageLinks::StageLinks(const RingStage& stage, RingContext& replica)
    : stage_(stage), context_(replica) {}

// Rank of the replica's communicator.
int StageLinks::peer(const Stage& stage, RingPos position) const {
  const Rank rank = stage.ring[position];
  for (int i = 0; i < context_.comm.size(); ++i) {
    if (Rank{context_.comm.job_rank_of(i)} == rank) return i;
  }
  throw Error(ErrorCode::kInvalidArgument, "a rank of the plan is not in the communicator");
}

void StageLinks::receive_chunk(Extent chunk, const TensorView<float, 2>& hidden) {
  const Stage& before = stage_.replica().stages[static_cast<std::size_t>(stage_.number() - 1)];
  const auto theirs = slabs_in(before, chunk, stage_.block_size());
  const auto own = slabs_in(stage_.stage(), chunk, stage_.block_size())[stage_.position()];
  const std::size_t row_bytes = static_cast<std::size_t>(hidden.dim(1)) * sizeof(float);
  for (const RingPos from : theirs.ids()) {
    const std::vector<Extent> common = common_rows(own, theirs[from]);
    const std::size_t n_bytes = static_cast<std::size_t>(total_size(common)) * row_bytes;
    if (n_bytes == 0) continue;
    std::byte* at = received_.reserve(context_.stream, n_bytes);
    const int rank = peer(before, from);
    Transfer receive = context_.comm.start_receive(rank, {Traffic::kHidden}, {at, n_bytes});
    context_.wait(receive, rank);
    for (const Extent& extent : common) {
      const std::size_t n = static_cast<std::size_t>(extent.size()) * row_bytes;
      copy_bytes(context_.stream, as_bytes(hidden[extent.begin].data()), at, n);
      at += n;
    }
  }
}

void StageLinks::send_chunk(Extent chunk, const TensorView<const float, 2>& hidden) {
  const Stage& after = stage_.replica().stages[static_cast<std::size_t>(stage_.number() + 1)];
  const auto theirs = slabs_in(after, chunk, stage_.block_size());
  const auto own = slabs_in(stage_.stage(), chunk, stage_.block_size())[stage_.position()];
  const std::size_t row_bytes = static_cast<std::size_t>(hidden.dim(1)) * sizeof(float);
  Sending sending;
  for (const RingPos to : theirs.ids()) {
    const std::vector<Extent> common = common_rows(own, theirs[to]);
    if (common.empty()) continue;
    std::byte* at =
        add(sending, peer(after, to), static_cast<std::size_t>(total_size(common)) * row_bytes);
    for (const Extent& extent : common) {
      const std::size_t n = static_cast<std::size_t>(extent.size()) * row_bytes;
      copy_bytes(context_.stream, at, as_bytes(hidden[extent.begin].data()), n);
      at += n;
    }
  }
  send(std::move(sending));
}

void StageLinks::receive_rows(const TensorView<float, 2>& hidden) {
  const Stage& before = stage_.replica().stages[static_cast<std::size_t>(stage_.number() - 1)];
  const int rank = peer(before, RingPos{stage_.position().value % before.ring.n()});
  Transfer receive = context_.comm.start_receive(
      rank, {Traffic::kHidden},
      std::as_writable_bytes(std::span(hidden.data(), static_cast<std::size_t>(hidden.size()))));
  context_.wait(receive, rank);
}

void StageLinks::send_rows(const TensorView<const float, 2>& hidden) {
  const Stage& after = stage_.replica().stages[static_cast<std::size_t>(stage_.number() + 1)];
  Sending sending;
  for (auto to = stage_.position().value; to < after.ring.n(); to += stage_.n_ranks()) {
    const std::size_t n_bytes = static_cast<std::size_t>(hidden.size()) * sizeof(float);
    copy_bytes(context_.stream, add(sending, peer(after, RingPos{to}), n_bytes),
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
  return rows.memory.reserve(context_.stream, n_bytes);
}

// Starts the transfers and keeps their memory until they are complete.
void StageLinks::send(Sending sending) {
  end_those_that_arrived();
  while (sending_.size() >= kChunksInFlight) wait_for_oldest();
  for (Rows& rows : sending) {
    rows.transfer =
        context_.comm.start_send(rows.peer, {Traffic::kHidden}, {rows.memory.data(), rows.n_bytes});
  }
  sending_.push_back(std::move(sending));
}

void StageLinks::wait_for_oldest() {
  for (Rows& rows : sending_.front()) context_.wait(rows.transfer, rows.peer);
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
  context_.comm.progress();
  end_those_that_arrived();
  return !sending_.empty();
}

void StageLinks::drain() {
  while (!sending_.empty()) wait_for_oldest();
}

}  // namespace longhaul
