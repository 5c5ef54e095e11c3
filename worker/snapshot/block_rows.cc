#include "worker/snapshot/block_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "worker/snapshot/block_words.h"

namespace longhaul {
namespace {

std::size_t side_at(const KvBlockShape& shape, KvSide side) {
  return side == KvSide::kKeys ? 0 : shape.k_bytes();
}

// Scales or minima of some slots: calls move(their place in a block, that in rows, bytes) for all
// that are neighbours in both.
template <typename Move>
void each_range(const KvBlockShape& shape, KvSide side, RowPart part, Extent slots,
                const Move& move) {
  const KvPartLayout layout = shape.part(kv_type_of(shape, side));
  const std::size_t begin =
      side_at(shape, side) + (part == RowPart::kScales ? layout.scales_at() : layout.minima_at());
  const std::int64_t n_tokens = row_tokens(shape, side, part);
  const std::int64_t n_each = row_elements(shape, side, part);
  const std::size_t n_bytes = row_bytes(shape, side, part);
  if (n_tokens > 1 || n_each == 1) {
    move(begin + static_cast<std::size_t>(slots.begin / n_tokens) * n_bytes, std::size_t{0},
         static_cast<std::size_t>(slots.size() / n_tokens) * n_bytes);
    return;
  }
  for (std::int64_t slot = slots.begin; slot < slots.end; ++slot) {
    for (std::int64_t group = 0; group < n_each; ++group) {
      move(begin + static_cast<std::size_t>(group * shape.block_size + slot) * sizeof(Float16),
           static_cast<std::size_t>((slot - slots.begin) * n_each + group) * sizeof(Float16),
           sizeof(Float16));
    }
  }
}

void check_slots(const KvBlockShape& shape, KvSide side, RowPart part, Extent slots) {
  const std::int64_t n_tokens = row_tokens(shape, side, part);
  if (slots.begin >= 0 && slots.end <= shape.block_size && slots.begin % n_tokens == 0 &&
      slots.size() % n_tokens == 0)
    return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("slots [{}, {}) of a block of {}, whose rows stand for {}", slots.begin,
                          slots.end, shape.block_size, n_tokens));
}

// Tokens of one side, in rows and in a block. Keys go word by word; values in groups of tokens that
// share words, of which the first and the last may be there in part: a whole group of rows then
// goes by way of a copy.
class SideOfBlock {
 public:
  SideOfBlock(const KvBlockShape& shape, KvSide side, Extent slots)
      : shape_(shape),
        side_(side),
        slots_(slots),
        words_begin_(side_at(shape, side)),
        lanes_(kv_lanes(kv_type_of(shape, side))),
        row_bytes_(row_bytes(shape, side, RowPart::kValues)) {}

  void to_rows(const std::byte* block, std::byte* rows) const {
    if (side_ == KvSide::kKeys) return keys_to_rows({shape_, slots_}, block, rows);
    each_group([&](Extent group, std::int64_t first) {
      const std::byte* words = block + words_at(first);
      std::byte* to = rows + rows_at(group.begin);
      if (group.size() == lanes_) return values_to_rows(shape_, words, to);
      std::vector<std::byte> whole(group_bytes());
      values_to_rows(shape_, words, whole.data());
      std::memcpy(to, whole.data() + in_group(group.begin - first), in_group(group.size()));
    });
  }

  void from_rows(const std::byte* rows, std::byte* block) const {
    if (side_ == KvSide::kKeys) return keys_from_rows({shape_, slots_}, rows, block);
    each_group([&](Extent group, std::int64_t first) {
      std::byte* words = block + words_at(first);
      const std::byte* from = rows + rows_at(group.begin);
      if (group.size() == lanes_) return values_from_rows(shape_, from, words);
      std::vector<std::byte> whole(group_bytes());
      values_to_rows(shape_, words, whole.data());
      std::memcpy(whole.data() + in_group(group.begin - first), from, in_group(group.size()));
      values_from_rows(shape_, whole.data(), words);
    });
  }

 private:
  // Calls use(slots that are there, first slot of the group).
  template <typename Use>
  void each_group(const Use& use) const {
    for (std::int64_t slot = slots_.begin; slot < slots_.end;) {
      const std::int64_t first = slot / lanes_ * lanes_;
      const std::int64_t end = std::min(first + lanes_, slots_.end);
      use(Extent{slot, end}, first);
      slot = end;
    }
  }
  std::size_t in_group(std::int64_t n_rows) const {
    return static_cast<std::size_t>(n_rows) * row_bytes_;
  }
  std::size_t group_bytes() const { return in_group(lanes_); }
  std::size_t rows_at(std::int64_t slot) const { return in_group(slot - slots_.begin); }
  // A group's words take as many bytes as its rows.
  std::size_t words_at(std::int64_t first) const { return words_begin_ + in_group(first); }

