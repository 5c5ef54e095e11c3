// What tests say about the stand-in for cuBLASLt: whether it scales products of fp8 by blocks.
#pragma once

namespace longhaul::cuda_on_host {

enum class BlockScaling {
  kThere,         // CUDA 12.9 and later, compute capability 9.0
  kUnknown,       // a library from before
  kNotOnThisChip  // a chip that has other products
};
void set_block_scaling(BlockScaling scaling);
// How many products with scales of blocks have been queued.
int n_block_scaled_products();

}  // namespace longhaul::cuda_on_host
