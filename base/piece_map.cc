#include "base/piece_map.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace longhaul {

PieceMap::PieceMap(std::size_t bytes) : bytes_(bytes / kAlignment * kAlignment) {
  if (bytes_ > 0) gaps_[0] = bytes_;
}

std::optional<std::size_t> PieceMap::take(std::size_t bytes) {
  bytes = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  auto best = gaps_.end();
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second < bytes) continue;
    if (best == gaps_.end() || gap->second < best->second) best = gap;
  }
  if (best == gaps_.end()) return std::nullopt;
  const auto [offset, size] = *best;
  gaps_.erase(best);
  if (size > bytes) gaps_[offset + bytes] = size - bytes;
  taken_[offset] = bytes;
  bytes_taken_ += bytes;
  most_taken_ = std::max(most_taken_, bytes_taken_);
  return offset;
}

void PieceMap::give_back(std::size_t offset) {
  const auto piece = taken_.find(offset);
  LONGHAUL_ASSERT(piece != taken_.end());
  std::size_t begin = offset;
  std::size_t end = offset + piece->second;
  bytes_taken_ -= piece->second;
  taken_.erase(piece);
  auto after = gaps_.lower_bound(begin);
  if (after != gaps_.end() && after->first == end) {
    end += after->second;
    after = gaps_.erase(after);
  }
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      gaps_.erase(before);
    }
  }
  gaps_[begin] = end - begin;
}

}  // namespace longhaul
