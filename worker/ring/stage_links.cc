#include "worker/ring/stage_links.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

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

std::vector<std::vector<Extent>> slabs_in(const Stage& stage, Extent chunk,
                                          std::int64_t block_size) {
  return slabs_by_owner(slabs_of_chunk(stage.token_share, chunk, block_size));
}

}  // namespace

StageLinks::StageLinks(const RingStage& stage, RingContext& replica)
    : stage_(stage), context_(replica) {}

// Rank of the replica's communicator.
std::int64_t StageLinks::peer(const Stage& stage, std::int64_t position) const {
  const std::int64_t rank = stage.ring[static_cast<std::size_t>(position)].value;
  for (int i = 0; i < context_.comm.size(); ++i) {
    if (context_.comm.job_rank_of(i) == rank) return i;
  }
  throw Error(ErrorCode::kInvalidArgument, "a rank of the plan is not in the communicator");
}

void StageLinks::receive_chunk(Extent chunk, const TensorView<float, 2>& hidden) {
  const Stage& before = stage_.replica().stages[static_cast<std::size_t>(stage_.number() - 1)];
  const auto theirs = slabs_in(before, chunk, stage_.block_size());
  const auto own = slabs_in(stage_.stage(), chunk,
                            stage_.block_size())[static_cast<std::size_t>(stage_.position())];
  const auto width = static_cast<std::size_t>(hidden.dim(1));
  std::vector<float> rows;
  for (std::size_t from = 0; from < theirs.size(); ++from) {
    const std::vector<Extent> common = common_rows(own, theirs[from]);
    std::int64_t n = 0;
    for (const Extent& extent : common) n += extent.size();
    if (n == 0) continue;
    rows.resize(static_cast<std::size_t>(n) * width);
    const std::int64_t rank = peer(before, static_cast<std::int64_t>(from));
    Transfer receive = context_.comm.start_receive(static_cast<int>(rank), {Traffic::kHidden},
                                                   std::as_writable_bytes(std::span(rows)));
    context_.wait(receive, rank);
    const float* at = rows.data();
    for (const Extent& extent : common) {
      const auto n_floats = static_cast<std::size_t>(extent.size()) * width;
      std::memcpy(hidden[extent.begin].data(), at, n_floats * sizeof(float));
      at += n_floats;
    }
  }
}

void StageLinks::send_chunk(Extent chunk, const TensorView<const float, 2>& hidden) {
  const Stage& after = stage_.replica().stages[static_cast<std::size_t>(stage_.number() + 1)];
  const auto theirs = slabs_in(after, chunk, stage_.block_size());
  const auto own = slabs_in(stage_.stage(), chunk,
                            stage_.block_size())[static_cast<std::size_t>(stage_.position())];
  const auto width = static_cast<std::size_t>(hidden.dim(1));
  Sending sending;
  for (std::size_t to = 0; to < theirs.size(); ++to) {
    std::vector<float> rows;
    for (const Extent& extent : common_rows(own, theirs[to])) {
      const float* first = hidden[extent.begin].data();
      rows.insert(rows.end(), first, first + static_cast<std::size_t>(extent.size()) * width);
    }
    if (rows.empty()) continue;
    sending.rows.push_back(std::move(rows));
    sending.peers.push_back(peer(after, static_cast<std::int64_t>(to)));
  }
  send(std::move(sending));
}

void StageLinks::receive_rows(const TensorView<float, 2>& hidden) {
  const Stage& before = stage_.replica().stages[static_cast<std::size_t>(stage_.number() - 1)];
  const auto n_before = static_cast<std::int64_t>(before.ring.size());
  const std::int64_t rank = peer(before, stage_.position() % n_before);
  Transfer receive = context_.comm.start_receive(
      static_cast<int>(rank), {Traffic::kHidden},
      std::as_writable_bytes(std::span(hidden.data(), static_cast<std::size_t>(hidden.size()))));
  context_.wait(receive, rank);
}

void StageLinks::send_rows(const TensorView<const float, 2>& hidden) {
  const Stage& after = stage_.replica().stages[static_cast<std::size_t>(stage_.number() + 1)];
  Sending sending;
  for (auto to = stage_.position(); to < static_cast<std::int64_t>(after.ring.size());
       to += stage_.n_ranks()) {
    sending.rows.emplace_back(hidden.data(), hidden.data() + hidden.size());
    sending.peers.push_back(peer(after, to));
  }
  send(std::move(sending));
}

// Starts the transfers and keeps their memory until they are complete.
void StageLinks::send(Sending sending) {
  while (!sending_.empty() &&
         std::all_of(sending_.front().transfers.begin(), sending_.front().transfers.end(),
                     [](Transfer& transfer) { return transfer.test(); })) {
    sending_.pop_front();
  }
  while (sending_.size() >= kChunksInFlight) wait_for_oldest();
  for (std::size_t i = 0; i < sending.rows.size(); ++i) {
    sending.transfers.push_back(
        context_.comm.start_send(static_cast<int>(sending.peers[i]), {Traffic::kHidden},
                                 std::as_bytes(std::span(sending.rows[i]))));
  }
  sending_.push_back(std::move(sending));
}

void StageLinks::wait_for_oldest() {
  Sending& oldest = sending_.front();
  for (std::size_t i = 0; i < oldest.transfers.size(); ++i) {
    context_.wait(oldest.transfers[i], oldest.peers[i]);
  }
  sending_.pop_front();
}

void StageLinks::drain() {
  while (!sending_.empty()) wait_for_oldest();
}

}  // namespace longhaul
