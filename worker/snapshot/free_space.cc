#include "worker/snapshot/free_space.h"

#include <fmt/format.h>

#include <system_error>

#include "base/error.h"
#include "base/sizes.h"

namespace longhaul {

void require_space(const std::filesystem::path& folder, std::size_t n_bytes) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || space.available >= n_bytes) return;  // unknown: writing will tell
  throw Error(
      ErrorCode::kIo,
      fmt::format("{} has {} free, and saving the KV cache takes {} there; free some, or "
                  "save to another folder",
                  folder.string(), format_byte_size(static_cast<std::int64_t>(space.available)),
                  format_byte_size(static_cast<std::int64_t>(n_bytes))));
}

}  // namespace longhaul
