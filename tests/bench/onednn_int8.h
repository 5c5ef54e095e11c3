// oneDNN's product of bytes, to compare the own one with: unsigned activations with signed weights
// in the layout that oneDNN likes best, 32-bit sums out. Quantising and scaling are not in it.
#pragma once
#include <cstdint>
#include <functional>

namespace longhaul::bench {

// One call computes out [n_tokens, n_out] once.
std::function<void()> onednn_int8_product(std::int64_t n_tokens, std::int64_t n_in,
                                          std::int64_t n_out);

}  // namespace longhaul::bench
