// DuoAttention's two-way forward in double precision, over the whole text and written to be read:
// the oracle of the training of gates. Shares no code with it but the reading of weights.
#pragma once
#include <cstdint>
#include <span>

#include "model/model_spec.h"
#include "worker/weights.h"

namespace longhaul::test {

struct TwoWayCase {
  const Weights& weights;  // of f32
  std::span<const std::int32_t> tokens;
  std::int64_t n_answer = 0;
  std::int64_t sink = 0;
  std::int64_t recent = 1;
};

// Mean squared distance between the final hidden states of teacher and student over the last
// n_answer tokens. gates: [n_layers, n_kv_heads].
double two_way_distance(const TwoWayCase& c, std::span<const double> gates);

}  // namespace longhaul::test
