// Keys travel: every rank puts a train of blocks on the ring; in each of P-1 steps a rank works
// with the train that is visiting, while it sends that train on and receives the next (two
// buffers).
//
// 3 ranks, trains A, B, C:      step 0        step 1        step 2
//   rank 0 works with             A             C             B
//   rank 1                        B             A             C
//   rank 2                        C             B             A
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/ids.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/of_ring.h"
#include "worker/ring/ring_context.h"

namespace longhaul {

// One block of a train: the tokens in its first slots, of one KV head.
struct TrainBlock {
  KvHeadId kv_head;
  Extent tokens;
};
// By KV head, then by position; the blocks' bytes follow each other in the same order.
using Train = std::vector<TrainBlock>;

// Used by one thread.
class KeyRing {
 public:
  KeyRing(RingContext& context, std::size_t block_bytes)
      : context_(context), block_bytes_(block_bytes) {}

  using Visit = std::function<void(const Train& train, const std::byte* bytes)>;

  // Collective over the ring. `trains` are what each rank sends, known to all; `own` are the bytes
  // of this one's. Both stay until run() returns. Starts the first transfer.
  void start(const OfRing<Train>& trains, const std::byte* own);
  // Collective over the ring. Calls visit with every train, the own one first. Blocks.
  void run(const Visit& visit);
  // Lets the transfer under way advance: call it between kernels.
  void progress();

  std::size_t buffer_bytes() const { return buffers_[0].capacity() + buffers_[1].capacity(); }

 private:
  // The train that is here after so many hops.
  const Train& train_at(std::int64_t hop) const { return (*trains_)[context_.origin(hop)]; }
  std::size_t bytes_of(const Train& train) const { return train.size() * block_bytes_; }
  void shift(std::int64_t hop);
  void note_arrival();

  RingContext& context_;
  std::size_t block_bytes_;
  const OfRing<Train>* trains_ = nullptr;
  const std::byte* visiting_ = nullptr;
  std::array<ByteBuffer, 2> buffers_;
  Transfer send_;
  Transfer receive_;
  Clock::time_point shift_begin_;  // of the transfer under way
  std::int64_t shift_hop_ = 0;
  bool is_moving_ = false;
};

}  // namespace longhaul
