#include "tools/identify/training_room.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/sizes.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMostRanks = 4096;

}  // namespace

std::int64_t least_usable_bytes(const ClusterSpec& cluster) {
  std::int64_t least = cluster.usable_bytes({0});
  for (const Rank rank : IdRange<Rank>(cluster.n_ranks()))
    least = std::min(least, cluster.usable_bytes(rank));
  return least;
}

std::int64_t missing_bytes(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape,
                           const TrainingRoom& room) {
  return std::max<std::int64_t>(
      0, room.weight_bytes + bytes_of(part, spec, shape) - room.usable_bytes);
}

RoomChanges changes_that_fit(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape,
                             const TrainingRoom& room) {
  RoomChanges changes;
  if (missing_bytes(part, spec, shape, room) == 0) return changes;
  // Whole blocks of text in front of what is compared.
  TrainingShape other = shape;
  std::int64_t fits = 0;
  std::int64_t too_many = (shape.n_tokens - shape.n_answer) / shape.block_size + 1;
  while (too_many - fits > 1) {
    const std::int64_t middle = (fits + too_many) / 2;
    other.n_tokens = shape.n_answer + middle * shape.block_size;
    (missing_bytes(part, spec, other, room) == 0 ? fits : too_many) = middle;
  }
  if (fits > 0) changes.n_tokens = shape.n_answer + fits * shape.block_size;
  other = shape;
  while (changes.n_ranks == 0 && other.n_ranks < kMostRanks) {
    other.n_ranks *= 2;
    if (missing_bytes(part, spec, other, room) == 0) changes.n_ranks = other.n_ranks;
  }
  return changes;
}

std::string describe_room(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape,
                          const TrainingRoom& room, const LengthFlag& flag) {
  const std::int64_t step = bytes_of(part, spec, shape);
  std::string text =
      fmt::format("{} a rank with {} of weights; the smallest may fill {}: ",
                  format_byte_size(room.weight_bytes + step), format_byte_size(room.weight_bytes),
                  format_byte_size(room.usable_bytes));
  const std::int64_t missing = missing_bytes(part, spec, shape, room);
  if (missing == 0) return text + "fits\n";
  text += fmt::format("does not fit, {} are missing\n", format_byte_size(missing));
  const RoomChanges changes = changes_that_fit(part, spec, shape, room);
  if (changes.n_tokens > 0)
    text +=
        fmt::format("  - it fits with {} {}\n", flag.name, changes.n_tokens / flag.tokens_of_one);
  if (changes.n_ranks > 0)
    text += fmt::format("  - it fits on {} ranks that may fill as much\n", changes.n_ranks);
  return text;
}

}  // namespace longhaul
