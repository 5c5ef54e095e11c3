#include "worker/kv/observed_queries.h"

#include <algorithm>
#include <utility>

namespace longhaul {

void ObservedQueries::add(LayerId layer, const Rows& rows, std::int64_t n_last) {
  const auto index = static_cast<std::size_t>(layer.value);
  if (index >= layers_.size()) layers_.resize(index + 1);
  Rows all = layers_[index] == nullptr ? Rows{} : *layers_[index];
  all.positions.insert(all.positions.end(), rows.positions.begin(), rows.positions.end());
  all.q.insert(all.q.end(), rows.q.begin(), rows.q.end());
  const std::size_t n = all.positions.size();
  const std::size_t n_gone = n - std::min(n, static_cast<std::size_t>(n_last));
  if (n_gone > 0) {
    const std::size_t row_size = all.q.size() / n;
    all.positions.erase(all.positions.begin(),
                        all.positions.begin() + static_cast<std::ptrdiff_t>(n_gone));
    all.q.erase(all.q.begin(), all.q.begin() + static_cast<std::ptrdiff_t>(n_gone * row_size));
  }
  layers_[index] = std::make_shared<const Rows>(std::move(all));
}

const ObservedQueries::Rows* ObservedQueries::of(LayerId layer) const {
  const auto index = static_cast<std::size_t>(layer.value);
  return index < layers_.size() ? layers_[index].get() : nullptr;
}

}  // namespace longhaul