  const KvBlockShape& shape_;
  KvSide side_;
  Extent slots_;
  std::size_t words_begin_;  // in the block
  std::int64_t lanes_;
  std::size_t row_bytes_;
};

}  // namespace

std::vector<RowPart> row_parts(KvType type) {
  if (has_minima(type)) return {RowPart::kValues, RowPart::kScales, RowPart::kMinima};
  if (is_quantised(type)) return {RowPart::kValues, RowPart::kScales};
  return {RowPart::kValues};
}

std::int64_t row_tokens(const KvBlockShape& shape, KvSide side, RowPart part) {
  const bool has_groups = part != RowPart::kValues && side == KvSide::kKeys;
  return has_groups && quantises_groups(shape.k_type) ? kKvGroup : 1;
}

std::int64_t row_elements(const KvBlockShape& shape, KvSide side, RowPart part) {
  const KvType type = kv_type_of(shape, side);
  if (part == RowPart::kValues) {
    if (!is_quantised(type)) return shape.head_dim;
    return 4 * shape.head_dim / kv_lanes(type);  // bytes
  }
  if (!quantises_groups(type)) return 1;
  return side == KvSide::kKeys ? shape.head_dim : shape.head_dim / kKvGroup;
}

std::int64_t row_columns(const KvBlockShape& shape, KvSide side, RowPart part) {
  const bool is_vector = part != RowPart::kValues && !quantises_groups(kv_type_of(shape, side));
  return is_vector ? 0 : row_elements(shape, side, part);
}

std::size_t row_bytes(const KvBlockShape& shape, KvSide side, RowPart part) {
  if (part != RowPart::kValues)
    return static_cast<std::size_t>(row_elements(shape, side, part)) * sizeof(Float16);
  return static_cast<std::size_t>(4 * shape.head_dim / kv_lanes(kv_type_of(shape, side)));
}

std::int64_t n_closed_tokens(const KvBlockShape& shape, std::int64_t n_tokens) {
  return shape.quantises_groups() ? n_tokens / shape.block_size * shape.block_size : n_tokens;
}

Extent whole_groups(const KvBlockShape& shape, Extent tokens) {
  if (!shape.quantises_groups()) return tokens;
  const Extent whole{ceil_div(tokens.begin, kKvGroup) * kKvGroup, tokens.end / kKvGroup * kKvGroup};
  return whole.begin < whole.end ? whole : Extent{};
}

void copy_block_rows(const BlockRowsArgs& args) {
  check_slots(args.shape, args.side, args.part, args.slots);
  if (args.part != RowPart::kValues) {
    each_range(args.shape, args.side, args.part, args.slots,
               [&](std::size_t in_block, std::size_t in_rows, std::size_t n_bytes) {
                 std::memcpy(args.to + in_rows, args.block + in_block, n_bytes);
               });
    return;
  }
  SideOfBlock(args.shape, args.side, args.slots).to_rows(args.block, args.to);
}

void prefetch_block_values(const KvBlockShape& shape, KvSide side, const std::byte* block) {
  constexpr std::size_t kLine = 64;
  const std::byte* const values = block + side_at(shape, side);
  const std::size_t n_bytes =
      static_cast<std::size_t>(shape.block_size) * row_bytes(shape, side, RowPart::kValues);
  for (std::size_t at = 0; at < n_bytes; at += kLine)
    __builtin_prefetch(values + at, /*rw=*/0, /*locality=*/2);
}

void fill_block_rows(const FillBlockArgs& args) {
  check_slots(args.shape, args.side, args.part, args.slots);
  if (args.part != RowPart::kValues) {
    each_range(args.shape, args.side, args.part, args.slots,
               [&](std::size_t in_block, std::size_t in_rows, std::size_t n_bytes) {
                 std::memcpy(args.block + in_block, args.rows + in_rows, n_bytes);
               });
    return;
  }
  SideOfBlock(args.shape, args.side, args.slots).from_rows(args.rows, args.block);
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

std::vector<BlockRun> listed_runs(std::span<const KvBlockRef> blocks,
                                  std::span<const TokenPos> positions) {
  std::vector<BlockRun> runs;
  std::size_t at = 0;
  for (const KvBlockRef& block : blocks) {
    for (std::int64_t slot = 0; slot < block.n_tokens; ++slot, ++at) {
      const std::int64_t position = positions[at].value;
      if (slot > 0 && runs.back().positions().end == position) {
        ++runs.back().slots.end;
      } else {
        runs.push_back(
            {.block = block.data, .slots = {slot, slot + 1}, .first_position = position});
      }
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
