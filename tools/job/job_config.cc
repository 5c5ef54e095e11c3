#include "tools/job/job_config.h"

#include <algorithm>

#include "kernels/cuda/hopper_attention.h"

namespace longhaul {

std::int64_t most_guesses(const JobConfig& job) {
  constexpr std::int64_t kOfAnswersMadeAgain = 15;
  return job.reproducible ? std::max(job.lookup.most, kOfAnswersMadeAgain) : job.lookup.most;
}

Workload formats_of(const JobConfig& job, DType weight_dtype) {
  const KvType natural = natural_kv_type(weight_dtype);
  Workload workload;
  workload.k_type = job.k_type.value_or(natural);
  workload.v_type = job.v_type.value_or(natural);
  workload.block_size = usual_block_size(job);
  workload.weight_dtype = weight_dtype;
  workload.reproducible = job.reproducible;
  workload.n_guesses = most_guesses(job);
  return workload;
}

std::int64_t usual_block_size(const JobConfig& job) {
  return job.block_size.value_or(Workload{}.block_size);
}

std::int64_t default_chunk_len(std::int64_t n_ranks, Device device) {
  constexpr std::int64_t kCpuChunkLen = 2048;
  const std::int64_t of_rank = device == Device::kCuda ? kUsualGpuChunkLen : kCpuChunkLen;
  return of_rank * std::clamp<std::int64_t>(n_ranks, 1, 4);
}

std::int64_t usual_chunk_len(const JobConfig& job, std::int64_t n_ranks) {
  if (job.chunk_len) return *job.chunk_len;
  const bool is_gpu = job.device == DeviceChoice::kCuda ||
                      (job.device == DeviceChoice::kAuto &&
                       chosen_device(DeviceChoice::kAuto).kind == Device::kCuda);
  return default_chunk_len(n_ranks, is_gpu ? Device::kCuda : Device::kCpu);
}

}  // namespace longhaul
