// The operators by device: cpu::foo in kernels/cpu/, cuda::foo in kernels/cuda/. kernels/foo.cc
// checks the arguments and has run_on choose; nobody else calls these, except operators each other.
//
// What describes the work is host memory on every device, as are all spans of items, blocks,
// positions and tokens, and inverse_frequencies. Tensors, weights, biases and the memory of blocks
// are the device's; queries and results of score_keys and key_masses, all but the blocks of
// sum_key_directions and key_distinctions, the sums of compensate, and the results of
// bound_products and merge_decisions are host memory, too. On CPUs the work is done when the call
// returns; on GPUs it is queued, and only those seven and top_k wait for it.
#pragma once
#include "base/device/device_cuda.h"
#include "kernels/attention.h"
#include "kernels/backward/attention_backward.h"
#include "kernels/backward/linear_backward.h"
#include "kernels/backward/mix_heads.h"
#include "kernels/backward/rows_backward.h"
#include "kernels/begin_attention.h"
#include "kernels/compensate.h"
#include "kernels/copy_rows.h"
#include "kernels/embedding.h"
#include "kernels/highest_weights.h"
#include "kernels/key_directions.h"
#include "kernels/key_scores.h"
#include "kernels/kv_append.h"
#include "kernels/kv_close.h"
#include "kernels/kv_copy.h"
#include "kernels/linear.h"
#include "kernels/merge_tokens.h"
#include "kernels/own_keys.h"
#include "kernels/page_bound.h"
#include "kernels/project.h"
#include "kernels/read_all.h"
#include "kernels/residual_add.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/softmax_state.h"
#include "kernels/sum_rows.h"
#include "kernels/swiglu.h"
#include "kernels/top_k.h"

namespace longhaul {

namespace cpu {
#define LONGHAUL_OPERATOR(name, ...) void name(__VA_ARGS__);
#include "kernels/operators.def"
}  // namespace cpu

// In a build without CUDA kernels/cuda/cuda_absent.cc stands in for all of them.
namespace cuda {
#define LONGHAUL_OPERATOR(name, ...) void name(Stream&, __VA_ARGS__);
#include "kernels/operators.def"
}  // namespace cuda

// Calls the one that belongs to the stream's device: run_on(stream, cpu::foo, cuda::foo, args).
template <typename OnCpu, typename OnCuda, typename... Args>
void run_on(StreamRef stream, OnCpu on_cpu, OnCuda on_cuda, Args&&... args) {
  switch (stream.device()) {
    case Device::kCpu:
      return on_cpu(args...);
    case Device::kCuda:
      return on_cuda(stream.cuda_stream(), args...);
  }
}

}  // namespace longhaul
