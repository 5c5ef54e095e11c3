// In decode on a ring: the rows of this rank's heads of a layer, in the step's buffers. A slice of
// the layer's weights is a run of neighbouring heads, of which a rank may have several. Where
// products can give what lies side by side all runs' rows are columns of one matrix, so that what
// lies between projections and attention is done with all of them at once; else each run's are a
// matrix of its own.
//
//   queries of heads 0, 1, 4, new keys of 4:   side by side   q0 q1 q4 k4 v4 | q0 q1 q4 k4 v4 | ...
#pragma once
#include <span>
#include <vector>

#include "base/ids.h"
#include "worker/attention/attention_work.h"
#include "worker/layer_compute.h"

namespace longhaul {

// Used by one thread; compute must outlive it. Local.
class DecodeHeads {
 public:
  explicit DecodeHeads(LayerCompute& compute) : compute_(compute) {}

  // Makes room for the queries, with their states, of `asked` heads, and for the keys and values of
  // `stored` ones; both ascend.
  void arrange(LayerId layer, std::span<const KvHeadId> asked, std::span<const KvHeadId> stored,
               Side side);

  // What LayerCompute projects.
  std::span<const LayerCompute::HeadSlice> slices() const { return slices_; }
  // The queries' runs, and the weights of each.
  std::span<const QueryRows> queries() const { return queries_; }
  const LayerWeights& weights(std::size_t run) const { return weights_[run]; }

  // New keys and values of one run.
  struct NewKeys {
    Extent kv_heads;
    TensorView<float, 3> k;  // [n_rows, kv_heads, head_dim]
    TensorView<float, 3> v;
  };
  std::span<const NewKeys> keys() const { return keys_; }
  // What begins attention together: queries of some runs, keys of some, or both.
  struct Beginning {
    TensorView<float, 3> q = {};
    SoftmaxStateView state = {};
    TensorView<float, 3> k = {};
    std::span<const NewKeys> keys = {};
  };
  std::span<const Beginning> beginnings() const { return beginnings_; }

 private:
  void add_queries(const LayerWeights& whole, std::span<const KvHeadId> asked,
                   const TensorView<float, 3>& q, const SoftmaxStateView& state, Side side);
  void add_keys(const LayerWeights& whole, std::span<const KvHeadId> stored,
                const StepBuffers::Heads& all, Side side);

  LayerCompute& compute_;
  // Of the layer under way.
  std::vector<LayerWeights> weights_;  // of the queries' runs, then of the keys'
  std::vector<QueryRows> queries_;
  std::vector<NewKeys> keys_;
  std::vector<LayerCompute::HeadSlice> slices_;
  std::vector<Beginning> beginnings_;
};

}  // namespace longhaul
