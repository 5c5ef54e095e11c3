// The blocks of one head of an empty cache that saved rows go to. Private to this folder.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/device/device.h"
#include "worker/kv/sequence_cache.h"
#include "worker/snapshot/rows_to_blocks.h"

namespace longhaul {

// The tokens that a method chose of a head.
struct ChosenTokens {
  std::vector<std::int64_t> positions;  // ascending
  std::vector<SeenBy> seen_by;          // of each; none: all query heads see all
};

struct HeadToFillArgs {
  SequenceCache& cache;
  LayerId layer;
  KvHeadId kv_head;
  std::int64_t n_tokens = 0;
  StreamRef stream = StreamRef::cpu();
  std::function<bool(std::int64_t block)> is_home;
  std::optional<ChosenTokens> chosen = std::nullopt;  // of a head of which a method chose tokens
  // Of a head that merges tokens: how many slots it has. Blocks hold these, and not positions.
  std::optional<std::int64_t> n_slots = std::nullopt;
};

// The failure where the cache's pool has no block for the head's tokens from `position` on.
[[noreturn]] void throw_no_block(const HeadToFillArgs& args, std::int64_t position);

// Those of the head's blocks that some later query sees and that are at home here; of chosen tokens
// those whose blocks were at home here before they were chosen; of types that quantise groups of
// tokens the closed ones (open_rows.h). They are filled on the host; of a GPU they are copied there
// afterwards.
class HeadToFill {
 public:
  // Takes the blocks from the cache's pool; throws kOutOfMemory.
  explicit HeadToFill(const HeadToFillArgs& args);

  const KvBlockShape& shape() const { return *shape_; }
  std::span<const BlockToFill> blocks() const { return blocks_; }
  void finish();  // they are filled

 private:
  void take_blocks(const HeadToFillArgs& args);
  bool hold_chosen(const HeadToFillArgs& args);
  void move_to_host();

  StreamRef stream_;
  const KvBlockShape* shape_;
  std::vector<BlockToFill> blocks_;
  std::vector<std::byte*> on_device_;  // of the same blocks, on a GPU
  std::vector<std::byte> memory_;
};

}  // namespace longhaul
