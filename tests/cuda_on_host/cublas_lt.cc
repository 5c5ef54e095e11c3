// Stands in for cuBLASLt (include/cublasLt.h): d = alpha op(a) b + beta c, column by column, with
// float32 sums; or several of one shape at equal distances, of which b may be one. It refuses what
// cuBLASLt would refuse or what would crash there: an algorithm that was chosen for another
// product, pointers less aligned than was promised, host memory. Products of fp8 are those with
// scales of 1 x 128 and 128 x 128 elements only, in the form that NVIDIA's documentation of cuBLAS
// describes ("128-element 1D and 128x128 2D Block Scaling").
#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "tests/cuda_on_host/cublas_lt.h"
#include "tests/cuda_on_host/streams.h"

// cuBLASLt's names for what its pointers point at.
struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  cublasOperation_t transpose_a = CUBLAS_OP_N;
  std::array<std::int32_t, 2> scale_modes = {CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
                                             CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F};  // a, b
  std::array<const float*, 2> scales = {nullptr, nullptr};
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::uint64_t rows;
  std::uint64_t cols;
  std::int64_t ld;  // elements from column to column
  std::int32_t n_matrices = 1;
  std::int64_t step = 0;  // elements from matrix to matrix
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_bytes = 0;
  std::array<std::uint32_t, 4> alignments = {256, 256, 256, 256};  // of a, b, c, d
};

namespace {

using longhaul::BFloat16;
using longhaul::to_float;
using Layout = cublasLtMatrixLayoutOpaque_t;

longhaul::cuda_on_host::BlockScaling block_scaling = longhaul::cuda_on_host::BlockScaling::kThere;
int n_block_scaled = 0;

std::uint64_t element_bytes(cudaDataType_t type) {
  return type == CUDA_R_8F_E4M3 ? 1 : type == CUDA_R_16BF ? 2 : 4;
}

bool is_valid(const Layout& layout) {
  return layout.rows > 0 && layout.cols > 0 &&
         layout.ld >= static_cast<std::int64_t>(layout.rows) &&
         (layout.type == CUDA_R_32F || layout.type == CUDA_R_16BF || layout.type == CUDA_R_8F_E4M3);
}

// Of fp8: matrices whose columns are multiples of 16 bytes, a transposed; one scale for each block
// of a or of b, not both, and numbers of rows and columns by which scales can be read.
bool has_fp8_form(const cublasLtMatmulDescOpaque_t& desc, const Layout& a, const Layout& b) {
  constexpr auto kVectors = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  constexpr auto kBlocks = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  const auto [of_a, of_b] = desc.scale_modes;
  const bool has_modes = (of_a == kVectors || of_a == kBlocks) &&
                         (of_b == kVectors || of_b == kBlocks) &&
                         (of_a == kVectors || of_b == kVectors);
  return has_modes && desc.transpose_a == CUBLAS_OP_T && a.rows % 16 == 0 && a.cols % 16 == 0 &&
         a.ld % 16 == 0 && b.ld % 16 == 0 && b.cols % 4 == 0;
}
bool scales_nothing(const cublasLtMatmulDescOpaque_t& desc) {
  return desc.scale_modes == cublasLtMatmulDescOpaque_t{}.scale_modes;
}

// What a product is, as the algorithm keeps it.
struct Problem {
  std::uint64_t m;
  std::uint64_t n;
  std::uint64_t k;
  std::uint64_t transposes_a;
  std::uint64_t type;
  std::uint64_t strides;     // of a and b and d, of how many and how far apart they are, mixed
  std::uint64_t alignments;  // 16 bits for each of a, b, c, d
  std::uint64_t workspace_bytes;
};
static_assert(sizeof(Problem) == sizeof(cublasLtMatmulAlgo_t));

// False for matrices that do not fit each other.
bool describe(const cublasLtMatmulDescOpaque_t& desc, const Layout& a, const Layout& b,
              const Layout& c, const Layout& d, Problem& out) {
  const bool transposes = desc.transpose_a == CUBLAS_OP_T;
  out.m = transposes ? a.cols : a.rows;
  out.k = transposes ? a.rows : a.cols;
  out.n = b.cols;
  out.transposes_a = transposes ? 1 : 0;
  out.type = static_cast<std::uint64_t>(a.type) +
             (static_cast<std::uint64_t>(desc.scale_modes[0]) << 16U) +
             (static_cast<std::uint64_t>(desc.scale_modes[1]) << 24U);
  const bool has_form = a.type == CUDA_R_8F_E4M3 ? has_fp8_form(desc, a, b) : scales_nothing(desc);
  out.strides = static_cast<std::uint64_t>(a.ld) + (static_cast<std::uint64_t>(b.ld) << 20U) +
                (static_cast<std::uint64_t>(d.ld) << 40U);
  for (const auto number : {std::int64_t{a.n_matrices}, a.step, b.step, d.step})
    out.strides = out.strides * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(number);
  // Outputs do not overlap: each column of one ends before the next matrix, or is one of its own.
  const bool has_steps = a.n_matrices == b.n_matrices && a.n_matrices == c.n_matrices &&
                         a.n_matrices == d.n_matrices && a.n_matrices > 0 && c.step == d.step &&
                         (a.n_matrices == 1 || (a.step >= 0 && b.step >= 0 &&
                                                d.step >= static_cast<std::int64_t>(d.rows)));
  return has_form && has_steps && is_valid(a) && is_valid(b) && is_valid(c) && is_valid(d) &&
         b.rows == out.k && d.rows == out.m && d.cols == out.n && c.rows == d.rows &&
         c.cols == d.cols && c.ld == d.ld && a.type == b.type && c.type == CUDA_R_32F &&
         d.type == CUDA_R_32F;
}

// A matrix of floats whose columns [k] are without gaps; `transposed`: the columns are those of the
// transposed matrix.
std::vector<float> columns_of(const void* data, const Layout& layout, bool transposed) {
  const std::uint64_t n_columns = transposed ? layout.rows : layout.cols;
  const std::uint64_t n_rows = transposed ? layout.cols : layout.rows;
  const auto ld = static_cast<std::uint64_t>(layout.ld);
  std::vector<float> out;
  out.reserve(n_columns * n_rows);
  for (std::uint64_t column = 0; column < n_columns; ++column) {
    for (std::uint64_t row = 0; row < n_rows; ++row) {
      const std::uint64_t at = transposed ? row * ld + column : column * ld + row;
      if (layout.type == CUDA_R_8F_E4M3) {
        out.push_back(to_float(longhaul::Float8E4m3{static_cast<const std::uint8_t*>(data)[at]}));
      } else if (layout.type == CUDA_R_16BF) {
        out.push_back(to_float(BFloat16{static_cast<const std::uint16_t*>(data)[at]}));
      } else {
        out.push_back(static_cast<const float*>(data)[at]);
      }
    }
  }
  return out;
}

// In eight sums, added up last: an order of the library's own.
float dot(const float* x, const float* y, std::uint64_t n) {
  std::array<float, 8> sums = {};
  std::uint64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::uint64_t lane = 0; lane < 8; ++lane) sums[lane] += x[i + lane] * y[i + lane];
  }
  for (; i < n; ++i) sums[i % 8] += x[i] * y[i];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

