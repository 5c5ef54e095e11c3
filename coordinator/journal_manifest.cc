#include "coordinator/journal_manifest.h"

#include <fmt/format.h>

#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxManifestBytes = std::size_t{64} << 20;
constexpr std::string_view kResults = "results";

std::optional<std::string> results_named_in(const Json& manifest) {
  const Json* const name = manifest.find(kResults);
  if (name == nullptr || !name->is_string()) return std::nullopt;
  return std::get<std::string>(name->value());
}

// None where the manifest is broken, which those who go on from it are told.
std::optional<std::string> results_named_in_file(const fs::path& path) {
  try {
    const auto manifest = read_manifest(path);
    return manifest ? results_named_in(*manifest) : std::nullopt;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptData) throw;
    return std::nullopt;
  }
}

}  // namespace

std::optional<Json> read_manifest(const fs::path& path) {
  std::error_code ignored;
  const std::uintmax_t size = fs::file_size(path, ignored);
  if (ignored || size == 0) return std::nullopt;
  return parse_json(read_file(path, kMaxManifestBytes), path.string());
}

bool names_results(const Json& manifest, const JournalPaths& paths) {
  return results_named_in(manifest) == paths.results.filename().string();
}

void write_manifest(const JournalPaths& paths, const Json& manifest) {
  JsonObject members{{std::string(kResults), paths.results.filename().string()}};
  for (const auto& member : std::get<JsonObject>(manifest.value()))
    if (member.first != kResults) members.push_back(member);
  replace_file(paths.manifest, to_text(Json(std::move(members))) + "\n");
}

void require_own_manifest(const JournalPaths& paths) {
  const auto other = results_named_in_file(paths.manifest);
  std::error_code ignored;
  if (!other || *other == paths.results.filename().string()) return;
  // All files of a run may have been given another name, or been copied to it.
  const fs::path others = paths.manifest.parent_path() / *other;
  if (journal_paths(others).manifest != paths.manifest || !fs::exists(others, ignored)) return;
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("{} and {} would share {} and the files named like it: choose another "
                          "output",
                          paths.results.string(), *other, paths.manifest.string()));
}

}  // namespace longhaul
