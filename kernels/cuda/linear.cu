// linear and linear_backward by cuBLASLt (cublas_lt.cuh).
#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <string>

#include "base/device/gpu_memory.h"
#include "base/error.h"
#include "kernels/cuda/cublas_lt.cuh"
#include "kernels/cuda/fp8_linear.cuh"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/integer_linear.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

constexpr int kThreads = 256;
constexpr auto kWorkspaceBytes = static_cast<std::size_t>(kProductWorkspaceBytes);

// --- products -----------------------------------------------------------------------------------

// Row-major out [n_tokens, n_out] = x [n_tokens, n_in] times the transpose of weight [n_out, n_in]:
// to cuBLAS, which thinks in columns, out is [n_out, n_tokens] = transposed weight times x. Where
// the weight is turned already, that is [n_in, n_out], it is the weight itself times x.
struct Product {
  cudaDataType_t type = {};  // of x and weight
  bool is_turned = {};
  std::int64_t n_tokens = {};
  std::int64_t n_in = {};
  std::int64_t n_out = {};
  std::int64_t weight_stride = {};
  std::int64_t x_stride = {};
  std::int64_t out_stride = {};
  // Several, of the same x.
  std::int64_t n_products = 1;
  std::int64_t weight_step = {};
  std::int64_t out_step = {};
  std::uint32_t weight_alignment = {};
  std::uint32_t x_alignment = {};
  std::uint32_t out_alignment = {};
  auto operator<=>(const Product&) const = default;
};

// Of one stream: handle, workspace, and how each product is best computed.
class LinearState {
 public:
  LinearState() : workspace_(kWorkspaceBytes) {
    check(library_.create(&handle_), "cublasLtCreate");
  }
  ~LinearState() { static_cast<void>(library_.destroy(handle_)); }
  LinearState(const LinearState&) = delete;
  LinearState& operator=(const LinearState&) = delete;

  // out = x W^T, plus out where beta is 1.
  void run(Stream& stream, const Product& product, const void* x, const void* weight, float* out,
           float beta) {
    const auto found = recipes_.find(product);
    const Recipe& recipe =
        found != recipes_.end()
            ? *found->second
            : *recipes_.emplace(product, std::make_unique<Recipe>(*this, product)).first->second;
    queue_work(stream, Multiply{*this, recipe, x, weight, out, beta});
  }

 private:
  struct Recipe;

  // Work (base/device/step_graph.h); recipes stay where they are as long as the state.
  struct Multiply {
    const LinearState& state;
    const Recipe& recipe;
    const void* x;
    const void* weight;
    float* out;
    float beta;
    bool operator==(const Multiply& other) const {
      return &recipe == &other.recipe && x == other.x && weight == other.weight &&
             out == other.out && beta == other.beta;
    }
    void queue(void* native) const {
      const float alpha = 1.0F;
      check(state.library_.matmul(state.handle_, recipe.desc, &alpha, weight, recipe.weight, x,
                                  recipe.x, &beta, out, recipe.out, out, recipe.out,
                                  &recipe.algorithm, state.workspace_.data(),
                                  state.workspace_.bytes(), static_cast<cudaStream_t>(native)),
            "cublasLtMatmul");
    }
  };

  struct Recipe {
    const Library& library;
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t weight = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};

    Recipe(const LinearState& state, const Product& p) : library(state.library_) {
      check(library.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
      const cublasOperation_t transpose = p.is_turned ? CUBLAS_OP_N : CUBLAS_OP_T;
      check(library.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
            "cublasLtMatmulDescSetAttribute");
      const auto n_in = static_cast<std::uint64_t>(p.n_in);
      const auto n_out = static_cast<std::uint64_t>(p.n_out);
      const auto n_tokens = static_cast<std::uint64_t>(p.n_tokens);
      check(library.layout_create(&weight, p.type, p.is_turned ? n_out : n_in,
                                  p.is_turned ? n_in : n_out, p.weight_stride),
            "weight");
      check(library.layout_create(&x, p.type, n_in, n_tokens, p.x_stride), "x");
      check(library.layout_create(&out, CUDA_R_32F, n_out, n_tokens, p.out_stride), "out");
      if (p.n_products > 1) {
        repeat(weight, p.n_products, p.weight_step);
        repeat(x, p.n_products, /*step=*/0);
        repeat(out, p.n_products, p.out_step);
      }
      choose(state, p);
    }
    ~Recipe() {
      if (out != nullptr) static_cast<void>(library.layout_destroy(out));
      if (x != nullptr) static_cast<void>(library.layout_destroy(x));
      if (weight != nullptr) static_cast<void>(library.layout_destroy(weight));
      if (desc != nullptr) static_cast<void>(library.desc_destroy(desc));
    }
    Recipe(const Recipe&) = delete;
    Recipe& operator=(const Recipe&) = delete;

    // Makes it n matrices, whose first elements are `step` apart.
    void repeat(cublasLtMatrixLayout_t layout, std::int64_t n, std::int64_t step) const {
      const auto count = static_cast<std::int32_t>(n);
      check(library.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
            "cublasLtMatrixLayoutSetAttribute");
      check(library.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                               sizeof step),
            "cublasLtMatrixLayoutSetAttribute");
    }

