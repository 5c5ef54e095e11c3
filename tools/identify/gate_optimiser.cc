#include "tools/identify/gate_optimiser.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace longhaul {
namespace {

// torch.optim.AdamW's defaults.
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEps = 1e-8;

double count_of(std::span<const std::uint8_t> trained) {
  const auto n = std::count_if(trained.begin(), trained.end(), [](auto t) { return t != 0; });
  return static_cast<double>(std::max<std::ptrdiff_t>(n, 1));
}

double sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

}  // namespace

double rate_factor(std::int64_t step, std::int64_t n_steps) {
  const auto fifth = static_cast<double>(std::max<std::int64_t>(n_steps / 5, 1));
  const double up = static_cast<double>(step + 1) / fifth;
  const double down = static_cast<double>(n_steps - step) / fifth;
  return std::min({1.0, std::max(up, 0.1), std::max(down, 0.1)});
}

GateState initial_gates(std::size_t n_gates) {
  return {.gates = std::vector<double>(n_gates, 1.0),
          .mean = std::vector<double>(n_gates),
          .square = std::vector<double>(n_gates)};
}

void clamp_gates(GateState& state) {
  for (double& gate : state.gates) gate = std::clamp(gate, 0.0, 1.0);
}

double mean_gate(std::span<const double> gates, std::span<const std::uint8_t> trained) {
  double sum = 0;
  for (std::size_t i = 0; i < gates.size(); ++i) sum += trained[i] != 0 ? std::abs(gates[i]) : 0;
  return sum / count_of(trained);
}

void update_gates(GateState& state, std::span<const double> d_distance,
                  std::span<const std::uint8_t> trained, const GateOptimiserConfig& config) {
  require(d_distance.size() == state.gates.size() && trained.size() == state.gates.size(),
          "update_gates: one gradient for each gate is needed");
  const double pull = config.regularisation / count_of(trained);
  const double rate = config.learning_rate * rate_factor(state.n_steps_done, config.n_steps);
  const auto n = static_cast<double>(++state.n_steps_done);
  const double mean_scale = 1 / (1 - std::pow(kBeta1, n));
  const double square_scale = 1 / (1 - std::pow(kBeta2, n));
  for (std::size_t i = 0; i < state.gates.size(); ++i) {
    if (trained[i] == 0) continue;
    const double gradient = d_distance[i] + pull * sign_of(state.gates[i]);
    state.mean[i] = kBeta1 * state.mean[i] + (1 - kBeta1) * gradient;
    state.square[i] = kBeta2 * state.square[i] + (1 - kBeta2) * gradient * gradient;
    state.gates[i] -=
        rate * state.mean[i] * mean_scale / (std::sqrt(state.square[i] * square_scale) + kEps);
  }
}

}  // namespace longhaul
