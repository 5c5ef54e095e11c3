#include "tools/flags/sizes.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/sizes.h"

namespace longhaul {

std::size_t parse_byte_size(std::string_view text, std::string_view flag) {
  if (const auto bytes = byte_size_from(text)) return static_cast<std::size_t>(*bytes);
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: '{}' is not a size; write a number with K, M, G or T (powers of 1024) or "
                  "KB, MB, GB, TB (of 1000), such as 8G or 512M",
                  flag, text));
}

}  // namespace longhaul
