#include "tools/support_report.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/event_log.h"
#include "base/file.h"
#include "coordinator/journal.h"
#include "tools/doctor/rank_facts.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{256} << 20;  // of one log

Json host_facts() {
  utsname kernel{};
  ::uname(&kernel);
  Json facts = to_json(facts_of_this_rank());
  JsonObject all{
      {"kernel", fmt::format("{} {} {}", kernel.sysname, kernel.release, kernel.machine)}};
  for (auto& [name, value] : std::get<JsonObject>(facts.value())) all.emplace_back(name, value);
  return all;
}

std::vector<fs::path> logs_in(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("--log-dir {}: there is no such folder", folder.string()));
  }
  std::vector<fs::path> logs;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(".jsonl")) logs.push_back(entry.path());
  }
  std::sort(logs.begin(), logs.end());
  if (logs.empty()) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("--log-dir {}: there are no logs (rank-0000.jsonl) in it", folder.string()));
  }
  return logs;
}

std::string manifest_beside(const fs::path& results) {
  const fs::path manifest = journal_paths(results).manifest;
  std::error_code ignored;
  if (!fs::exists(manifest, ignored)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("--results {}: there is no {} beside it", results.string(),
                            manifest.filename().string()));
  }
  return read_file(manifest, kMostBytes);
}

// The last plan that rank 0 told of; null: none.
Json plan_in(std::string_view log) {
  Json plan;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    if (line.find("\"event\":\"plan\"") == std::string_view::npos) continue;
    if (const Json parsed = parse_json(line, "log"); const Json* found = parsed.find("plan"))
      plan = *found;
  }
  return plan;
}

}  // namespace

std::string known_events(std::string_view log) {
  std::string known;
  std::size_t n_unknown = 0;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    try {
      const Json event = parse_json(line, "log");
      if (event.find("ts") != nullptr && event.find("event") != nullptr) {
        known += line;
        known += '\n';
        continue;
      }
    } catch (const Error&) {  // cut off, or somebody else's
    }
    ++n_unknown;
  }
  if (n_unknown > 0) known += fmt::format("{{\"lines_left_out\":{}}}\n", n_unknown);
  return known;
}

std::string status_without_messages(std::string_view json) {
  Json status = parse_json(json, "status");
  if (!status.is_object()) throw Error(ErrorCode::kCorruptData, "the status is no object");
  for (auto& [name, value] : std::get<JsonObject>(status.value())) {
    if (name != "errors" || !value.is_array()) continue;
    for (Json& error : std::get<JsonArray>(value.value())) {
      if (!error.is_object()) continue;
      std::erase_if(std::get<JsonObject>(error.value()),
                    [](const auto& member) { return member.first == "message"; });
    }
  }
  return to_text(status) + "\n";
}

void write_support_report(const fs::path& folder, const SupportSources& sources) {
  require(!fs::exists(folder),
          fmt::format("{} is there already: give -o another name", folder.string()));
  const std::vector<fs::path> logs =
      sources.log_dir.empty() ? std::vector<fs::path>() : logs_in(sources.log_dir);
  const std::string manifest = sources.results.empty() ? "" : manifest_beside(sources.results);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Error(ErrorCode::kIo,
                fmt::format("cannot make {}: {}", folder.string(), error.message()));
  replace_file(folder / "host.json", to_text(host_facts()) + "\n");
  for (const fs::path& log : logs) {
    const std::string text = read_file(log, kMostBytes);
    replace_file(folder / log.filename(), known_events(text));
    const Json plan = plan_in(text);
    if (!plan.is_null()) replace_file(folder / "plan.json", to_text(plan) + "\n");
  }
  if (!sources.results.empty()) replace_file(folder / "manifest.json", manifest);
  if (!sources.status.empty())
    replace_file(folder / "status.json", status_without_messages(sources.status));
}

bool is_report_archive(const fs::path& output) {
  std::string name = output.filename().string();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name.ends_with(".tar.gz") || name.ends_with(".tgz")) {
    const fs::path folder = output.has_parent_path() ? output.parent_path() : fs::path(".");
    require(fs::is_directory(folder),
            fmt::format("-o {}: there is no folder {}", output.string(), folder.string()));
    return true;
  }
  for (const std::string_view other : {".zip", ".tar", ".gz", ".xz", ".bz2", ".zst", ".7z", ".rar",
                                       ".txz", ".tbz", ".tbz2", ".tzst"}) {
    require(!name.ends_with(other),
            fmt::format("-o {}: no {} is written; give NAME.tar.gz, or the name of a folder",
                        output.string(), other));
  }
  return false;
}

}  // namespace longhaul
