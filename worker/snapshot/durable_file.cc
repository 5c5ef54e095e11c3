#include "worker/snapshot/durable_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "base/file.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

void sync_path(const fs::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) throw_errno("cannot open", path.string());
  const int result = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  if (result != 0) {
    errno = error;
    throw_errno("cannot sync", path.string());
  }
}

void check_digest(int result) {
  if (result != 1) throw Error(ErrorCode::kInternal, "OpenSSL cannot compute SHA-256");
}

}  // namespace

fs::path partial_path(const fs::path& path) { return path.string() + ".partial"; }

void publish_file(const fs::path& path) {
  const fs::path partial = partial_path(path);
  sync_path(partial, O_RDONLY);
  if (::rename(partial.c_str(), path.c_str()) != 0) throw_errno("cannot rename to", path.string());
  sync_path(path.has_parent_path() ? path.parent_path() : fs::path("."), O_RDONLY | O_DIRECTORY);
}

std::string file_sha256(const fs::path& path) {
  constexpr std::size_t kPieceBytes = std::size_t{16} << 20;
  const MappedFile file(path);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  check_digest(context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  for (auto rest = file.bytes(); !rest.empty();) {
    const auto piece = rest.first(std::min(kPieceBytes, rest.size()));
    check_digest(EVP_DigestUpdate(context.get(), piece.data(), piece.size()));
    rest = rest.subspan(piece.size());
  }
  std::array<unsigned char, 32> digest{};
  check_digest(EVP_DigestFinal_ex(context.get(), digest.data(), nullptr));
  std::string text;
  for (const unsigned char byte : digest) fmt::format_to(std::back_inserter(text), "{:02x}", byte);
  return text;
}

void require_space(const fs::path& folder, std::size_t n_bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= n_bytes) return;  // unknown: writing will tell
  throw Error(ErrorCode::kIo,
              fmt::format("{} has {:.1f} MiB free, and saving the KV cache takes {:.1f} MiB there; "
                          "free some, or save to another folder",
                          folder.string(), static_cast<double>(space.available) / 0x1p20,
                          static_cast<double>(n_bytes) / 0x1p20));
}

}  // namespace longhaul
