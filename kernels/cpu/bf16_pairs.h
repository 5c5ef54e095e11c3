// Whether products multiply pairs of bf16 (VDPBF16PS) or widen them to float32 first.
#pragma once

namespace longhaul {

// True on machines whose VDPBF16PS does more multiply-adds a cycle than its float32 units. Intel's
// do not: on Emerald Rapids it comes to 95 GFLOP/s of a core against 204 in float32, and widening
// reaches 170 (tests/bench); AMD's Zen 4 and 5 run it at the rate of float32 instructions, so twice
// as many products. Decided by the maker of the processor, not by a measurement: results must not
// depend on the moment.
bool bf16_pairs();
// For tests and benchmarks. Call while no kernel runs.
void set_bf16_pairs(bool pairs);

}  // namespace longhaul
