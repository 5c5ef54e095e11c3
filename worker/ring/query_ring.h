// Queries travel: a rank's queries go round the ring with their softmax state; each rank adds what
// its own blocks give, and after P hops the state is home again. The queries of a rank's two slabs
// are two cars: while one is worked on, the other is on its way.
//
// 3 ranks, cars a, b, c:     hop 0         hop 1         hop 2         then
//   rank 0 works on           a             c             b             merges a
//   rank 1                    b             a             c             merges b
//   rank 2                    c             b             a             merges c
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/copy_rows.h"
#include "kernels/softmax_state.h"
#include "kernels/tensor.h"
#include "worker/attention/attention_work.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/of_ring.h"
#include "worker/ring/ring_context.h"

namespace longhaul {

struct QueryRingArgs {
  std::span<const KvHeadId> kv_heads;          // whose queries travel
  const OfRing<std::vector<Extent>>& queries;  // positions of each rank's, at most 2
  const QueryRows& own;                        // of all heads; what comes home is merged in
};

// Used by one thread.
class QueryRing {
 public:
  explicit QueryRing(RingContext& context) : context_(context) {}

  using Visit = std::function<void(std::span<const QueryRows>)>;

  // Collective over the ring. `visit` gets a car's queries, each KV head once, and merges what this
  // rank's blocks give into the states. Blocks.
  void run(const QueryRingArgs& args, const Visit& visit);

  std::size_t buffer_bytes() const;

 private:
  static constexpr std::size_t kCars = 2;
  struct Car {
    std::array<ByteBuffer, 2> buffers;  // the one that is here, the one that arrives
    std::size_t here = 0;
    Transfer send;
    Transfer receive;
    Clock::time_point departure;
  };
  Extent queries_of(const QueryRingArgs& args, std::int64_t hop, std::size_t car) const;
  void load(const QueryRingArgs& args, std::size_t car);
  void work(const QueryRingArgs& args, std::int64_t hop, std::size_t car, const Visit& visit);
  void pass_on(const QueryRingArgs& args, std::int64_t hop, std::size_t car);
  void arrive(std::size_t car);
  void merge_home(const QueryRingArgs& args, std::size_t car);

  RingContext& context_;
  std::array<Car, kCars> cars_;
  std::vector<std::int64_t> positions_;
  std::vector<QueryRows> visiting_;
  std::vector<CopyRowsItem> pieces_;
};

}  // namespace longhaul
