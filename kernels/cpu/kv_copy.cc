// kv_copy on CPUs: words, parts of words and scales of slots, from block to block.
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kv_quantise.h"
#include "kernels/operators.h"

namespace longhaul::cpu {
namespace {

bool copies_whole_block(const KvBlockShape& shape, const KvCopyItem& item) {
  return item.from_slot == 0 && item.to_slot == 0 && item.n_tokens == shape.block_size;
}

// K is [head_dim / lanes, block_size] words: the slots of a row are neighbours.
void copy_k(const KvBlockShape& shape, const KvCopyItem& item) {
  const std::int64_t n_rows = shape.head_dim / kv_lanes(shape.k_type);
  for (std::int64_t row = 0; row < n_rows; ++row) {
    std::memcpy(item.to + 4 * (row * shape.block_size + item.to_slot),
                item.from + 4 * (row * shape.block_size + item.from_slot),
                static_cast<std::size_t>(4 * item.n_tokens));
  }
}

// V is [block_size / lanes, head_dim] words: a slot is a part of each word of a row.
void copy_v(const KvBlockShape& shape, const KvCopyItem& item) {
  const std::int64_t lanes = kv_lanes(shape.v_type);
  const std::int64_t width = 4 / lanes;  // bytes; 0 for half a byte
  const std::byte* from = item.from + shape.k_bytes();
  std::byte* to = item.to + shape.k_bytes();
  for (std::int64_t token = 0; token < item.n_tokens; ++token) {
    const std::int64_t from_slot = item.from_slot + token;
    const std::int64_t to_slot = item.to_slot + token;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      if (width == 0) {
        write_code(shape.v_type, to, v_code_place(shape, to_slot, d),
                   read_code(shape.v_type, from, v_code_place(shape, from_slot, d)));
        continue;
      }
      std::memcpy(to + 4 * (to_slot / lanes * shape.head_dim + d) + to_slot % lanes * width,
                  from + 4 * (from_slot / lanes * shape.head_dim + d) + from_slot % lanes * width,
                  static_cast<std::size_t>(width));
    }
  }
}

// Scales and minima of quantised K or V.
void copy_ranges(const KvPartLayout& layout, const std::byte* from, std::byte* to,
                 const KvCopyItem& item) {
  const auto copy = [&](std::size_t at) {
    std::memcpy(to + at + 2 * item.to_slot, from + at + 2 * item.from_slot,
                static_cast<std::size_t>(2 * item.n_tokens));
  };
  copy(layout.scales_at());
  if (layout.has_minima) copy(layout.minima_at());
}

void copy_item(const KvBlockShape& shape, const KvCopyItem& item) {
  if (copies_whole_block(shape, item)) {
    std::memcpy(item.to, item.from, shape.bytes());
    return;
  }
  require(!shape.quantises_groups(), "kv_copy: tokens that were quantised as a group do not part");
  copy_k(shape, item);
  copy_v(shape, item);
  const std::size_t v = shape.k_bytes();
  if (is_quantised(shape.k_type)) copy_ranges(shape.part(shape.k_type), item.from, item.to, item);
  if (is_quantised(shape.v_type))
    copy_ranges(shape.part(shape.v_type), item.from + v, item.to + v, item);
}

}  // namespace

void kv_copy(const KvCopyArgs& args) {
  parallel_rows(static_cast<std::int64_t>(args.items.size()),
                2 * args.shape.block_size * args.shape.head_dim,
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t i = begin; i < end; ++i) {
                    copy_item(args.shape, args.items[static_cast<std::size_t>(i)]);
                  }
                });
}

}  // namespace longhaul::cpu
