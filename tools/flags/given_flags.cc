#include "tools/flags/given_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// Of each host or rank; or read and written by rank 0 alone.
constexpr std::array kMayDiffer = std::to_array<std::string_view>(
    {"threads",   "device",       "control-address", "trace",
     "log-level", "log-file",     "report",          "no-progress",
     "quiet",     "verbose",      "input-file",      "file",
     "prompt",    "output-file",  "output",          "save-kv",
     "model",     "haystack",     "checksums",       "interfaces",
     "end-time",  "save-cluster", "status",          "status-token-file"});
// What they hold must be equal, where it can be read.
constexpr std::array<std::string_view, 2> kContents = {"head-profile", "chat-template"};
// That they are given must be equal: rank 0 reads them.
constexpr std::array<std::string_view, 2> kPaths = {"cluster", "plan"};

template <std::size_t kSize>
bool is_in(const std::array<std::string_view, kSize>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Null: this host does not have it, and there is nothing to compare.
Json content_of(const fs::path& path) {
  std::string hashes;
  try {
    if (!fs::is_directory(path)) return file_sha256(path);
    for (const char* name : {"full_attention_heads.tsv", "config.json"})
      if (fs::exists(path / name)) hashes += file_sha256(path / name);
  } catch (const std::exception&) {
    return nullptr;
  }
  return sha256_of(hashes);
}

}  // namespace

Json given_flags(const CLI::App& command) {
  JsonObject given;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    if (is_in(kMayDiffer, name)) continue;
    const std::vector<std::string> results = option->reduced_results();
    if (is_in(kPaths, name)) {
      given.emplace_back(name, "given");
    } else if (is_in(kContents, name)) {
      given.emplace_back(name, content_of(results.front()));
    } else {
      given.emplace_back(name, fmt::format("{}", fmt::join(results, " ")));
    }
  }
  std::sort(given.begin(), given.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return given;
}

bool is_on_command_line(const CLI::App& command, const std::string& flag) {
  const std::vector<CLI::Option*>& parsed = command.parse_order();
  return std::find(parsed.begin(), parsed.end(), command.get_option(flag)) != parsed.end();
}

}  // namespace longhaul
