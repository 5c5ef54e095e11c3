// highest_weights: a thread for each key; neighbours read neighbouring scores.
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/plain_grid.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

struct HighestWeights {
  const float* scores;  // [n_rows, n_keys]
  std::int64_t score_stride;
  float scale;
  const float* m;  // [n_rows]
  std::int64_t m_stride;
  const float* l;
  std::int64_t l_stride;
  float* highest;  // [n]
  std::int64_t n_rows;
  std::int64_t n;
  bool operator==(const HighestWeights&) const = default;
};

__global__ void highest_weights_kernel(HighestWeights k) {
  const std::int64_t key = static_cast<std::int64_t>(blockIdx.x) * kChoiceThreads + threadIdx.x;
  if (key >= k.n) return;
  float highest = k.highest[key];
  for (std::int64_t row = 0; row < k.n_rows; ++row) {
    const float score = k.scores[row * k.score_stride + key] * k.scale;
    const float weight = expf(score - k.m[row * k.m_stride]) / k.l[row * k.l_stride];
    highest = weight > highest ? weight : highest;
  }
  k.highest[key] = highest;
}

}  // namespace

void highest_weights(Stream& stream, const HighestWeightsArgs& args) {
  const HighestWeights k = {.scores = args.scores.data(),
                            .score_stride = args.scores.stride(0),
                            .scale = args.scale,
                            .m = args.m.data(),
                            .m_stride = args.m.stride(0),
                            .l = args.l.data(),
                            .l_stride = args.l.stride(0),
                            .highest = args.highest.data(),
                            .n_rows = args.scores.dim(0),
                            .n = args.highest.dim(0)};
  launch(stream, "highest_weights", highest_weights_kernel,
         {.x = ceil_div(k.n, kChoiceThreads), .block = kChoiceThreads}, k);
}

}  // namespace longhaul::cuda
