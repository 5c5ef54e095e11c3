// kv_append on CPUs: rows of K and V into the blocks of each item, converted or quantised.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kv_quantise.h"
#include "kernels/operators.h"

namespace longhaul::cpu {
namespace {

// K or V of some tokens, to neighbouring slots of one block.
struct PartAppend {
  TensorView<const float, 2> x;
  KvType type = KvType::kF32;
  std::byte* part = nullptr;
  std::int64_t first_slot = 0;
  bool is_k = false;
};

void append_quantised(const KvBlockShape& shape, const PartAppend& append) {
  const KvPartLayout layout = shape.part(append.type);
  const auto head_dim = static_cast<std::size_t>(shape.head_dim);
  thread_local std::vector<std::uint8_t> codes;
  codes.resize(head_dim);
  for (std::int64_t token = 0; token < append.x.dim(0); ++token) {
    const std::int64_t slot = append.first_slot + token;
    const KvGroupRange range = quantise(append.type, {append.x[token].data(), head_dim}, codes);
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      const KvCodePlace place =
          append.is_k ? k_code_place(shape, slot, d) : v_code_place(shape, slot, d);
      write_code(append.type, append.part, place, codes[static_cast<std::size_t>(d)]);
    }
    write_range(layout, append.part, static_cast<std::size_t>(slot), range);
  }
}

// One channel of kKvGroup tokens.
void append_key_group(const KvBlockShape& shape, const PartAppend& append, std::int64_t token,
                      std::int64_t dim) {
  std::array<float, kKvGroup> values;
  std::array<std::uint8_t, kKvGroup> codes;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = append.x[token + static_cast<std::int64_t>(i)][dim];
  const KvGroupRange range = quantise_group(append.type, values, codes);
  const std::int64_t slot = append.first_slot + token;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const KvCodePlace place = k_code_place(shape, slot + static_cast<std::int64_t>(i), dim);
    write_code(append.type, append.part, place, codes[i]);
  }
  write_range(shape.part(append.type), append.part, k_range_index(shape, slot, dim), range);
}

// kKvGroup channels of one token.
void append_value_group(const KvBlockShape& shape, const PartAppend& append, std::int64_t token,
                        std::int64_t dim) {
  std::array<std::uint8_t, kKvGroup> codes;
  const KvGroupRange range =
      quantise_group(append.type, {append.x[token].data() + dim, kKvGroup}, codes);
  const std::int64_t slot = append.first_slot + token;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const KvCodePlace place = v_code_place(shape, slot, dim + static_cast<std::int64_t>(i));
    write_code(append.type, append.part, place, codes[i]);
  }
  write_range(shape.part(append.type), append.part, v_range_index(shape, slot, dim), range);
}

void append_groups(const KvBlockShape& shape, const PartAppend& append) {
  const std::int64_t n_tokens = append.x.dim(0);
  if (append.is_k) {
    for (std::int64_t token = 0; token < n_tokens; token += kKvGroup)
      for (std::int64_t d = 0; d < shape.head_dim; ++d) append_key_group(shape, append, token, d);
    return;
  }
  for (std::int64_t token = 0; token < n_tokens; ++token)
    for (std::int64_t d = 0; d < shape.head_dim; d += kKvGroup)
      append_value_group(shape, append, token, d);
}

void append_part(const KvBlockShape& shape, const PartAppend& append) {
  if (quantises_groups(append.type)) return append_groups(shape, append);
  if (is_quantised(append.type)) return append_quantised(shape, append);
  kernels().kv_append({.x = append.x.data(),
                       .token_stride = append.x.stride(0),
                       .n_tokens = append.x.dim(0),
                       .head_dim = shape.head_dim,
                       .to = append.part,
                       .block_size = shape.block_size,
                       .first_slot = append.first_slot,
                       .is_bf16 = append.type == KvType::kBf16,
                       .is_k = append.is_k});
}

// Behind the last of the tokens from this one on whose rows follow each other.
std::int64_t end_of_run(const KvAppendItem& item, std::int64_t token) {
  if (item.rows.empty()) return item.n_tokens();
  const auto end = std::adjacent_find(item.rows.begin() + token, item.rows.end(),
                                      [](auto row, auto next) { return next != row + 1; });
  return end == item.rows.end() ? item.n_tokens() : end - item.rows.begin() + 1;
}

void append_item(const KvBlockShape& shape, const KvAppendItem& item) {
  std::int64_t end = 0;  // of the run under way
  for (std::int64_t token = 0; token < item.n_tokens();) {
    if (token == end) end = end_of_run(item, token);
    const std::int64_t slot = item.first_slot + token;
    const std::int64_t within = slot % shape.block_size;
    const std::int64_t n = std::min(shape.block_size - within, end - token);
    const std::int64_t row = item.rows.empty() ? token : item.rows[static_cast<std::size_t>(token)];
    std::byte* block = item.blocks[static_cast<std::size_t>(slot / shape.block_size)];
    if (within == 0 && n < shape.block_size) std::memset(block, 0, shape.bytes());
    append_part(shape, {item.k.slice(0, {row, row + n}), shape.k_type, block, within, true});
    append_part(shape, {item.v.slice(0, {row, row + n}), shape.v_type, block + shape.k_bytes(),
                        within, false});
    token += n;
  }
}

}  // namespace

void kv_append(const KvAppendArgs& args) {
  std::int64_t most_tokens = 1;
  for (const KvAppendItem& item : args.items) most_tokens = std::max(most_tokens, item.n_tokens());
  parallel_rows(static_cast<std::int64_t>(args.items.size()), 2 * most_tokens * args.shape.head_dim,
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t i = begin; i < end; ++i) {
                    append_item(args.shape, args.items[static_cast<std::size_t>(i)]);
                  }
                });
}

}  // namespace longhaul::cpu
