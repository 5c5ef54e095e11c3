// Writing and reading of the bytes of messages: little-endian, fixed widths, every read checked
// against what is left. A message that is too short, too long or absurd throws kCorruptData;
// nothing is allocated before its size is known to be there.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace longhaul {

static_assert(std::endian::native == std::endian::little, "messages are little-endian");

class ByteWriter {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T>
  void number(T value) { add(&value, sizeof value); }
  void text(std::string_view value);  // length, then bytes
  template <typename T>
  requires std::is_arithmetic_v<T>
  void list(std::span<const T> values) {
    number(static_cast<std::uint64_t>(values.size()));
    add(values.data(), values.size_bytes());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void add(const void* data, std::size_t n) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + n);
    if (n > 0) std::memcpy(bytes_.data() + at, data, n);
  }
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  // `what` names the message in errors.
  ByteReader(std::span<const std::byte> bytes, std::string_view what)
      : bytes_(bytes), what_(what) {}

  template <typename T>
  requires std::is_arithmetic_v<T> T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text();
  // The length of a list whose elements take at least `element_bytes` each.
  std::size_t count(std::size_t element_bytes);
  template <typename T>
  requires std::is_arithmetic_v<T> std::vector<T> list() {
    std::vector<T> values(count(sizeof(T)));
    const auto bytes = take(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  // Throws unless everything was read.
  void finish() const;
  [[noreturn]] void fail(std::string_view reason) const;

 private:
  std::span<const std::byte> take(std::size_t n);
  std::span<const std::byte> bytes_;
  std::string_view what_;
  std::size_t at_ = 0;
};

}  // namespace longhaul
