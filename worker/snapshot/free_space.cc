#include "worker/snapshot/free_space.h"

#include <fmt/format.h>

#include <system_error>

#include "base/error.h"

namespace longhaul {

void require_space(const std::filesystem::path& folder, std::size_t n_bytes) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || space.available >= n_bytes) return;  // unknown: writing will tell
  throw Error(ErrorCode::kIo,
              fmt::format("{} has {:.1f} MiB free, and saving the KV cache takes {:.1f} MiB there; "
                          "free some, or save to another folder",
                          folder.string(), static_cast<double>(space.available) / 0x1p20,
                          static_cast<double>(n_bytes) / 0x1p20));
}

}  // namespace longhaul
