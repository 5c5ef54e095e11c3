// Hidden states on their way from one stage to the next. Prefill: rows go from the ranks that made
// them to the ranks whose slabs they lie in there, and the sender goes on with the next chunk.
// Decode: all ranks of a ring hold all rows; each sends them to its share of the next ring's ranks.
//
// The ranks of two neighbouring stages have a communicator of their own, on which chunks and rows
// follow each other in one order.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/tensor.h"
#include "partition/slabs.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/ring_context.h"
#include "worker/ring/ring_stage.h"

namespace longhaul {

// Used by one thread; what it is given must outlive it.
class StageLinks {
 public:
  // Collective over the replica's ranks, whose context this is.
  StageLinks(const RingStage& stage, const RingContext& replica);

  // Collective over both stages. The rows of this rank's slabs of the chunk, [n_rows, d_model].
  void receive_chunk(Extent chunk, const TensorView<float, 2>& hidden);
  void send_chunk(Extent chunk, const TensorView<const float, 2>& hidden);
  // The same rows on all ranks of a stage.
  void receive_rows(const TensorView<float, 2>& hidden);
  void send_rows(const TensorView<const float, 2>& hidden);

  // Lets what was sent go on, without blocking; false when all of it has arrived.
  bool advance();
  // Blocks until everything sent has arrived: before the links may go.
  void drain();

  TrafficCounters traffic() const;

 private:
  static constexpr std::size_t kChunksInFlight = 2;
  // With the ranks of a neighbouring stage.
  struct Link {
    std::unique_ptr<Communicator> comm;
    std::optional<RingContext> context;  // of comm; none: there is no such stage
    int peer(const Stage& stage, RingPos position) const;
  };
  // On their way to one receiver.
  struct Rows {
    int peer = 0;  // of after_
    ByteBuffer memory;
    std::size_t n_bytes = 0;
    Transfer transfer;
  };
  using Sending = std::vector<Rows>;
  std::unique_ptr<Communicator> link_with(const RingContext& replica,
                                          std::int64_t first_stage) const;
  const Stage& stage_at(std::int64_t distance) const {
    return stage_.replica().stages[static_cast<std::size_t>(stage_.number() + distance)];
  }
  std::byte* add(Sending& sending, int peer, std::size_t n_bytes);
  void send(Sending sending);
  void end_those_that_arrived();
  void end_oldest();
  void wait_for_oldest();

  const RingStage& stage_;
  StreamRef stream_;
  Link before_;
  Link after_;
  std::deque<Sending> sending_;
  std::vector<ByteBuffer> spare_;  // of what has arrived
  ByteBuffer received_;
};

}  // namespace longhaul
