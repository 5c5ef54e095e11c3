#include "model/chat/text.h"

#include <algorithm>

namespace longhaul::chat {

Text::Text(std::string bytes, Origin origin) : bytes_(std::move(bytes)) {
  if (origin == Origin::kData) mark({0, bytes_.size()});
}

void Text::mark(ByteRange range) {
  if (range.begin == range.end) return;
  if (!data_.empty() && data_.back().end == range.begin) {
    data_.back().end = range.end;
  } else {
    data_.push_back(range);
  }
}

Text Text::part(std::size_t begin, std::size_t end) const {
  Text cut;
  cut.bytes_ = bytes_.substr(begin, end - begin);
  for (const ByteRange& range : data_) {
    const std::size_t from = std::max(range.begin, begin);
    const std::size_t to = std::min(range.end, end);
    if (from < to) cut.mark({from - begin, to - begin});
  }
  return cut;
}

void Text::append(const Text& other) {
  const std::size_t offset = bytes_.size();
  bytes_ += other.bytes_;
  for (const ByteRange& range : other.data_) mark({range.begin + offset, range.end + offset});
}

void Text::append(std::string_view bytes, Origin origin) {
  const std::size_t offset = bytes_.size();
  bytes_ += bytes;
  if (origin == Origin::kData) mark({offset, bytes_.size()});
}

}  // namespace longhaul::chat
