// The part of saved_header.h that looks at files as a whole.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"
#include "worker/snapshot/fill_from_chunks.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {

namespace fs = std::filesystem;

std::int64_t SavedHeader::n_bytes() const {
  std::error_code error;
  const auto own = fs::file_size(master, error);
  std::int64_t n = error ? 0 : static_cast<std::int64_t>(own);
  for (const WrittenFile& part : parts) n += part.n_bytes;
  return n;
}

std::string sha256_of_tokens(std::span<const std::int32_t> tokens) {
  return sha256_of({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
}

std::optional<fs::path> master_of_part(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::size_t end = name.find(".part-");
  if (end == std::string::npos) return std::nullopt;
  return file.parent_path() / (name.substr(0, end) + ".h5");
}

std::vector<fs::path> saved_masters(const fs::path& folder) {
  std::vector<fs::path> masters;
  std::error_code error;
  auto entry = fs::directory_iterator(folder, error);
  if (error == std::errc::no_such_file_or_directory) return {};
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".h5" && !master_of_part(entry->path()))
      masters.push_back(entry->path());
  }
  if (error) {
    throw Error(is_about_the_name(error.value()) ? ErrorCode::kInvalidArgument : ErrorCode::kIo,
                fmt::format("cannot read the folder {}: {}", folder.string(), error.message()));
  }
  std::sort(masters.begin(), masters.end());
  return masters;
}

namespace {

[[noreturn]] void refuse(const SavedHeader& header, const WrittenFile& part,
                         const std::string& what) {
  const std::string master = header.master.filename().string();
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{}, which {} is made of, {}: put back a copy that is whole; without one "
                          "{} cannot be used, and the document is to be read again",
                          (header.folder() / part.name).string(), master, what, master));
}

}  // namespace

void check_part_size(const SavedHeader& header, const WrittenFile& part) {
  if (part.name.find('/') != std::string::npos) refuse(header, part, "lies in another folder");
  std::error_code error;
  const auto n_bytes = fs::file_size(header.folder() / part.name, error);
  if (error) refuse(header, part, "is missing");
  if (static_cast<std::int64_t>(n_bytes) != part.n_bytes)
    refuse(header, part, fmt::format("has {} bytes in place of {}", n_bytes, part.n_bytes));
}

void check_part(const SavedHeader& header, const WrittenFile& part) {
  check_part_size(header, part);
  if (header.version >= kCacheFileVersion) return check_chunks(header, part);
  if (file_sha256(header.folder() / part.name) != part.sha256)
    refuse(header, part, "is damaged: its SHA-256 is wrong");
}

}  // namespace longhaul
