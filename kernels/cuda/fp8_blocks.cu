// Products of fp8 codes on both sides by cuBLASLt, which scales sums of 128 inputs by those of the
// rows (1 x 128) and of the weight (128 x 128) as it goes. CUDA 12.9 and later have them, on
// compute capability 9.0; what is not there is seen by asking, once for each shape.
#include <compare>
#include <map>
#include <memory>

#include "base/device/gpu_memory.h"
#include "kernels/cuda/cublas_lt.cuh"
#include "kernels/cuda/fp8_linear.cuh"

namespace longhaul::cuda {
namespace {

// Of cublasLt.h since CUDA 12.9, by number: with headers and libraries of before they are unknown.
const auto kScaleModeOfA = static_cast<cublasLtMatmulDescAttributes_t>(31);
const auto kScaleModeOfB = static_cast<cublasLtMatmulDescAttributes_t>(32);
constexpr std::int32_t kVectorsOf128 = 4;  // CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
constexpr std::int32_t kBlocksOf128 = 5;   // CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F

constexpr std::int64_t kBlock = 128;
constexpr std::uint32_t kAlignment = 16;

// As cublasLtMatmul sees it: columns are contiguous, so the weight [n_out, n_in] is transposed, and
// out is [n_out, n_rows].
struct BlockProduct {
  std::int64_t n_rows = {};
  std::int64_t n_in = {};
  std::int64_t n_out = {};
  std::int64_t weight_stride = {};
  std::int64_t x_stride = {};
  auto operator<=>(const BlockProduct&) const = default;
};

struct Operands {
  const std::uint8_t* weight;
  const float* weight_scales;
  const std::uint8_t* x;
  const float* x_scales;
  float* out;
  float beta;
  bool operator==(const Operands&) const = default;
};

// How a product is computed; `exists` is false where the library has no way.
class BlockRecipe {
 public:
  BlockRecipe(const Library& library, cublasLtHandle_t handle, const BlockProduct& p,
              const Operands& operands)
      : library_(library) {
    check(library.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const auto set = [&](cublasLtMatmulDescAttributes_t which, const auto& value) {
      return library.desc_set(desc_, which, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
    };
    if (!set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T) || !set(kScaleModeOfA, kBlocksOf128) ||
        !set(kScaleModeOfB, kVectorsOf128))
      return;
    name_scales(operands);
    const auto n_in = static_cast<std::uint64_t>(p.n_in);
    const auto n_out = static_cast<std::uint64_t>(p.n_out);
    const auto n_rows = static_cast<std::uint64_t>(p.n_rows);
    check(library.layout_create(&weight_, CUDA_R_8F_E4M3, n_in, n_out, p.weight_stride), "weight");
    check(library.layout_create(&x_, CUDA_R_8F_E4M3, n_in, n_rows, p.x_stride), "x");
    check(library.layout_create(&out_, CUDA_R_32F, n_out, n_rows, p.n_out), "out");
    exists_ = choose(handle);
  }
  ~BlockRecipe() {
    if (out_ != nullptr) static_cast<void>(library_.layout_destroy(out_));
    if (x_ != nullptr) static_cast<void>(library_.layout_destroy(x_));
    if (weight_ != nullptr) static_cast<void>(library_.layout_destroy(weight_));
    if (desc_ != nullptr) static_cast<void>(library_.desc_destroy(desc_));
  }
  BlockRecipe(const BlockRecipe&) = delete;
  BlockRecipe& operator=(const BlockRecipe&) = delete;

  bool exists() const { return exists_; }

  void queue(cublasLtHandle_t handle, const Operands& o, const Buffer& workspace,
             void* native) const {
    name_scales(o);
    const float alpha = 1.0F;
    check(library_.matmul(handle, desc_, &alpha, o.weight, weight_, o.x, x_, &o.beta, o.out, out_,
                          o.out, out_, &algorithm_, workspace.data(), workspace.bytes(),
                          static_cast<cudaStream_t>(native)),
          "cublasLtMatmul");
  }

 private:
  // Read by the call that follows.
  void name_scales(const Operands& o) const {
    check(library_.desc_set(desc_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &o.weight_scales,
                            sizeof o.weight_scales),
          "scales of the weight");
    check(library_.desc_set(desc_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &o.x_scales,
                            sizeof o.x_scales),
          "scales of x");
  }

  bool choose(cublasLtHandle_t handle) {
    const cublasLtMatmulHeuristicResult_t found =
        first_choice(library_, handle,
                     {.desc = desc_,
                      .a = weight_,
                      .b = x_,
                      .out = out_,
                      .a_alignment = kAlignment,
                      .b_alignment = kAlignment,
                      .out_alignment = kAlignment},
                     static_cast<std::size_t>(kProductWorkspaceBytes));
    algorithm_ = found.algo;
    return found.state == CUBLAS_STATUS_SUCCESS;
  }

  const Library& library_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t weight_ = nullptr;
  cublasLtMatrixLayout_t x_ = nullptr;
  cublasLtMatrixLayout_t out_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
  bool exists_ = false;
};

// Of one stream.
class BlockProducts {
 public:
  BlockProducts() : workspace_(static_cast<std::size_t>(kProductWorkspaceBytes)) {
    check(library_.create(&handle_), "cublasLtCreate");
  }
  ~BlockProducts() { static_cast<void>(library_.destroy(handle_)); }
  BlockProducts(const BlockProducts&) = delete;
  BlockProducts& operator=(const BlockProducts&) = delete;

