// Text that knows which of its bytes came from a conversation and which from the template, whatever
// was joined, cut or stripped on the way. So a special token that a user wrote stays text, while
// the template's own ones count. Pure.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::chat {

// Half-open.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

enum class Origin { kTemplate, kData };

class Text {
 public:
  Text() = default;
  Text(std::string bytes, Origin origin);

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // What came from the conversation: in order, disjoint, not touching.
  const std::vector<ByteRange>& data() const { return data_; }
  // Of the whole: data as soon as one byte is.
  Origin origin() const { return data_.empty() ? Origin::kTemplate : Origin::kData; }

  Text part(std::size_t begin, std::size_t end) const;
  void append(const Text& other);
  void append(std::string_view bytes, Origin origin);

 private:
  void mark(ByteRange range);
  std::string bytes_;
  std::vector<ByteRange> data_;
};

}  // namespace longhaul::chat
