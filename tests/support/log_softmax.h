// Log-probabilities of rows of logits, in double precision.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace longhaul::test {

// `logits` [rows, width] -> log-softmax of each row; 0: one row of all.
std::vector<double> log_softmax(std::span<const double> logits, std::int64_t width = 0);

}  // namespace longhaul::test