  // False where there is no such product.
  bool run(Stream& stream, const BlockProduct& product, const Operands& operands) {
    auto& recipe = recipes_[product];
    if (!recipe) recipe = std::make_unique<BlockRecipe>(library_, handle_, product, operands);
    if (!recipe->exists()) return false;
    queue_work(stream, Multiply{*this, *recipe, operands});
    return true;
  }

 private:
  // Work (base/device/step_graph.h); recipes stay where they are as long as this.
  struct Multiply {
    const BlockProducts& products;
    const BlockRecipe& recipe;
    Operands operands;
    bool operator==(const Multiply& other) const {
      return &recipe == &other.recipe && operands == other.operands;
    }
    void queue(void* native) const {
      recipe.queue(products.handle_, operands, products.workspace_, native);
    }
  };

  Library library_;
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  std::map<BlockProduct, std::unique_ptr<BlockRecipe>> recipes_;
};

// Whether the weight is whole blocks of 128 x 128 from its first output and input on, its scales
// lie as the library wants them, and all is aligned.
bool has_block_form(const WeightView& w, const float* out) {
  const auto is_aligned = [](const void* at) { return alignment_of(at) >= kAlignment; };
  return w.fp8.block_out == kBlock && w.fp8.block_in == kBlock && w.first_lane == 0 &&
         w.first_input == 0 && w.n_in % kAlignment == 0 && w.n_out % kAlignment == 0 &&
         w.stride() % kAlignment == 0 && w.scale_stride == fp8_scale_stride(w.n_in) &&
         is_aligned(w.data) && is_aligned(w.block_scales) && is_aligned(out);
}

}  // namespace

std::int64_t multiply_fp8_blocks(Stream& stream, const Fp8Rows& rows, const WeightView& weight,
                                 float* out, LinearOutput output) {
  const std::int64_t n_rows = rows.n_scaled_together();
  if (n_rows == 0 || !has_block_form(weight, out)) return 0;
  if (!stream.block_products()) stream.block_products() = std::make_shared<BlockProducts>();
  auto& products = *static_cast<BlockProducts*>(stream.block_products().get());
  const BlockProduct product = {.n_rows = n_rows,
                                .n_in = weight.n_in,
                                .n_out = weight.n_out,
                                .weight_stride = weight.stride(),
                                .x_stride = rows.width};
  const Operands operands = {.weight = static_cast<const std::uint8_t*>(weight.data),
                             .weight_scales = weight.block_scales,
                             .x = rows.codes,
                             .x_scales = rows.scales,
                             .out = out,
                             .beta = output == LinearOutput::kAccumulate ? 1.0F : 0.0F};
  return products.run(stream, product, operands) ? n_rows : 0;
}

}  // namespace longhaul::cuda
