#include "cluster/wire/bytes.h"

#include <fmt/format.h>

#include "base/error.h"

namespace longhaul {

void ByteWriter::text(std::string_view value) {
  list(std::span<const char>(value.data(), value.size()));
}

std::string ByteReader::text() {
  const std::size_t n = count(1);
  const auto bytes = take(n);
  return {reinterpret_cast<const char*>(bytes.data()), n};
}

std::size_t ByteReader::count(std::size_t element_bytes) {
  const auto n = number<std::uint64_t>();
  if (n > (bytes_.size() - at_) / element_bytes) {
    fail(fmt::format("a list of {} elements does not fit the {} bytes that are left", n,
                     bytes_.size() - at_));
  }
  return static_cast<std::size_t>(n);
}

void ByteReader::finish() const {
  if (at_ != bytes_.size()) fail(fmt::format("{} bytes too many", bytes_.size() - at_));
}

void ByteReader::fail(std::string_view reason) const {
  throw Error(ErrorCode::kCorruptData, fmt::format("{}: byte {}: {}", what_, at_, reason));
}

std::span<const std::byte> ByteReader::take(std::size_t n) {
  if (n > bytes_.size() - at_)
    fail(fmt::format("{} bytes expected, {} left", n, bytes_.size() - at_));
  const auto part = bytes_.subspan(at_, n);
  at_ += n;
  return part;
}

}  // namespace longhaul