    void choose(const LinearState& state, const Product& p) {
      const cublasLtMatmulHeuristicResult_t found = first_choice(library, state.handle_,
                                                                 {.desc = desc,
                                                                  .a = weight,
                                                                  .b = x,
                                                                  .out = out,
                                                                  .a_alignment = p.weight_alignment,
                                                                  .b_alignment = p.x_alignment,
                                                                  .out_alignment = p.out_alignment},
                                                                 kWorkspaceBytes);
      if (found.state != CUBLAS_STATUS_SUCCESS) {
        throw Error(ErrorCode::kUnsupported,
                    "linear: cuBLASLt has no way to multiply x [" + std::to_string(p.n_tokens) +
                        ", " + std::to_string(p.n_in) + "] with " + std::to_string(p.n_out) +
                        " outputs (status " + std::to_string(static_cast<int>(found.state)) + ")");
      }
      algorithm = found.algo;
    }
  };

  Library library_;
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  std::map<Product, std::unique_ptr<Recipe>> recipes_;
};

LinearState& state_of(Stream& stream) {
  if (!stream.linear_state()) stream.linear_state() = std::make_shared<LinearState>();
  return *static_cast<LinearState*>(stream.linear_state().get());
}

// --- kernels around them ------------------------------------------------------------------------

// A thread for each two values of x [n].
__global__ void round_to_bf16_kernel(const float* x, std::int64_t n, std::uint16_t* out) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 2;
  if (i >= n) return;
  const bool is_last = i + 1 == n;
  const std::uint32_t both = bf16_pair(x[i], is_last ? 0.0F : x[i + 1]);
  if (is_last) {
    out[i] = static_cast<std::uint16_t>(both);
  } else {
    *reinterpret_cast<std::uint32_t*>(out + i) = both;
  }
}

// out [n / n_out, n_out] = bias, or += bias.
__global__ void bias_kernel(float* out, std::int64_t out_stride, std::int64_t n, const float* bias,
                            std::int64_t n_out, bool adds) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  float* to = out + i / n_out * out_stride + i % n_out;
  *to = (adds ? *to : 0.0F) + bias[i % n_out];
}

// x as products with the weight take it: rounded to bf16 where the weight is.
const void* factor_of(Stream& stream, const TensorView<const float, 2>& x,
                      const WeightView& weight) {
  if (weight.dtype != DType::kBf16) return x.data();
  const std::int64_t n = x.size();
  auto* rounded = reinterpret_cast<std::uint16_t*>(stream.scratch(static_cast<std::size_t>(2 * n)));
  launch(stream, "linear: round", round_to_bf16_kernel,
         {.x = ceil_div(ceil_div(n, 2), kThreads), .block = kThreads}, x.data(), n, rounded);
  return rounded;
}

// `shape` has all but types, alignments and the weight's stride.
void multiply(Stream& stream, Product shape, const void* x, const WeightView& weight, float* out,
              bool accumulates) {
  shape.type = weight.dtype == DType::kBf16 ? CUDA_R_16BF : CUDA_R_32F;
  shape.weight_stride = weight.stride();
  shape.weight_alignment = std::min(
      alignment_of(weight.data),
      alignment_of_step(shape.weight_step * static_cast<std::int64_t>(size_of(weight.dtype))));
  shape.x_alignment = alignment_of(x);
  shape.out_alignment =
      std::min(alignment_of(out),
               alignment_of_step(shape.out_step * static_cast<std::int64_t>(sizeof(float))));
  state_of(stream).run(stream, shape, x, weight.data, out, accumulates ? 1.0F : 0.0F);
}

}  // namespace

void multiply_floats(Stream& stream, const FloatProduct& p) {
  bool accumulates = p.output == LinearOutput::kAccumulate;
  if (p.bias != nullptr) {
    const std::int64_t n = p.n_rows * p.weight.n_out;
    launch(stream, "linear: bias", bias_kernel, {.x = ceil_div(n, kThreads), .block = kThreads},
           p.out, p.out_stride, n, p.bias, p.weight.n_out, accumulates);
    accumulates = true;
  }
  multiply(stream,
           {.is_turned = false,
            .n_tokens = p.n_rows,
            .n_in = p.weight.n_in,
            .n_out = p.weight.n_out,
            .x_stride = p.x_stride,
            .out_stride = p.out_stride,
            .n_products = p.n_products,
            .weight_step = p.weight_step,
            .out_step = p.out_step},
           p.x, p.weight, p.out, accumulates);
}

void linear(Stream& stream, const LinearArgs& args) {
  const std::int64_t n_tokens = args.x.dim(0);
  if (n_tokens == 0 || args.weight.n_out == 0) return;
  if (is_integer(args.weight.dtype)) return integer_linear(stream, args);
  if (args.weight.dtype == DType::kF8E4m3) return fp8_linear(stream, args);
  if (args.weight.dtype != DType::kBf16 && args.weight.dtype != DType::kF32) {
    throw Error(ErrorCode::kUnsupported,
                "linear on CUDA: only weights of f32, bf16, int8, int4 and fp8");
  }
  multiply_floats(stream, {.x = factor_of(stream, args.x, args.weight),
                           .x_stride = args.weight.n_in,
                           .n_rows = n_tokens,
                           .weight = args.weight,
                           .bias = args.bias.empty() ? nullptr : args.bias.data(),
                           .out = args.out.data(),
                           .out_stride = args.weight.n_out,
                           .output = args.output});
}

void linear_backward(Stream& stream, const LinearBackwardArgs& args) {
  if (args.d_x.size() == 0) return;
  multiply(stream,
           {.is_turned = true,
            .n_tokens = args.d_out.dim(0),
            .n_in = args.weight.n_out,
            .n_out = args.weight.n_in,
            .x_stride = args.weight.n_out,
            .out_stride = args.weight.n_in},
           factor_of(stream, args.d_out, args.weight), args.weight, args.d_x.data(),
           args.output == LinearOutput::kAccumulate);
}

}  // namespace longhaul::cuda
