// Attention of streaming heads to sinks that have moved up (StreamingLLM, Xiao et al. 2023, arXiv
// 2309.17453, section 3.2): positions count inside the cache, so when tokens between the sinks and
// the recent ones are evicted, the sinks come closer.
//
// RoPE scores depend on differences of positions only. With a full cache of sink + recent tokens,
// the query's own included, the query stands at c = sink + recent - 1 in it: recent keys keep their
// true distance, and sink key j, cached as rotated at j, must meet the query rotated at c. So no
// key is kept unrotated and none is ever rotated again: recent keys are attended to with the query
// at its own position p (attention_work.h), and what has left the recent ones, j < sink and p - j
// >= recent, here with the query turned back by p - min(p, c). Both add to the same softmax state.
//
// Where tokens leave several at a time (KeyWindow::slide), c is p less those that have left.
//
//   sink 2, recent 3, query p = 7:     position  0 1 . . . 5 6 7
//                                      in cache  0 1       2 3 4     c = 4, turned back by 3
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/device/device.h"
#include "kernels/attention.h"
#include "kernels/device_tensor.h"
#include "kernels/tensor.h"
#include "model/heads/head_policy.h"
#include "model/model_spec.h"
#include "model/rope_frequencies.h"

namespace longhaul {

// Queries of one KV head with in-cache positions.
struct InCacheQueries {
  TensorView<float, 3> q;                   // of which they are a part: turned back as a whole
  std::span<const std::int64_t> positions;  // of all rows of q: the same for all of one list
  Extent rows;                              // of q; their positions ascend
  Extent heads;                             // of q
  KeyWindow window;                         // the same for all of one list
  std::span<const KvBlockRef> blocks;       // that hold the sinks, among others
  SoftmaxStateView state;                   // of these rows and heads
};

// The part of a layer's attention work that AttentionWork leaves to it. Used by one thread. Local.
class InCacheSinks {
 public:
  explicit InCacheSinks(const ModelSpec& spec);

  // Starts an empty list.
  void clear();
  void add(const InCacheQueries& queries);
  // Turns the queries back and returns what is to be attended to with them: nothing, and every
  // query stays as it is, while all sinks are among the recent tokens. Valid until the next call.
  std::span<const AttentionItem> turn_back(StreamRef stream);

 private:
  // An item whose blocks are [first_block, first_block + n_blocks) of blocks_.
  struct Moved {
    AttentionItem item;
    std::size_t first_block = 0;
    std::size_t n_blocks = 0;
  };
  void set_angles(StreamRef stream);

  RopeFrequencies frequencies_;
  // Of the list.
  std::span<const std::int64_t> positions_;
  KeyWindow window_;
  std::vector<TensorView<float, 3>> turned_;  // what is turned back: different tensors
  std::vector<Moved> moved_;
  std::vector<KvBlockRef> blocks_;
  std::vector<AttentionItem> items_;
  // [n_rows]: the last sink key to be seen, before the first recent one.
  std::vector<std::int64_t> sink_positions_;
  // Of the turn back; kept while positions stay the same, from layer to layer.
  std::vector<std::int64_t> angle_positions_;
  DeviceTensor<float, 2> cos_, sin_;  // [n_rows or more, head_dim / 2]
};

}  // namespace longhaul
