#include "worker/kv/merge_state.h"

#include <algorithm>
#include <array>

namespace longhaul {

RawRows RawTokens::rows(std::int64_t n_rows) const {
  const float* first = values.data();
  const std::int64_t to_v = values.empty() ? 0 : head_dim;  // from a null pointer there is no step
  const std::array<std::int64_t, 3> shape = {n_rows, n_kv_heads, head_dim};
  const std::array<std::int64_t, 3> strides = {row_size(), head_size(), 1};
  return {.k = {first, shape, strides},
          .v = {first + to_v, shape, strides},
          .weights = {first + 2 * to_v, {n_rows, n_kv_heads}, {row_size(), head_size()}}};
}

void RawTokens::append(const RawRows& more, std::int64_t n_last) {
  n_kv_heads = more.k.dim(1);
  head_dim = more.k.dim(2);
  for (std::int64_t row = std::max<std::int64_t>(0, more.n() - n_last); row < more.n(); ++row) {
    for (std::int64_t head = 0; head < n_kv_heads; ++head) {
      const float* k = more.k[row][head].data();
      const float* v = more.v[row][head].data();
      values.insert(values.end(), k, k + head_dim);
      values.insert(values.end(), v, v + head_dim);
      values.push_back(more.weights[row][head]);
    }
  }
}

void RawTokens::keep_last(std::int64_t n_last) {
  const std::int64_t n_gone = n() - n_last;
  if (n_gone > 0) values.erase(values.begin(), values.begin() + n_gone * row_size());
}

}  // namespace longhaul