bool is_aligned(const void* at, std::uint64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(at) % alignment == 0;
}

// The last byte too.
bool is_on_gpu(const void* data, const Layout& layout) {
  const std::uint64_t last =
      (static_cast<std::uint64_t>((layout.n_matrices - 1) * layout.step) +
       (layout.cols - 1) * static_cast<std::uint64_t>(layout.ld) + layout.rows) *
          element_bytes(layout.type) -
      1;
  using longhaul::cuda_on_host::is_device_memory;
  return is_device_memory(data) && is_device_memory(static_cast<const char*>(data) + last);
}

// What is known when a product is queued.
struct Product {
  Problem problem;
  float alpha;
  float beta;
  const void* a;
  const void* b;
  const float* c;
  float* d;
  Layout a_layout;
  Layout b_layout;
  std::uint64_t d_stride;
  std::uint64_t d_step;
  std::array<std::int32_t, 2> scale_modes;
  std::array<const float*, 2> scales;
};

constexpr std::uint64_t kScaled = 128;  // elements along a sum that share a scale
std::uint64_t blocks_of(std::uint64_t n) { return (n + kScaled - 1) / kScaled; }

// Of the block of elements [128 block, ...) along the sum, in column `column` (of n) of a or b.
std::uint64_t scale_index(std::int32_t mode, std::uint64_t column, std::uint64_t n,
                          std::uint64_t block, std::uint64_t k) {
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return block * n + column;
  return column / kScaled * ((blocks_of(k) + 3) / 4 * 4) + block;
}

