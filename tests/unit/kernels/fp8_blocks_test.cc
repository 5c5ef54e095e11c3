// Products of fp8 on both sides by cuBLASLt, on the emulated GPU, whose stand-in refuses what the
// library would: which products it gets, and what happens where the library has none.
#include "tests/cuda_on_host/cublas_lt.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/device/device_cuda.h"
#include "kernels/cuda/upload_weight.h"
#include "kernels/fp8_weights.h"
#include "kernels/linear.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

using cuda_on_host::BlockScaling;

class CudaOnHostFp8Blocks : public testing::Test {
 protected:
  ~CudaOnHostFp8Blocks() override { cuda_on_host::set_block_scaling(BlockScaling::kThere); }

  struct Product {
    std::int64_t n_tokens = 64;
    std::int64_t n_out = 256;
    std::int64_t n_in = 384;
    Fp8Inputs inputs = Fp8Inputs::kQuantised;
    bool bias = false;
  };
  struct Done {
    std::vector<float> out;
    int n_by_library;
  };
  // On a stream of its own: what a library can do is asked once for each.
  Done multiply(const Product& p, BlockScaling scaling = BlockScaling::kThere) const {
    cuda_on_host::set_block_scaling(scaling);
    const int before = cuda_on_host::n_block_scaled_products();
    cuda::Stream gpu(0);
    Random random(7);
    const std::vector<float> weights = random.normals(p.n_out * p.n_in);
    const Fp8Matrix matrix =
        Fp8Matrix::quantise(p.n_out, p.n_in,
                            [&](std::int64_t output, float* row) {
                              std::copy_n(weights.begin() + output * p.n_in, p.n_in, row);
                            },
                            {.inputs = p.inputs});
    const UploadedWeight there = upload_weight(gpu, matrix.view());
    const Memory x(gpu.ref(), random.normals(p.n_tokens * p.n_in));
    const Memory bias(gpu.ref(), p.bias ? random.normals(p.n_out) : std::vector<float>{});
    const Memory out(gpu.ref(), p.n_tokens * p.n_out, 0.0F);
    linear(gpu.ref(), {.x = TensorView<const float, 2>(x.data(), {p.n_tokens, p.n_in}),
                       .weight = there.view,
                       .bias = bias.span(),
                       .out = TensorView<float, 2>(out.data(), {p.n_tokens, p.n_out})});
    return {out.values(), cuda_on_host::n_block_scaled_products() - before};
  }
};

TEST_F(CudaOnHostFp8Blocks, TheLibraryMultipliesManyRowsOfWholeBlocks) {
  EXPECT_EQ(multiply({}).n_by_library, 1);
  EXPECT_EQ(multiply({.n_tokens = 67}).n_by_library, 1);  // and the last 3 rows go another way
  EXPECT_EQ(multiply({.n_in = 400}).n_by_library, 1);     // a last block that is not whole
  EXPECT_EQ(multiply({.n_out = 144}).n_by_library, 1);
}

TEST_F(CudaOnHostFp8Blocks, WhatItCannotTakeGoesAnotherWay) {
  EXPECT_EQ(multiply({.n_tokens = 32}).n_by_library, 0);  // few rows are bound by memory
  EXPECT_EQ(multiply({.n_in = 392}).n_by_library, 0);
  EXPECT_EQ(multiply({.n_out = 100}).n_by_library, 0);
  EXPECT_EQ(multiply({.bias = true}).n_by_library, 0);
  // Nobody said that inputs may be rounded.
  EXPECT_EQ(multiply({.inputs = Fp8Inputs::kAsTheyAre}).n_by_library, 0);
}

TEST_F(CudaOnHostFp8Blocks, WithoutThemResultsAreTheSameButForTheOrderOfSums) {
  for (const std::int64_t n_tokens : {64, 67}) {
    const Done there = multiply({.n_tokens = n_tokens});
    for (const BlockScaling scaling : {BlockScaling::kUnknown, BlockScaling::kNotOnThisChip}) {
      const Done without = multiply({.n_tokens = n_tokens}, scaling);
      EXPECT_EQ(without.n_by_library, 0);
      EXPECT_TRUE(close(without.out, there.out, operator_tolerance(DType::kF32)));
    }
  }
}

}  // namespace
}  // namespace longhaul::test
