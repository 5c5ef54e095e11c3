// What a training step of gates takes, from dimensions alone: operations and bytes. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/device/device.h"
#include "base/dtype.h"
#include "model/model_spec.h"
#include "tools/identify/token_rows.h"

namespace longhaul {

struct TrainingShape {
  StudentWindow window;
  std::int64_t n_tokens = 0;  // of the text
  std::int64_t n_answer = 0;  // of these, compared
  std::int64_t block_size = 64;
  std::int64_t tile_rows = 1024;
  std::int64_t n_ranks = 1;
  std::size_t kv_value_bytes = 4;    // of a key's or value's number, as attention reads it
  DType weight_dtype = DType::kF32;  // kF32 or kBf16, in memory
  Device device = Device::kCpu;      // of the ranks
};

// Multiplications and additions of all ranks together: products with weights and attention, nothing
// else. The bound of a step's time is their sum over the machine's rate.
struct TrainingFlops {
  double teacher = 0;   // forward over the whole text
  double student = 0;   // forward over the tokens that the answers depend on
  double backward = 0;  // recomputation and gradients there
  double total() const { return teacher + student + backward; }
};
TrainingFlops training_flops(const ModelSpec& spec, const TrainingShape& shape);

// Of one rank, besides the weights.
struct TrainingBytes {
  std::size_t kept = 0;      // rows that the backward pass reads: all layers, and the answers
  std::size_t keys = 0;      // of one layer, of the whole text
  std::size_t forward = 0;   // the teacher's hidden states, a tile's activations
  std::size_t backward = 0;  // one layer's activations and gradients, on CPUs a turned matrix
  std::size_t scratch = 0;   // on GPUs: what operators take besides their arguments
  std::size_t total() const { return kept + keys + forward + backward + scratch; }
};
TrainingBytes training_bytes(const ModelSpec& spec, const TrainingShape& shape);

// On GPUs what operators of a forward pass over the text take besides their arguments; 0 on CPUs.
double forward_scratch_bytes(const ModelSpec& spec, const TrainingShape& shape);

// Both for people, in four lines.
std::string describe_training(const ModelSpec& spec, const TrainingShape& shape);

}  // namespace longhaul
