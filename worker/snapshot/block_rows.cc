#include "worker/snapshot/block_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "kernels/kv_quantise.h"

namespace longhaul {
namespace {

// The layouts of kernels/kv_block.h. T holds one element; kLanes of them stand together. Calls
// move(offset in the block, offset in the rows, size) for what lies together in both.
template <typename T, std::int64_t kLanes, typename Move>
void walk_key_rows(const KvBlockShape& shape, Extent slots, const Move& move) {
  constexpr std::integral_constant<std::size_t, sizeof(T) * kLanes> kSize;
  for (std::int64_t group = 0; group < shape.head_dim / kLanes; ++group) {
    std::size_t in_block = static_cast<std::size_t>(group * shape.block_size + slots.begin) * kSize;
    std::size_t in_rows = static_cast<std::size_t>(group) * kSize;
    for (std::int64_t token = 0; token < slots.size(); ++token) {
      move(in_block, in_rows, kSize);
      in_block += kSize;
      in_rows += static_cast<std::size_t>(shape.head_dim) * sizeof(T);
    }
  }
}

template <typename T, std::int64_t kLanes, typename Move>
void walk_value_rows(const KvBlockShape& shape, Extent slots, const Move& move) {
  constexpr std::integral_constant<std::size_t, sizeof(T)> kSize;
  std::size_t in_rows = 0;
  for (std::int64_t slot = slots.begin; slot < slots.end; ++slot) {
    std::size_t in_block =
        shape.k_bytes() +
        static_cast<std::size_t>(slot / kLanes * shape.head_dim * kLanes + slot % kLanes) * kSize;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      move(in_block, in_rows, kSize);
      in_block += kLanes * kSize;
      in_rows += kSize;
    }
  }
}

template <typename T, std::int64_t kLanes, typename Move>
void walk_rows(const KvBlockShape& shape, KvSide side, Extent slots, const Move& move) {
  if (side == KvSide::kKeys) return walk_key_rows<T, kLanes>(shape, slots, move);
  walk_value_rows<T, kLanes>(shape, slots, move);
}

KvCodePlace code_place(const KvBlockShape& shape, KvSide side, std::int64_t slot,
                       std::int64_t dim) {
  return side == KvSide::kKeys ? k_code_place(shape, slot, dim) : v_code_place(shape, slot, dim);
}

std::size_t side_at(const KvBlockShape& shape, KvSide side) {
  return side == KvSide::kKeys ? 0 : shape.k_bytes();
}

// Where scales or minima of the slots lie in a block.
std::size_t ranges_at(const KvBlockShape& shape, KvSide side, RowPart part, Extent slots) {
  const KvPartLayout layout = shape.part(kv_type_of(shape, side));
  return side_at(shape, side) + static_cast<std::size_t>(2 * slots.begin) +
         (part == RowPart::kScales ? layout.scales_at() : layout.minima_at());
}

void check_slots(const KvBlockShape& shape, Extent slots) {
  require(slots.begin >= 0 && slots.end <= shape.block_size,
          fmt::format("slots [{}, {}) of a block of {}", slots.begin, slots.end, shape.block_size));
}

void copy_codes(const BlockRowsArgs& args) {
  const KvType type = kv_type_of(args.shape, args.side);
  const std::byte* part = args.block + side_at(args.shape, args.side);
  std::byte* to = args.to;
  for (std::int64_t slot = args.slots.begin; slot < args.slots.end; ++slot) {
    const auto code = [&](std::int64_t dim) {
      return unsigned{read_code(type, part, code_place(args.shape, args.side, slot, dim))};
    };
    for (std::int64_t d = 0; d < args.shape.head_dim; ++d) {
      unsigned byte = code(d);
      if (type == KvType::kInt4) byte |= code(++d) << 4;
      *to++ = static_cast<std::byte>(byte);
    }
  }
}

void fill_codes(const FillBlockArgs& args) {
  const KvType type = kv_type_of(args.shape, args.side);
  std::byte* part = args.block + side_at(args.shape, args.side);
  const std::byte* from = args.rows;
  for (std::int64_t slot = args.slots.begin; slot < args.slots.end; ++slot) {
    const auto put = [&](std::int64_t dim, unsigned code) {
      write_code(type, part, code_place(args.shape, args.side, slot, dim),
                 static_cast<std::uint8_t>(code));
    };
    for (std::int64_t d = 0; d < args.shape.head_dim; ++d) {
      const auto byte = static_cast<unsigned>(*from++);
      put(d, type == KvType::kInt4 ? byte & 0xfU : byte);
      if (type == KvType::kInt4) put(++d, byte >> 4);
    }
  }
}

// What values of each type look like: elements that move() takes, or codes.
template <typename Args, typename Move, typename Codes>
void walk_values(const Args& args, const Move& move, const Codes& codes) {
  switch (kv_type_of(args.shape, args.side)) {
    case KvType::kF32:
      return walk_rows<std::uint32_t, 1>(args.shape, args.side, args.slots, move);
    case KvType::kBf16:
      return walk_rows<std::uint16_t, 2>(args.shape, args.side, args.slots, move);
    case KvType::kInt8:
    case KvType::kInt4:
      return codes(args);
  }
}

}  // namespace

