#include "worker/snapshot/seal.h"

#include <fmt/format.h>

#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"

namespace longhaul {
namespace {

constexpr std::string_view kTitle = "longhaul-kv sealed; SHA-256 from byte 512 on: ";

std::string seal_of(std::string_view sealed) {
  std::string seal(kTitle);
  seal += sha256_of(sealed) + "\n";
  seal.resize(kSealBytes, '\0');
  return seal;
}

}  // namespace

void seal_file(const std::filesystem::path& path) {
  const std::string seal = seal_of(MappedFile(path).text().substr(kSealBytes));
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.write(seal.data(), static_cast<std::streamsize>(seal.size()));
  file.close();
  if (!file) throw Error(ErrorCode::kIo, fmt::format("cannot write {}", path.string()));
}

bool check_seal(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string_view text = file.text();
  // A file without a seal begins as HDF5's files do.
  if (text.starts_with("\x89HDF\r\n\x1a\n")) return false;
  if (text.size() < kSealBytes || text.substr(0, kSealBytes) != seal_of(text.substr(kSealBytes))) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} is damaged, or no file of saved caches: its checksum is wrong",
                            path.string()));
  }
  return true;
}

}  // namespace longhaul
