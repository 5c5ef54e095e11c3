// DuoAttention's optimiser for gates: AdamW without weight decay, a learning rate that rises, stays
// and falls, and gates kept in [0, 1] (Xiao et al. 2024, arXiv 2410.10819, section 2.2 and appendix
// A.1; the published code's train.py). Pure; in double precision.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace longhaul {

struct GateOptimiserConfig {
  double learning_rate = 0.02;
  double regularisation = 0.05;  // times mean |gate|, added to the loss
  std::int64_t n_steps = 2000;
};

// The rate's factor at a step counted from 0: up from 0.1 over a fifth of all steps, 1, and down
// over the last fifth to 0.1.
double rate_factor(std::int64_t step, std::int64_t n_steps);

// All that a step changes, so that training can stop and go on with the same bits.
struct GateState {
  std::vector<double> gates;   // [n_layers, n_kv_heads]
  std::vector<double> mean;    // of gradients (Adam's m)
  std::vector<double> square;  // of gradients' squares (Adam's v)
  std::int64_t n_steps_done = 0;
  bool operator==(const GateState&) const = default;
};
GateState initial_gates(std::size_t n_gates);  // all 1

// What a step begins with.
void clamp_gates(GateState& state);
// `mean |gate|` of the gates that are trained: `trained` [n_gates] is 0 for those of layers that
// have windows of their own.
double mean_gate(std::span<const double> gates, std::span<const std::uint8_t> trained);
// One step with the gradient of the distance alone: the regularisation is added here. Gates that
// are not trained stay.
void update_gates(GateState& state, std::span<const double> d_distance,
                  std::span<const std::uint8_t> trained, const GateOptimiserConfig& config);

}  // namespace longhaul
