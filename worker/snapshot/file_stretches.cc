#include "worker/snapshot/file_stretches.h"

#include <algorithm>
#include <utility>

namespace longhaul {
namespace {

// To read on over so much costs less than another request.
constexpr std::int64_t kWorthReading = std::int64_t{64} << 10;

class Stretches {
 public:
  explicit Stretches(bool is_whole) : is_whole_(is_whole) {}

  void add_chunk(const SavedChunk& chunk) {
    const Extent bytes{chunk.offset, chunk.offset + chunk.n_bytes};
    pass_to(bytes.begin, bytes.end);
    stretches_.back().chunks.push_back(&chunk);
    stretches_.back().bytes.end = std::max(stretches_.back().bytes.end, bytes.end);
    at_ = std::max(at_, bytes.end);
  }

  // What lies before `next`, where a chunk begins that ends at `end`, or the file does.
  void pass_to(std::int64_t next, std::int64_t end) {
    if (!is_whole_) {
      if (stretches_.empty() || next - at_ > kWorthReading || !has_room_to(end)) begin_at(next);
      return;
    }
    if (stretches_.empty()) begin_at(0);
    while (at_ < next) {
      if (!has_room_to(at_ + 1)) begin_at(at_);
      FileStretch& stretch = stretches_.back();
      const Extent gap{at_, std::min(next, stretch.bytes.begin + kStretchBytes)};
      stretch.between.push_back(gap);
      stretch.bytes.end = at_ = gap.end;
    }
    if (!has_room_to(end) && stretches_.back().bytes.end > stretches_.back().bytes.begin)
      begin_at(next);
  }

  std::vector<FileStretch> take() { return std::move(stretches_); }

 private:
  bool has_room_to(std::int64_t end) const {
    return end - stretches_.back().bytes.begin <= kStretchBytes;
  }
  void begin_at(std::int64_t begin) {
    stretches_.push_back({.bytes = {begin, begin}, .chunks = {}, .between = {}});
  }

  bool is_whole_;
  std::vector<FileStretch> stretches_;
  std::int64_t at_ = 0;  // the end of what was passed
};

}  // namespace

std::vector<FileStretch> file_stretches(std::vector<const SavedChunk*> chunks,
                                        std::optional<std::int64_t> n_bytes) {
  std::sort(chunks.begin(), chunks.end(),
            [](const SavedChunk* a, const SavedChunk* b) { return a->offset < b->offset; });
  Stretches stretches(n_bytes.has_value());
  for (const SavedChunk* chunk : chunks) stretches.add_chunk(*chunk);
  if (n_bytes) stretches.pass_to(*n_bytes, *n_bytes);
  return stretches.take();
}

}  // namespace longhaul
