// Gates of tiny random models after 50 steps, from a straightforward PyTorch implementation in
// double precision (gates.json, make_gate_goldens.py), and the same training by Longhaul.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/device/device_memory.h"
#include "tools/identify/gate_training.h"

namespace longhaul::test {

struct GoldenGates {
  std::vector<std::int64_t> lengths;  // of the steps' texts
  std::int64_t n_answer = 0;
  StudentWindow window;
  std::vector<double> gates;      // [n_layers, n_kv_heads], behind the last step
  std::vector<double> distances;  // of every step
};
GoldenGates read_golden_gates(const std::string& model);

// The first `n_steps` steps of it, on ranks of these devices; what rank 0 has.
TrainingRun train_golden_gates(const std::string& model, const GoldenGates& golden,
                               const std::vector<DeviceId>& devices, std::size_t n_steps);

}  // namespace longhaul::test