float scaled_dot(const Product& p, const float* x, const float* y, std::uint64_t row,
                 std::uint64_t column) {
  const std::uint64_t k = p.problem.k;
  float sum = 0;
  for (std::uint64_t block = 0; block < blocks_of(k); ++block) {
    const std::uint64_t begin = block * kScaled;
    const std::uint64_t n = std::min(kScaled, k - begin);
    sum += dot(x + begin, y + begin, n) *
           p.scales[0][scale_index(p.scale_modes[0], row, p.problem.m, block, k)] *
           p.scales[1][scale_index(p.scale_modes[1], column, p.problem.n, block, k)];
  }
  return sum;
}

void compute_one(const Product& p) {
  const std::uint64_t k = p.problem.k;
  const std::vector<float> left = columns_of(p.a, p.a_layout, p.problem.transposes_a == 0);
  const std::vector<float> right = columns_of(p.b, p.b_layout, false);
  for (std::uint64_t column = 0; column < p.problem.n; ++column) {
    const std::uint64_t first = column * p.d_stride;
    for (std::uint64_t row = 0; row < p.problem.m; ++row) {
      const float* x = left.data() + row * k;
      const float* y = right.data() + column * k;
      const float sum =
          p.alpha *
          (p.a_layout.type == CUDA_R_8F_E4M3 ? scaled_dot(p, x, y, row, column) : dot(x, y, k));
      // Where beta is 0, c is not read.
      const float old = p.beta == 0.0F ? 0.0F : p.beta * p.c[first + row];
      p.d[first + row] = old + sum;
    }
  }
}

void compute(Product p) {
  const longhaul::cuda_on_host::DeviceMemoryAccess access;
  const auto step = [](const void* at, const Layout& layout) -> const void* {
    return static_cast<const std::byte*>(at) +
           static_cast<std::uint64_t>(layout.step) * element_bytes(layout.type);
  };
  for (std::int32_t i = 0; i < p.a_layout.n_matrices; ++i) {
    compute_one(p);
    p.a = step(p.a, p.a_layout);
    p.b = step(p.b, p.b_layout);
    p.c += p.d_step;
    p.d += p.d_step;
  }
}

