// Scores of keys and their exponentials, summed up. See kernels/cpu/isa/key_scores.h.
#include "kernels/cpu/isa/key_scores.h"

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/tile.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

typedef double Doubles __attribute__((vector_size(kWidth * 8)));

// Sums of so many columns stay in the first cache while all rows pass.
constexpr std::int64_t kTile = 256;

void add_row(const float* scores, float largest, double inverse, double* sums, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Vec weights = exp_below(load(scores + i) - largest);
    Doubles sum;
    __builtin_memcpy(&sum, sums + i, sizeof sum);
    sum += __builtin_convertvector(weights, Doubles) * inverse;
    __builtin_memcpy(sums + i, &sum, sizeof sum);
  }
  if (i == n) return;
  const Vec rest = exp_below(load_first(scores + i, n - i) - largest);
  for (int lane = 0; i + lane < n; ++lane)
    sums[i + lane] += static_cast<double>(rest[lane]) * inverse;
}

}  // namespace

void key_products(const KeyProductsTask& task) {
  const Segment segment = {task.keys, task.head_dim};
  multiply<FloatProduct, Start::kZero>(task.n_rows, task.n_keys,
                                       {.a = task.q,
                                        .a_stride = task.head_dim,
                                        .segments = &segment,
                                        .n_segments = 1,
                                        .b_stride = task.key_stride,
                                        .c = task.scores,
                                        .c_stride = task.score_stride,
                                        .row_scale = nullptr,
                                        .left_units = nullptr});
}

RowExpSum exp_sum(const float* x, std::int64_t n) {
  const FlushDenormals flush;
  Vec best = broadcast(-kInfinity);
  std::int64_t whole = 0;
  for (; whole + kWidth <= n; whole += kWidth) best = max(best, load(x + whole));
  float rest[kWidth];
  for (int lane = 0; lane < kWidth; ++lane) rest[lane] = -kInfinity;
  for (int lane = 0; whole + lane < n; ++lane) rest[lane] = x[whole + lane];
  const float largest = max_of(max(best, load(rest)));
  if (largest == -kInfinity) return {largest, 0.0};
  Doubles sums{};
  for (std::int64_t i = 0; i < whole; i += kWidth)
    sums += __builtin_convertvector(exp(load(x + i) - largest), Doubles);
  sums += __builtin_convertvector(exp(load(rest) - largest), Doubles);
  double sum = 0;
  for (int lane = 0; lane < kWidth; ++lane) sum += sums[lane];
  return {largest, sum};
}

void add_exps(const AddExpsTask& task) {
  const FlushDenormals flush;
  for (std::int64_t begin = 0; begin < task.n; begin += kTile) {
    const std::int64_t n = task.n - begin < kTile ? task.n - begin : kTile;
    for (std::int64_t row = 0; row < task.n_rows; ++row) {
      add_row(task.scores + row * task.score_stride + begin, task.maxima[row], task.inverses[row],
              task.sums + begin, n);
    }
  }
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
