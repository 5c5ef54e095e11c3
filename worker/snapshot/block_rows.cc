#include "worker/snapshot/block_rows.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/error.h"
#include "kernels/kv_quantise.h"

namespace longhaul {
namespace {

// The layouts of kernels/kv_block.h. T holds one element; kLanes of them stand together.
template <typename T, std::int64_t kLanes>
void copy_key_rows(const BlockRowsArgs& args) {
  using Lanes = std::array<T, kLanes>;
  const auto [block_size, head_dim] = std::pair(args.shape.block_size, args.shape.head_dim);
  for (std::int64_t group = 0; group < head_dim / kLanes; ++group) {
    const std::byte* from =
        args.block +
        static_cast<std::size_t>(group * block_size + args.slots.begin) * sizeof(Lanes);
    std::byte* to = args.to + static_cast<std::size_t>(group) * sizeof(Lanes);
    for (std::int64_t token = 0; token < args.slots.size(); ++token) {
      std::memcpy(to, from, sizeof(Lanes));
      from += sizeof(Lanes);
      to += static_cast<std::size_t>(head_dim) * sizeof(T);
    }
  }
}

template <typename T, std::int64_t kLanes>
void copy_value_rows(const BlockRowsArgs& args) {
  const std::int64_t head_dim = args.shape.head_dim;
  std::byte* to = args.to;
  for (std::int64_t slot = args.slots.begin; slot < args.slots.end; ++slot) {
    const std::byte* from =
        args.block + args.shape.k_bytes() +
        static_cast<std::size_t>(slot / kLanes * head_dim * kLanes + slot % kLanes) * sizeof(T);
    for (std::int64_t d = 0; d < head_dim; ++d) {
      std::memcpy(to, from, sizeof(T));
      from += kLanes * sizeof(T);
      to += sizeof(T);
    }
  }
}

void copy_codes(const BlockRowsArgs& args) {
  const bool keys = args.side == KvSide::kKeys;
  const KvType type = kv_type_of(args.shape, args.side);
  const std::byte* part = args.block + (keys ? 0 : args.shape.k_bytes());
  std::byte* to = args.to;
  for (std::int64_t slot = args.slots.begin; slot < args.slots.end; ++slot) {
    const auto code = [&](std::int64_t dim) {
      return unsigned{read_code(
          type, part,
          keys ? k_code_place(args.shape, slot, dim) : v_code_place(args.shape, slot, dim))};
    };
    for (std::int64_t d = 0; d < args.shape.head_dim; ++d) {
      unsigned byte = code(d);
      if (type == KvType::kInt4) byte |= code(++d) << 4;
      *to++ = static_cast<std::byte>(byte);
    }
  }
}

void copy_ranges(const BlockRowsArgs& args) {
  const bool keys = args.side == KvSide::kKeys;
  const KvPartLayout layout = args.shape.part(kv_type_of(args.shape, args.side));
  const std::byte* from = args.block + (keys ? 0 : args.shape.k_bytes()) + 2 * args.slots.begin +
                          (args.part == RowPart::kScales ? layout.scales_at() : layout.minima_at());
  std::memcpy(args.to, from, static_cast<std::size_t>(2 * args.slots.size()));
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
  require(args.slots.begin >= 0 && args.slots.end <= args.shape.block_size,
          fmt::format("slots [{}, {}) of a block of {}", args.slots.begin, args.slots.end,
                      args.shape.block_size));
  const bool keys = args.side == KvSide::kKeys;
  if (args.part != RowPart::kValues) return copy_ranges(args);
  switch (kv_type_of(args.shape, args.side)) {
    case KvType::kF32:
      return keys ? copy_key_rows<std::uint32_t, 1>(args) : copy_value_rows<std::uint32_t, 1>(args);
    case KvType::kBf16:
      return keys ? copy_key_rows<std::uint16_t, 2>(args) : copy_value_rows<std::uint16_t, 2>(args);
    case KvType::kInt8:
    case KvType::kInt4:
      return copy_codes(args);
  }
}

std::int64_t n_tokens_in(std::span<const KvBlockRef> blocks) {
  std::int64_t n = 0;
  for (const KvBlockRef& block : blocks) n += block.n_tokens;
  return n;
}

std::vector<Extent> position_runs(std::span<const KvBlockRef> blocks) {
  std::vector<Extent> runs;
  for (const KvBlockRef& block : blocks) {
    const Extent here{block.first_position, block.first_position + block.n_tokens};
    if (!runs.empty() && runs.back().end == here.begin) {
      runs.back().end = here.end;
    } else {
      runs.push_back(here);
    }
  }
  return runs;
}

}  // namespace longhaul
