// DuoAttention's two-way forward and its gradient, for one text: a teacher whose heads see
// everything, and a student each of whose heads gives gate x the teacher's output + (1 - gate) x
// its own output over sinks and recent tokens, before the output projection. The distance between
// the two is that of the final hidden states of the answer tokens, after the final norm (Xiao et
// al. 2024, arXiv 2410.10819, section 2.2; the published code's llama.py:41-143 and
// train.py:119-156, which take the teacher's output for the full part of the mixture, not full
// attention over the student's own states).
//
// The teacher runs layer by layer over the whole text; the student and the backward pass only over
// the tokens that the answers depend on (token_rows.h), which changes nothing. Of the teacher the
// attention outputs of those tokens are kept, of the student two rows a token and layer.
//
// In layers that have windows of their own (ModelSpec::attention_window) both see that window, and
// there are no gates.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/kv_type.h"
#include "cluster/comm/communicator.h"
#include "kernels/device_tensor.h"
#include "tools/identify/layer_gradient.h"
#include "tools/identify/ring_keys.h"
#include "tools/identify/token_rows.h"
#include "worker/attention/attention_work.h"
#include "worker/kv/cache_layout.h"
#include "worker/layer_compute.h"

namespace longhaul {

struct TwoWayConfig {
  StudentWindow window;
  // Of the weights' device, where rows, keys and gradients are; its owner outlives the pass.
  StreamRef stream = StreamRef::cpu();
  KvType kv_type = KvType::kF32;  // in which attention reads keys and values
  std::int64_t block_size = 64;   // tokens that are dealt to ranks together; a multiple of 16
  std::int64_t tile_rows = 1024;  // tokens computed at a time; rounded to whole blocks
  // Told now and then how far a pass is, in [0, 1]; may throw, to stop.
  std::function<void(double)> on_progress = {};
};

struct TwoWayResult {
  double distance = 0;  // mean over answer tokens and dimensions of the squared difference
  double size = 0;  // mean square of the teacher's states there: what distances are compared with
  std::vector<double> d_gates;  // [n_layers, n_kv_heads], its gradient; empty unless asked for
};

// 1 for gates that are trained, 0 for those of layers with windows of their own: [n_layers,
// n_kv_heads].
std::vector<std::uint8_t> trained_gates(const ModelSpec& spec);

// Some rows of one layer of the dense model, for who wants to see how its heads attend. Tensors are
// the memory of the pass' device.
struct DenseRows {
  LayerId layer;
  std::span<const std::int64_t> positions;  // [n_rows]
  TensorView<const float, 3> q;             // [n_rows, n_heads, head_dim], after RoPE
  TensorView<const float, 2> m;  // [n_rows, n_heads]; m + log l is the log of the sum of exp of
  TensorView<const float, 2> l;  // all scores that a query sees (kernels/softmax_state.h)
  TensorView<const float, 3> k;  // [n_tokens, n_kv_heads, head_dim], of the whole text
  float sm_scale = 1.0F;
};

// Used by one thread. Weights of all layers, of f32 or bf16; they and the communicator, which takes
// memory of their device, outlive it.
class TwoWayPass {
 public:
  enum class Wants { kDistance, kGradient };
  // Throws kInvalidArgument for weights of integers and for a window that makes no sense.
  TwoWayPass(const Weights& weights, const TwoWayConfig& config, Communicator& comm);

  // Collective over comm; the same result on all ranks. The text's last n_answer tokens are
  // compared. Blocks while it computes.
  TwoWayResult run(std::span<const std::int32_t> tokens, std::int64_t n_answer,
                   std::span<const double> gates, Wants wants);

  // Collective over comm. The dense model's forward pass over a text; `observe` is shown all rows
  // of this rank, layer by layer, but for layers with windows of their own.
  void observe_dense(std::span<const std::int32_t> tokens,
                     const std::function<void(const DenseRows&)>& observe);

  // The most that a pass has held so far, besides weights: kept rows, keys and activations.
  std::size_t peak_bytes() const { return peak_bytes_; }
  StreamRef stream() const { return stream_; }

 private:
  struct Text;
  struct Kept;
  void embed(const Text& text, const std::vector<std::int64_t>& positions,
             const TensorView<float, 2>& to);
  // The rows' hidden states are what compute_ works on until the next call.
  void take(const TensorView<float, 2>& hidden, std::span<const std::int64_t> positions);
  void fill_keys(LayerId number, const Text& text, const TokenSet& set,
                 const TensorView<float, 2>& hidden, const std::vector<std::int64_t>& positions);
  void attend(LayerId number, AttentionWork& work);
  Text text_of(std::span<const std::int32_t> tokens, std::int64_t n_answer) const;
  void run_teacher(const Text& text, Kept& kept);
  void run_teacher_layer(LayerId number, const Text& text, const TensorView<float, 2>& hidden,
                         const std::vector<std::int64_t>& positions, Kept& kept);
  void run_student(const Text& text, std::span<const double> gates, Kept& kept);
  void run_student_layer(LayerId number, const Text& text, std::span<const double> gates,
                         Kept& kept);
  void mix(LayerId number, std::span<const double> gates, const Kept& kept, std::int64_t first);
  Tensor<float, 2> normed_answers(const TensorView<const float, 2>& hidden) const;  // on the host
  std::vector<double> run_back(const Text& text, std::span<const double> gates, const Kept& kept,
                               DeviceTensor<float, 2> d_hidden);
  bool has_gates(LayerId number) const;
  std::vector<float> gates_of_layer(std::span<const double> gates, LayerId number) const;
  void note(const Kept& kept);
  void progressed(double share) const;

  const Weights& weights_;
  const ModelSpec& spec_;
  TwoWayConfig config_;
  StreamRef stream_;
  Communicator& comm_;
  KvBlockShape shape_;
  CacheLayout dense_;
  CacheLayout streaming_;
  LayerCompute compute_;
  AttentionWork dense_work_;
  AttentionWork streaming_work_;
  RingKeys keys_;
  LayerBackward backward_;
  float sm_scale_;
  const std::function<void(const DenseRows&)>* observe_ = nullptr;  // while a text is observed
  DeviceTensor<float, 3> observed_keys_;                            // then, of the layer
  std::size_t peak_bytes_ = 0;
};

}  // namespace longhaul
