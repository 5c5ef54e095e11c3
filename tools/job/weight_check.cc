#include "tools/job/weight_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "base/sha256.h"
#include "base/sizes.h"
#include "model/weight_index.h"
#include "tools/job/input_errors.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kListName = "longhaul.sha256";
constexpr std::size_t kMaxListBytes = std::size_t{16} << 20;

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_weights(const fs::path& file) { return file.extension() == ".safetensors"; }

// The files that a model's answers hang on, sorted by name.
std::set<fs::path> files_of(const fs::path& folder) {
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (is_weights(entry.path())) files.insert(entry.path());
  }
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json", "chat_template.jinja", kWeightIndexFile}) {
    std::error_code ignored;
    if (fs::exists(folder / name, ignored)) files.insert(folder / name);
  }
  return files;
}

std::map<std::string, std::string> known_checksums(const fs::path& folder, fs::path list) {
  std::error_code ignored;
  if (list.empty() && fs::exists(folder / kListName, ignored)) list = folder / kListName;
  std::map<std::string, std::string> known;
  if (!list.empty()) {
    const std::string text = read_input([&] { return read_file(list, kMaxListBytes); });
    for (auto& [name, sha256] : parse_checksums(text, list.string())) {
      known.emplace(std::move(name), std::move(sha256));
    }
    return known;
  }
  for (const fs::path& file : files_of(folder)) {
    if (auto sha256 = hub_sha256(file)) known.emplace(file.filename().string(), *sha256);
  }
  return known;
}

}  // namespace

std::vector<FileChecksum> checksums_of(const fs::path& model_folder) {
  std::vector<FileChecksum> checksums;
  for (const fs::path& file : files_of(model_folder))
    checksums.push_back({file.filename().string(), file_sha256(file)});
  return checksums;
}

std::string to_text(const std::vector<FileChecksum>& checksums) {
  std::string text;
  for (const FileChecksum& file : checksums)
    text += fmt::format("{}  {}\n", file.sha256, file.name);
  return text;
}

std::vector<FileChecksum> parse_checksums(std::string_view text, std::string_view source) {
  std::vector<FileChecksum> checksums;
  std::map<std::string, int> first_lines;  // by file
  int number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.starts_with('#')) continue;
    // sha256sum writes a space or, for binary files, a star before the name.
    const bool is_line =
        line.size() > 66 && line[64] == ' ' && (line[65] == ' ' || line[65] == '*');
    if (!is_line || !is_sha256(line.substr(0, 64))) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}:{}: expected 64 hexadecimal digits, two spaces and the name of a "
                              "file; `longhaul checksum` writes such lines",
                              source, number));
    }
    std::string name(line.substr(66));
    if (const auto [first, is_new] = first_lines.emplace(name, number); !is_new) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}:{}: {} is listed already, in line {}; remove the line that is "
                              "not of the files as they should be",
                              source, number, name, first->second));
    }
    checksums.push_back({std::move(name), std::string(line.substr(0, 64))});
  }
  return checksums;
}

std::optional<std::string> hub_sha256(const fs::path& file) {
  std::error_code error;
  if (const fs::path target = fs::read_symlink(file, error);
      !error && target.parent_path().filename() == "blobs" &&
      is_sha256(target.filename().string())) {
    return target.filename().string();
  }
  const fs::path metadata = file.parent_path() / ".cache" / "huggingface" / "download" /
                            (file.filename().string() + ".metadata");
  if (!fs::exists(metadata, error)) return std::nullopt;
  constexpr std::size_t kMost = 4096;
  const std::string text = read_file(metadata, kMost);  // commit, etag, time: a line each
  const std::size_t begin = text.find('\n') + 1;
  std::string etag = text.substr(begin, text.find('\n', begin) - begin);
  return is_sha256(etag) ? std::optional(std::move(etag)) : std::nullopt;
}

void verify_weights(const fs::path& model_folder, const fs::path& list) {
  const auto known = known_checksums(model_folder, list);
  std::vector<std::string> unknown;
  std::vector<std::string> changed;
  for (const fs::path& file : files_of(model_folder)) {
    const std::string name = file.filename().string();
    const auto at = known.find(name);
    if (at == known.end()) {
      if (is_weights(file)) unknown.push_back(name);
    } else if (const std::string now = file_sha256(file); now != at->second) {
      changed.push_back(fmt::format("{}: SHA-256 should be {}, is {}", name, at->second, now));
    }
  }
  for (const auto& [name, sha256] : known) {
    std::error_code ignored;
    if (!fs::exists(model_folder / name, ignored)) changed.push_back(name + " is not there");
  }
  if (!changed.empty()) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("{} does not hold the files that it should:\n  {}\nDownload or copy them "
                    "again",
                    model_folder.string(), fmt::join(changed, "\n  ")));
  }
  if (!unknown.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--verify-weights: what {} should hold is not known: neither the hub's "
                            "cache nor {} says it. Make the list once, while the files are good: "
                            "longhaul checksum -m {} -o {}",
                            fmt::join(unknown, ", "), (model_folder / kListName).string(),
                            model_folder.string(), (model_folder / kListName).string()));
  }
}

void verify_if_asked(const JobConfig& config, const ModelSource* model) {
  if (!config.verify_weights || model == nullptr || model->folder() == nullptr) return;
  const ModelFolder& folder = *model->folder();
  if (!config.quiet) {
    print_stderr("longhaul: verifying {} of weights in {}\n",
                 format_byte_size(static_cast<std::int64_t>(folder.weight_bytes())),
                 folder.path().string());
  }
  verify_weights(folder.path(), config.checksums);
}

}  // namespace longhaul
