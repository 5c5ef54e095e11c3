// The operators on CUDA streams, called by kernels/foo.cc after it has checked the arguments;
// kernels/cuda_absent.cc stands in for all of them in a build without CUDA.
//
// What describes the work is host memory on every device, as are all spans of items, blocks,
// positions and tokens, and inverse_frequencies. Tensors, weights, biases and the memory of blocks
// are the GPU's. Work is queued; only top_k waits for it.
#pragma once
#include "kernels/attention.h"
#include "kernels/device_cuda.h"
#include "kernels/embedding.h"
#include "kernels/kv_append.h"
#include "kernels/kv_copy.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/softmax_state.h"
#include "kernels/swiglu.h"
#include "kernels/top_k.h"

namespace longhaul::cuda {

void attention(Stream& stream, const AttentionArgs& args);
void clear(Stream& stream, const SoftmaxStateView& state);
void embedding(Stream& stream, const EmbeddingArgs& args);
void finish_attention(Stream& stream, const FinishAttentionArgs& args);
// linear() with int8 weights, for linear().
void int8_linear(Stream& stream, const LinearArgs& args);
void kv_append(Stream& stream, const KvAppendArgs& args);
void kv_copy(Stream& stream, const KvCopyArgs& args);
void linear(Stream& stream, const LinearArgs& args);
void merge(Stream& stream, const SoftmaxStateView& into, const SoftmaxStateView& from);
void rms_norm(Stream& stream, const RmsNormArgs& args);
void rope(Stream& stream, const RopeArgs& args);
void rope_angles(Stream& stream, const RopeAnglesArgs& args);
void swiglu(Stream& stream, const SwigluArgs& args);
void top_k(Stream& stream, const TopKArgs& args);

}  // namespace longhaul::cuda
