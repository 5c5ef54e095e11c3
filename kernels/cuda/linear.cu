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
#include "kernels/cuda/int8_linear.cuh"
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
      check(library.layout_create(&x, p.type, n_in, n_tokens, p.n_in), "x");
      check(library.layout_create(&out, CUDA_R_32F, n_out, n_tokens, p.n_out), "out");
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
__global__ void bias_kernel(float* out, std::int64_t n, const float* bias, std::int64_t n_out,
                            bool adds) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) out[i] = (adds ? out[i] : 0.0F) + bias[i % n_out];
}

// out [n_tokens, n_out] = x [n_tokens, n_in] times the weight, or += that. `x` is rounded to bf16
// where the weight is. `shape` has all but types and alignments.
void multiply(Stream& stream, Product shape, const TensorView<const float, 2>& x,
              const WeightView& weight, float* out, bool accumulates) {
  const bool is_bf16 = weight.dtype == DType::kBf16;
  const void* factor = x.data();
  if (is_bf16) {
    const std::int64_t n = x.size();
    auto* rounded =
        reinterpret_cast<std::uint16_t*>(stream.scratch(static_cast<std::size_t>(2 * n)));
    launch(stream, "linear: round", round_to_bf16_kernel,
           {.x = ceil_div(ceil_div(n, 2), kThreads), .block = kThreads}, x.data(), n, rounded);
    factor = rounded;
  }
  shape.type = is_bf16 ? CUDA_R_16BF : CUDA_R_32F;
  shape.weight_stride = weight.stride();
  shape.weight_alignment = alignment_of(weight.data);
  shape.x_alignment = alignment_of(factor);
  shape.out_alignment = alignment_of(out);
  state_of(stream).run(stream, shape, factor, weight.data, out, accumulates ? 1.0F : 0.0F);
}

}  // namespace

void linear(Stream& stream, const LinearArgs& args) {
  const std::int64_t n_tokens = args.x.dim(0);
  if (n_tokens == 0 || args.weight.n_out == 0) return;
  if (args.weight.dtype == DType::kI8) return int8_linear(stream, args);
  if (args.weight.dtype == DType::kF8E4m3) return fp8_linear(stream, args);
  if (args.weight.dtype != DType::kBf16 && args.weight.dtype != DType::kF32) {
    throw Error(ErrorCode::kUnsupported, "linear on CUDA: only weights of f32, bf16, int8 and fp8");
  }
  bool accumulates = args.output == LinearOutput::kAccumulate;
  if (!args.bias.empty()) {
    launch(stream, "linear: bias", bias_kernel,
           {.x = ceil_div(args.out.size(), kThreads), .block = kThreads}, args.out.data(),
           args.out.size(), args.bias.data(), args.weight.n_out, accumulates);
    accumulates = true;
  }
  const Product shape = {.is_turned = false,
                         .n_tokens = n_tokens,
                         .n_in = args.weight.n_in,
                         .n_out = args.weight.n_out};
  multiply(stream, shape, args.x, args.weight, args.out.data(), accumulates);
}

void linear_backward(Stream& stream, const LinearBackwardArgs& args) {
  if (args.d_x.size() == 0) return;
  const Product shape = {.is_turned = true,
                         .n_tokens = args.d_out.dim(0),
                         .n_in = args.weight.n_out,
                         .n_out = args.weight.n_in};
  multiply(stream, shape, args.d_out, args.weight, args.d_x.data(),
           args.output == LinearOutput::kAccumulate);
}

}  // namespace longhaul::cuda