std::vector<RowPart> row_parts(KvType type) {
  if (is_quantised(type)) return {RowPart::kValues, RowPart::kScales, RowPart::kMinima};
  return {RowPart::kValues};
}

std::int64_t row_elements(const KvBlockShape& shape, KvSide side, RowPart part) {
  if (part != RowPart::kValues) return 1;
  return kv_type_of(shape, side) == KvType::kInt4 ? shape.head_dim / 2 : shape.head_dim;
}

std::size_t row_bytes(const KvBlockShape& shape, KvSide side, RowPart part) {
  if (part != RowPart::kValues) return sizeof(Float16);
  return static_cast<std::size_t>(4 * shape.head_dim / kv_lanes(kv_type_of(shape, side)));
}

void copy_block_rows(const BlockRowsArgs& args) {
  check_slots(args.shape, args.slots);
  if (args.part != RowPart::kValues) {
    std::memcpy(args.to, args.block + ranges_at(args.shape, args.side, args.part, args.slots),
                static_cast<std::size_t>(2 * args.slots.size()));
    return;
  }
  walk_values(
      args,
      [&](std::size_t in_block, std::size_t in_rows, auto size) {
        std::memcpy(args.to + in_rows, args.block + in_block, size);
      },
      copy_codes);
}

void fill_block_rows(const FillBlockArgs& args) {
  check_slots(args.shape, args.slots);
  if (args.part != RowPart::kValues) {
    std::memcpy(args.block + ranges_at(args.shape, args.side, args.part, args.slots), args.rows,
                static_cast<std::size_t>(2 * args.slots.size()));
    return;
  }
  walk_values(
      args,
      [&](std::size_t in_block, std::size_t in_rows, auto size) {
        std::memcpy(args.block + in_block, args.rows + in_rows, size);
      },
      fill_codes);
}

std::vector<BlockRun> block_runs(std::span<const KvBlockRef> blocks, Extent without) {
  std::vector<BlockRun> runs;
  for (const KvBlockRef& block : blocks) {
    const Extent here{block.first_position, block.first_position + block.n_tokens};
    const Extent before{here.begin, std::min(here.end, without.begin)};
    const Extent after{std::max(here.begin, without.end), here.end};
    for (const Extent& kept : {before, after}) {
      if (kept.empty()) continue;
      runs.push_back({.block = block.data,
                      .slots = {kept.begin - here.begin, kept.end - here.begin},
                      .first_position = kept.begin});
    }
  }
  return runs;
}

std::int64_t n_tokens_in(std::span<const BlockRun> runs) {
  std::int64_t n = 0;
  for (const BlockRun& run : runs) n += run.slots.size();
  return n;
}

std::vector<Extent> position_runs(std::span<const BlockRun> runs) {
  std::vector<Extent> positions;
  for (const BlockRun& run : runs) {
    const Extent here = run.positions();
    if (!positions.empty() && positions.back().end == here.begin) {
      positions.back().end = here.end;
    } else {
      positions.push_back(here);
    }
  }
  return positions;
}

}  // namespace longhaul
