// The student's gradient through one layer: from the layer's outputs to its inputs and its gates.
// Weights are constants. What the forward pass kept of the layer is two rows a token (what it read,
// and the residual stream between attention and feed-forward network); all else is computed again,
// so that memory holds one layer's activations whatever the depth.
#pragma once
#include <span>
#include <vector>

#include "cluster/comm/communicator.h"
#include "kernels/attention.h"
#include "kernels/device_tensor.h"
#include "kernels/tensor.h"
#include "model/rope_frequencies.h"
#include "tools/identify/token_rows.h"
#include "worker/weights.h"

namespace longhaul {

// Of this rank's rows, tensors in the memory of the device. Inputs are the tokens of `read`,
// outputs those of `written`, a part of them.
struct LayerGradientArgs {
  const LayerWeights& layer;
  const TokenDeal& deal;
  TokenSet read;
  TokenSet written;
  TensorView<const float, 2> input;   // [n_read, d_model]
  TensorView<const float, 2> middle;  // [n_written, d_model], after attention
  // What attention's own heads see: the streaming window, or the layer's own.
  AttentionMask mask;
  // Of a layer with gates, else empty: the student's heads give gate x teacher + (1 - gate) x own.
  std::span<const float> gates;         // [n_kv_heads], host memory
  TensorView<const float, 3> teacher;   // [n_written, n_heads, head_dim]
  TensorView<const float, 2> d_output;  // [n_written, d_model]
  bool wants_input = true;              // false: d_input stays empty (the first layer)
};

struct LayerGradient {
  DeviceTensor<float, 2> d_input;  // [n_read, d_model]
  std::vector<double> d_gates;     // [n_kv_heads], of this rank's rows; empty without gates
};

// Used by one thread. Everything that it is given must outlive it.
class LayerBackward {
 public:
  // The communicator takes memory of the stream's device.
  LayerBackward(const ModelSpec& spec, Communicator& comm, StreamRef stream);

  // Collective over comm. Blocks while it computes.
  LayerGradient run(const LayerGradientArgs& args) const;

 private:
  struct Projected;
  DeviceTensor<float, 2> feed_forward(const LayerGradientArgs& args) const;
  Projected project(const LayerGradientArgs& args) const;
  void gather_keys(const LayerGradientArgs& args, Projected& p) const;
  void attend(const LayerGradientArgs& args, Projected& p,
              const TensorView<const float, 2>& d_middle, LayerGradient& gradient) const;
  void share_key_gradients(const LayerGradientArgs& args, Projected& p) const;
  void turn_back(const TensorView<float, 3>& d, const TensorView<const float, 3>& before,
                 std::span<const float> norm, const Projected& p, const RowParts& rows) const;
  void project_back(const LayerGradientArgs& args, const Projected& p,
                    const TensorView<const float, 2>& d_middle, LayerGradient& gradient) const;

  std::vector<double> gate_sums(const LayerGradientArgs& args,
                                const TensorView<const float, 3>& d_mixed,
                                const TensorView<const float, 3>& own) const;

  const ModelSpec& spec_;
  Communicator& comm_;
  StreamRef stream_;
  RopeFrequencies frequencies_;
  float norm_eps_;
  float sm_scale_;
};

}  // namespace longhaul