template <typename T>
cublasStatus_t set(T& to, const void* value, std::size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t destroy(T* object) {
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy(handle); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *desc = new cublasLtMatmulDescOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroy(desc); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* value, std::size_t bytes) {
  const bool knows_modes = block_scaling != longhaul::cuda_on_host::BlockScaling::kUnknown;
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(desc->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set(desc->scales[0], value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set(desc->scales[1], value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return knows_modes ? set(desc->scale_modes[0], value, bytes) : CUBLAS_STATUS_INVALID_VALUE;
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return knows_modes ? set(desc->scale_modes[1], value, bytes) : CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  *layout = new Layout{.type = type, .rows = rows, .cols = cols, .ld = ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, std::size_t bytes) {
  switch (which) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set(layout->n_matrices, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(layout->step, value, bytes);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void* value, std::size_t bytes) {
  switch (which) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(preference->workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return set(preference->alignments[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return set(preference->alignments[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return set(preference->alignments[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(preference->alignments[3], value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int n_wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* n_results) {
  *n_results = 0;
  Problem problem = {};
  if (n_wanted < 1 || !describe(*desc, *a, *b, *c, *d, problem)) return CUBLAS_STATUS_INVALID_VALUE;
  if (a->type == CUDA_R_8F_E4M3 && block_scaling != longhaul::cuda_on_host::BlockScaling::kThere)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (std::size_t i = 0; i < 4; ++i) {
    problem.alignments |= static_cast<std::uint64_t>(preference->alignments[i]) << (16 * i);
  }
  problem.workspace_bytes = preference->workspace_bytes;
  *results = {};
  std::memcpy(&results->algo, &problem, sizeof problem);
  results->workspaceSize = preference->workspace_bytes;
  results->state = CUBLAS_STATUS_SUCCESS;
  *n_results = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  Problem chosen = {};
  std::memcpy(&chosen, algo, sizeof chosen);
  Problem asked = chosen;
  if (!describe(*desc, *a_layout, *b_layout, *c_layout, *d_layout, asked) ||
      std::memcmp(&asked, &chosen, sizeof asked) != 0 || workspace_bytes < chosen.workspace_bytes ||
      !is_aligned(workspace, 256) || !longhaul::cuda_on_host::is_device_memory(workspace) ||
      !is_on_gpu(a, *a_layout) || !is_on_gpu(b, *b_layout) || !is_on_gpu(c, *c_layout) ||
      !is_on_gpu(d, *d_layout)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const std::array<const void*, 4> pointers = {a, b, c, d};
  const std::array<const Layout*, 4> layouts = {a_layout, b_layout, c_layout, d_layout};
  for (std::size_t i = 0; i < 4; ++i) {
    const std::uint64_t alignment = chosen.alignments >> (16 * i) & 0xffffU;
    const std::uint64_t step_bytes =
        static_cast<std::uint64_t>(layouts[i]->step) * element_bytes(layouts[i]->type);
    if (!is_aligned(pointers[i], alignment) || step_bytes % alignment != 0) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  if (a_layout->type == CUDA_R_8F_E4M3) {
    const std::array<std::uint64_t, 2> n_columns = {asked.m, asked.n};
    for (std::size_t i = 0; i < 2; ++i) {
      const std::uint64_t last = scale_index(desc->scale_modes[i], n_columns[i] - 1, n_columns[i],
                                             blocks_of(asked.k) - 1, asked.k);
      if (!is_aligned(desc->scales[i], 16) || !is_aligned(pointers[i], 16) ||
          !longhaul::cuda_on_host::is_device_memory(desc->scales[i]) ||
          !longhaul::cuda_on_host::is_device_memory(desc->scales[i] + last))
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    ++n_block_scaled;
  }
  const Product product = {.problem = asked,
                           .alpha = *static_cast<const float*>(alpha),
                           .beta = *static_cast<const float*>(beta),
                           .a = a,
                           .b = b,
                           .c = static_cast<const float*>(c),
                           .d = static_cast<float*>(d),
                           .a_layout = *a_layout,
                           .b_layout = *b_layout,
                           .d_stride = static_cast<std::uint64_t>(d_layout->ld),
                           .d_step = static_cast<std::uint64_t>(d_layout->step),
                           .scale_modes = desc->scale_modes,
                           .scales = desc->scales};
  longhaul::cuda_on_host::queue(stream, reinterpret_cast<const void*>(&compute),
                                [product] { compute(product); });
  return CUBLAS_STATUS_SUCCESS;
}

namespace longhaul::cuda_on_host {
namespace {

template <typename Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

const std::array<std::pair<std::string_view, void*>, 13>& symbols() {
  static const std::array<std::pair<std::string_view, void*>, 13> all = {{
      {"cublasLtCreate", address(cublasLtCreate)},
      {"cublasLtDestroy", address(cublasLtDestroy)},
      {"cublasLtMatmul", address(cublasLtMatmul)},
      {"cublasLtMatmulAlgoGetHeuristic", address(cublasLtMatmulAlgoGetHeuristic)},
      {"cublasLtMatmulDescCreate", address(cublasLtMatmulDescCreate)},
      {"cublasLtMatmulDescDestroy", address(cublasLtMatmulDescDestroy)},
      {"cublasLtMatmulDescSetAttribute", address(cublasLtMatmulDescSetAttribute)},
      {"cublasLtMatrixLayoutCreate", address(cublasLtMatrixLayoutCreate)},
      {"cublasLtMatrixLayoutDestroy", address(cublasLtMatrixLayoutDestroy)},
      {"cublasLtMatrixLayoutSetAttribute", address(cublasLtMatrixLayoutSetAttribute)},
      {"cublasLtMatmulPreferenceCreate", address(cublasLtMatmulPreferenceCreate)},
      {"cublasLtMatmulPreferenceDestroy", address(cublasLtMatmulPreferenceDestroy)},
      {"cublasLtMatmulPreferenceSetAttribute", address(cublasLtMatmulPreferenceSetAttribute)},
  }};
  return all;
}

}  // namespace

void set_block_scaling(BlockScaling scaling) { block_scaling = scaling; }
int n_block_scaled_products() { return n_block_scaled; }

void* open_library(const char* name) {
  static int library = 0;
  return std::string_view(name) == "libcublasLt.so.13" ? &library : nullptr;
}

void* find_symbol(void*, const char* name) {
  for (const auto& [known, function] : symbols()) {
    if (known == name) return function;
  }
  return nullptr;
}

const char* why_no_library() { return "cuda_on_host has no such library"; }

}  // namespace longhaul::cuda_on_host
