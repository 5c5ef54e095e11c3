// kv_close on CPUs: an open block's keys are turned into rows of tokens, and kv_append quantises
// these.
#include <algorithm>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/operators.h"

namespace longhaul::cpu {
namespace {

// Blocks whose keys are turned into rows at once: a few MiB.
constexpr std::size_t kBlocksAtOnce = 64;

// An open block's K, [head_dim, block_size], as rows of tokens.
void keys_to_rows(const KvBlockShape& shape, const std::byte* open, float* rows) {
  const auto* k = reinterpret_cast<const float*>(open);
  for (std::int64_t d = 0; d < shape.head_dim; ++d)
    for (std::int64_t slot = 0; slot < shape.block_size; ++slot)
      rows[slot * shape.head_dim + d] = k[d * shape.block_size + slot];
}

}  // namespace

void kv_close(const KvCloseArgs& args) {
  const KvBlockShape& shape = args.shape;
  const std::size_t v_at = open_block_shape(shape).k_bytes();
  const std::int64_t n_values = shape.block_size * shape.head_dim;
  std::vector<float> keys(std::min(kBlocksAtOnce, args.items.size()) *
                          static_cast<std::size_t>(n_values));
  std::vector<std::byte*> blocks;
  std::vector<KvAppendItem> rows;
  for (std::size_t first = 0; first < args.items.size(); first += kBlocksAtOnce) {
    const auto items =
        args.items.subspan(first, std::min(kBlocksAtOnce, args.items.size() - first));
    const auto n_items = static_cast<std::int64_t>(items.size());
    parallel_rows(n_items, 2 * n_values, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        keys_to_rows(shape, items[static_cast<std::size_t>(i)].open, keys.data() + i * n_values);
    });
    blocks.clear();
    rows.clear();
    for (const KvCloseItem& item : items) blocks.push_back(item.closed);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const float* k = keys.data() + static_cast<std::int64_t>(i) * n_values;
      const auto* v = reinterpret_cast<const float*>(items[i].open + v_at);
      rows.push_back({.k = {k, {shape.block_size, shape.head_dim}},
                      .v = {v, {shape.block_size, shape.head_dim}},
                      .blocks = std::span(blocks).subspan(i, 1)});
    }
    kv_append({.shape = shape, .items = rows});
  }
}

}  // namespace longhaul::cpu
