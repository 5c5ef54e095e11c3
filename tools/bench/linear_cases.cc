// The matrix products that `bench kernels` times (kernel_cases.h): every path that takes a shape.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>

#include "kernels/cpu/linear_paths.h"
#include "kernels/cpu/onednn.h"
#include "kernels/fp8_weights.h"
#include "kernels/int4_weights.h"
#include "kernels/int8_weights.h"
#include "kernels/probes/random_values.h"
#include "partition/weight_bytes.h"
#include "tools/bench/kernel_cases.h"

namespace longhaul::bench {
namespace {

struct Product {
  std::string_view name;
  std::int64_t n_tokens;
  std::int64_t n_in;
  std::int64_t n_out;
};
// `in_cache` stays in the second cache: what a core's arithmetic takes where memory does not count.
constexpr Product kProducts[] = {
    {"1B_up", 512, 2048, 8192},  {"1B_down", 512, 8192, 2048},   {"8B_qo", 512, 4096, 4096},
    {"8B_up", 512, 4096, 14336}, {"1B_up", 1, 2048, 8192},       {"8B_up", 1, 4096, 14336},
    {"8B_down", 1, 14336, 4096}, {"8B_up", 2, 4096, 14336},      {"8B_up", 4, 4096, 14336},
    {"8B_up", 8, 4096, 14336},   {"8B_up", 16, 4096, 14336},     {"8B_up", 32, 4096, 14336},
    {"8B_up", 64, 4096, 14336},  {"1B_logits", 1, 2048, 128256}, {"in_cache", 1, 2048, 64},
};

// The weights of a product, of any type.
class ProductWeights {
 public:
  ProductWeights(const Product& p, DType dtype) {
    const Int8Shape shape = {.n_out = p.n_out, .n_in = p.n_in};
    const auto read_row = [&](std::int64_t row, float* weights) {
      fill_random({weights, static_cast<std::size_t>(p.n_in)}, kDeviation, kSeed + row);
    };
    if (dtype == DType::kI8) {
      bytes_ = Int8Matrix::quantise(shape, read_row);
      view_ = bytes_->view();
    } else if (dtype == DType::kI4) {
      codes_ = Int4Matrix::quantise(shape, read_row);
      view_ = codes_->view();
    } else if (dtype == DType::kF8E4m3) {
      fp8_ = Fp8Matrix::quantise(p.n_out, p.n_in, read_row);
      view_ = fp8_->view();
    } else {
      floats_ = random_values(dtype, p.n_out * p.n_in, kDeviation, kSeed);
      view_ = {floats_.data(), dtype, p.n_out, p.n_in};
    }
  }
  const WeightView& view() const { return view_; }

 private:
  static constexpr float kDeviation = 0.02F;
  static constexpr std::int64_t kSeed = 1;
  Tensor<std::byte, 1> floats_{std::array<std::int64_t, 1>{0}};
  std::optional<Int8Matrix> bytes_;
  std::optional<Int4Matrix> codes_;
  std::optional<Fp8Matrix> fp8_;
  WeightView view_;
};

struct ProductMemory {
  ProductMemory(const Product& p, DType type)
      : x({p.n_tokens, p.n_in}), weights(p, type), out({p.n_tokens, p.n_out}) {
    fill_random({x.data(), static_cast<std::size_t>(x.size())}, 1.0F, /*seed=*/2);
  }
  Tensor<float, 2> x;
  ProductWeights weights;
  Tensor<float, 2> out;
};

KernelCase make_case(const Product& p, DType dtype, LinearPath path) {
  const auto operations = 2 * static_cast<double>(p.n_tokens * p.n_in * p.n_out);
  const auto weight_bytes = static_cast<double>(matrix_bytes(p.n_out, p.n_in, dtype));
  const auto input_bytes = 4 * static_cast<double>(p.n_tokens * p.n_in);
  const bool by_integers = is_integer(dtype);
  return {.name = fmt::format("linear/{}/rows_{}/{}/{}", p.name, p.n_tokens, name_of(dtype),
                              name_of(path)),
          .work = {.flops = by_integers ? 0 : operations,
                   .int8_ops = by_integers ? operations : 0,
                   .bytes = weight_bytes + input_bytes},
          .dtype = dtype,
          .prepare = [p, dtype, path]() -> std::function<void()> {
            const auto memory = std::make_shared<ProductMemory>(p, dtype);
            return [memory, path] {
              linear_by(path, {.x = memory->x.view(),
                               .weight = memory->weights.view(),
                               .out = memory->out.view()});
            };
          }};
}

// Few rows are never tiled, many never streamed: such figures would say nothing.
bool makes_sense(LinearPath path, DType dtype, std::int64_t n_tokens) {
  if ((path == LinearPath::kInt8) != (dtype == DType::kI8)) return false;
  if ((path == LinearPath::kInt4) != (dtype == DType::kI4)) return false;
  const bool by_fp8 = path == LinearPath::kFewRowsFp8 || path == LinearPath::kTiledFp8;
  if (by_fp8 != (dtype == DType::kF8E4m3)) return false;
  switch (path) {
    case LinearPath::kFewRows:
    case LinearPath::kFewRowsFp8:
      return n_tokens <= 32;
    case LinearPath::kTiled:
    case LinearPath::kTiledFp8:
      return n_tokens >= 8;
    case LinearPath::kFewRowsOfPairs:
      return n_tokens <= 32 && dtype == DType::kBf16 && has_linear_pairs();
    case LinearPath::kTiledPairs:
      return n_tokens >= 8 && dtype == DType::kBf16 && has_linear_pairs();
    case LinearPath::kFewRowsAmx:
      return n_tokens <= 64 && dtype == DType::kBf16 && has_linear_amx();
    case LinearPath::kTiledAmx:
      return n_tokens >= 8 && dtype == DType::kBf16 && has_linear_amx();
    case LinearPath::kOneDnn:
      return n_tokens >= 8 && onednn::in_build();
    case LinearPath::kInt8:
    case LinearPath::kInt4:
      return true;
  }
  return false;
}

}  // namespace

std::vector<KernelCase> linear_cases(bool all_paths) {
  std::vector<KernelCase> cases;
  for (const Product& p : kProducts) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kI8, DType::kI4, DType::kF8E4m3}) {
      for (const LinearPath path :
           {LinearPath::kFewRows, LinearPath::kTiled, LinearPath::kFewRowsOfPairs,
            LinearPath::kTiledPairs, LinearPath::kFewRowsAmx, LinearPath::kTiledAmx,
            LinearPath::kOneDnn, LinearPath::kInt8, LinearPath::kInt4, LinearPath::kFewRowsFp8,
            LinearPath::kTiledFp8}) {
        const bool is_taken = path == linear_path(p.n_tokens, dtype);
        if (is_taken || (all_paths && makes_sense(path, dtype, p.n_tokens))) {
          cases.push_back(make_case(p, dtype, path));
        }
      }
    }
  }
  return cases;
}

}  // namespace longhaul::bench
