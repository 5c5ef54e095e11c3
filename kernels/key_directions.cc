#include "kernels/key_directions.h"

#include <cmath>

#include "kernels/kv_block_check.h"
#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(std::string_view op, Device device, const KeyDirectionsArgs& keys) {
  check_kv_block_shape(op, keys.shape);
  require_cpu_for_groups(op, device, keys.shape);
}

}  // namespace

std::vector<std::int64_t> sum_key_directions(StreamRef stream, const KeyDirectionsArgs& keys) {
  check("sum_key_directions", stream.device(), keys);
  std::vector<std::int64_t> sums(static_cast<std::size_t>(keys.shape.head_dim));
  if (keys.blocks.empty()) return sums;
  run_on(stream, cpu::sum_key_directions, cuda::sum_key_directions,
         KeyDirectionSumsArgs{.keys = keys, .sums = sums});
  return sums;
}

std::vector<float> key_distinctions(StreamRef stream, const KeyDirectionsArgs& keys,
                                    std::span<const std::int64_t> all) {
  check("key_distinctions", stream.device(), keys);
  require_equal("key_distinctions", "sums of directions", static_cast<std::int64_t>(all.size()),
                keys.shape.head_dim);
  std::int64_t n_keys = 0;
  for (const KvBlockRef& block : keys.blocks) n_keys += block.n_tokens;
  std::vector<float> distinctions(static_cast<std::size_t>(n_keys));
  if (n_keys == 0) return distinctions;
  std::vector<float> direction;
  double square = 0;
  for (const std::int64_t sum : all) {
    direction.push_back(static_cast<float>(static_cast<double>(sum) / kDirectionUnits));
    square += static_cast<double>(direction.back()) * static_cast<double>(direction.back());
  }
  run_on(stream, cpu::key_distinctions, cuda::key_distinctions,
         KeyDistinctionsArgs{.keys = keys,
                             .direction = direction,
                             .inverse_length = square == 0 ? 0 : 1 / std::sqrt(square),
                             .distinctions = distinctions});
  return distinctions;
}

}  // namespace longhaul
