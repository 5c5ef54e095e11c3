#include "coordinator/journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/file_wait.h"
#include "base/log.h"
#include "coordinator/fingerprint.h"
#include "coordinator/journal_manifest.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

bool has_content(const fs::path& path) { return fs::exists(path) && fs::file_size(path) > 0; }

// Calls visit(line without its break, line number, offset of the line, is it the last one).
template <typename Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  std::size_t begin = 0;
  for (std::int64_t number = 1; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    visit(text.substr(begin, end - begin), number, begin, end + 1 >= text.size());
    begin = end + 1;
  }
}

// Whether a text is JSON of any kind.
bool is_json(std::string_view text, const std::string& source) {
  try {
    parse_json(text, source);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// How many bytes of the text are whole lines: without a last line that has no line break or is no
// JSON. One that is JSON of somebody else was not torn by a crash, and is refused later.
std::size_t whole_bytes(std::string_view text, const std::string& source) {
  std::size_t whole = text.size();
  for_each_line(text, [&](std::string_view line, std::int64_t, std::size_t offset, bool is_last) {
    if (is_last && !(text.ends_with('\n') && is_json(line, source))) whole = offset;
  });
  return whole;
}

void cut_torn_line(JournalFile& file) {
  std::size_t whole = 0;
  std::size_t size = 0;
  {
    const MappedFile mapped = file.map();
    size = mapped.text().size();
    whole = whole_bytes(mapped.text(), file.path().string());
  }
  if (whole == size) return;
  LONGHAUL_LOG(kWarning, kRun,
               "{}: the last line is not whole ({} bytes, from a crash or a full disk); it is cut "
               "away and its request runs again",
               file.path().string(), size - whole);
  file.cut(whole);
}

const JournalPaths& own(const JournalPaths& paths) {
  require_own_manifest(paths);
  return paths;
}

}  // namespace

JournalPaths journal_paths(const fs::path& results) {
  fs::path stem = results;
  if (stem.extension() == ".jsonl" || stem.extension() == ".json") stem.replace_extension();
  return {results, stem.string() + ".errors.jsonl", stem.string() + ".manifest.json",
          stem.string() + ".unfinished.jsonl"};
}

namespace {

// A number of the manifest of a run that would go on, behind these names.
std::optional<std::int64_t> number_in_manifest(const JournalPaths& paths, OpenMode mode,
                                               std::initializer_list<std::string_view> names) {
  if (mode == OpenMode::kOverwrite) return std::nullopt;
  const auto manifest = read_manifest(paths.manifest);
  if (!manifest) return std::nullopt;
  std::optional<JsonField> field(std::in_place, *manifest, paths.manifest.string());
  for (const std::string_view name : names)
    if (field) field = field->find(name);
  if (!field) return std::nullopt;
  return field->as_integer(0, std::numeric_limits<std::int64_t>::max());
}

}  // namespace

std::optional<std::int64_t> first_start(const JournalPaths& paths, OpenMode mode) {
  return number_in_manifest(paths, mode, {"created"});
}

std::optional<std::uint64_t> first_seed(const JournalPaths& paths, OpenMode mode) {
  const auto seed =
      number_in_manifest(paths, mode, {"fingerprint", "settings", "default_sampling", "seed"});
  if (!seed) return std::nullopt;
  return static_cast<std::uint64_t>(*seed);
}

void JournalFile::holds(std::string_view text) { hash_.add(text); }

MappedFile JournalFile::map() const {
  file_.require_unchanged();
  try {
    return MappedFile(path());
  } catch (const Error&) {
    file_.require_unchanged();  // it may have gone just now
    throw;
  }
}

void JournalFile::clear() { cut(0); }

void JournalFile::cut(std::size_t size) {
  file_.truncate(size);
  file_.sync();
}

void JournalFile::add(std::string_view line) {
  file_.append(line);
  file_.sync();
  hash_.add(line);
}

void JournalFile::verify() const {
  const FileWait wait(FileUse::kReadingAtWork, path());
  if (sha256_of(map().text()) == hash_.so_far()) return;
  throw Error(ErrorCode::kIo,
              fmt::format("{} does not hold what was written to it: somebody else wrote to it, or "
                          "the disk is broken",
                          path().string()));
}

Journal::Journal(const JournalPaths& paths, const Json& manifest, OpenMode mode, EditedLines edited)
    : paths_(own(paths)), results_(paths_.results) {
  if (mode == OpenMode::kOverwrite) {
    new_manifest_ = manifest;
    return;
  }
  try {
    open(manifest, edited);
  } catch (...) {
    remove_if_empty();
    throw;
  }
}

void Journal::start() {
  if (!new_manifest_) return;
  results_.clear();
  fs::remove(paths_.errors);
  fs::remove(paths_.unfinished);
  write_manifest(paths_, *new_manifest_);
  new_manifest_.reset();
  made_manifest_ = true;
}

void Journal::open(const Json& manifest, EditedLines edited) {
  const FileWait wait(FileUse::kReadingBeforeWork, paths_.results);
  check_manifest(manifest);
  cut_torn_line(results_);
  read_lines(results_, /*failed=*/false, edited);
  if (has_content(paths_.errors)) {
    errors_.emplace(paths_.errors);
    cut_torn_line(*errors_);
    read_lines(*errors_, /*failed=*/true, edited);
  }
}

void Journal::check_manifest(const Json& manifest) {
  const auto before = read_manifest(paths_.manifest);
  if (!before) {
    for (const fs::path& path : {paths_.results, paths_.errors}) {
      if (!has_content(path)) continue;
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("{} has content, but there is no {} that says what made it; choose "
                              "another output, or --overwrite to start over",
                              path.string(), paths_.manifest.string()));
    }
    fs::remove(paths_.unfinished);
    write_manifest(paths_, manifest);
    made_manifest_ = true;
    return;
  }
  const auto changes =
      differences(JsonField(*before, paths_.manifest.string()).at("fingerprint").json(),
                  *manifest.find("fingerprint"));
  if (changes.empty()) {
    if (!names_results(*before, paths_)) write_manifest(paths_, *before);
    return;
  }
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("{} holds results of another model or other settings:\n  {}\nRun with "
                          "the same ones to continue, choose another output, or --overwrite to "
                          "start over",
                          paths_.results.string(), fmt::join(changes, "\n  ")));
}

void Journal::read_lines(JournalFile& file, bool failed, EditedLines edited) {
  const MappedFile mapped = file.map();
  std::int64_t n_unverified = 0;
  for_each_line(mapped.text(), [&](std::string_view line, std::int64_t number, std::size_t, bool) {
    if (failed && is_bad_line_record(line)) {
      bad_lines_.push_back(std::string(line) + "\n");
      return;
    }
    const std::string source = fmt::format("{}:{}", file.path().string(), number);
    RequestIdentity identity = identity_of_line(line, source);
    const LineState state = state_of_line(line);
    if (state == LineState::kEdited && edited == EditedLines::kRefuse) {
      throw Error(
          ErrorCode::kFailedPrecondition,
          fmt::format("{}: this line (\"{}\") was changed after it was written: its checksum "
                      "is of another text. --accept-edited keeps such lines as they are; "
                      "remove the line to have its request answered again",
                      source, identity.custom_id));
    }
    if (state == LineState::kUnverified) ++n_unverified;
    std::string id = identity.custom_id;
    Known known{std::move(identity), failed, failed && is_for_want_of_memory(line)};
    if (!known_.emplace(std::move(id), std::move(known)).second) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: its custom_id has a line already, in this file or in {}; remove "
                              "one of them",
                              source, paths_.results.string()));
    }
    has_lines_ = true;
  });
  if (n_unverified > 0) {
    LONGHAUL_LOG(kWarning, kRun,
                 "{}: {} lines have no checksum (an early release wrote them): whether they were "
                 "edited cannot be told",
                 file.path().string(), n_unverified);
  }
  file.holds(mapped.text());
}

Journal::ToDo Journal::plan(const std::vector<RequestIdentity>& requests, bool retry_errors) {
  ToDo todo;
  std::vector<std::string> changed;
  std::vector<std::string> retried;
  std::int64_t n_found = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto at = known_.find(requests[i].custom_id);
    n_found += at == known_.end() ? 0 : 1;
    if (at == known_.end()) {
      todo.requests.push_back(i);
    } else if (at->second.failed && (retry_errors || at->second.may_work_now)) {
      retried.push_back(requests[i].custom_id);  // also with another body: it was corrected
      todo.requests.push_back(i);
    } else if (at->second.identity != requests[i]) {
      const bool same_body = at->second.identity.body_sha256 == requests[i].body_sha256;
      changed.push_back(
          fmt::format("\"{}\" ({})", requests[i].custom_id,
                      same_body ? "the content of its documents changed" : "its body changed"));
    } else {
      ++(at->second.failed ? todo.n_failed : todo.n_done);
    }
  }
  if (!changed.empty()) {
    const std::size_t n = changed.size();
    if (n > 5) changed.resize(5);
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} holds results of {} requests that are not the same any more: {}{}. "
                            "Give changed requests new custom_ids, choose another output, or "
                            "--overwrite to start over",
                            paths_.results.string(), n, fmt::join(changed, ", "),
                            n > changed.size() ? ", ..." : ""));
  }
  todo.n_others = std::ssize(known_) - n_found;
  if (!retried.empty()) drop_error_lines(retried);
  return todo;
}

void Journal::drop_error_lines(const std::vector<std::string>& custom_ids) {
  const std::unordered_set<std::string> dropped(custom_ids.begin(), custom_ids.end());
  std::string kept;
  {
    const MappedFile file(paths_.errors);
    for_each_line(file.text(), [&](std::string_view line, std::int64_t, std::size_t, bool) {
      if (is_bad_line_record(line) ||
          !dropped.contains(identity_of_line(line, paths_.errors.string()).custom_id))
        (kept += line) += '\n';
    });
  }
  replace_errors(kept);
  for (const std::string& id : custom_ids) known_.erase(id);
}

void Journal::replace_errors(const std::string& text) {
  errors_.reset();  // the file that it holds open is about to be replaced
  replace_file(paths_.errors, text);
  errors_.emplace(paths_.errors);
  errors_->holds(text);
}

void Journal::set_bad_lines(const std::vector<std::string>& records) {
  if (records == bad_lines_) return;
  std::string kept;
  if (has_content(paths_.errors)) {
    const MappedFile file(paths_.errors);
    for_each_line(file.text(), [&](std::string_view line, std::int64_t, std::size_t, bool) {
      if (!is_bad_line_record(line)) (kept += line) += '\n';
    });
  }
  for (const std::string& record : records) kept += record;
  replace_errors(kept);
  bad_lines_ = records;
  has_lines_ = has_lines_ || !records.empty();
}

void Journal::add_result(std::string_view line) {
  results_.add(line);
  has_lines_ = true;
}

void Journal::add_error(std::string_view line) {
  if (!errors_) errors_.emplace(paths_.errors);
  errors_->add(line);
  has_lines_ = true;
}

void Journal::verify() const {
  if (new_manifest_) return;  // nothing was started
  results_.verify();
  if (errors_) errors_->verify();
}

void Journal::remove_if_empty() {
  if (has_lines_) return;
  std::error_code ignored;
  if (results_.was_created()) fs::remove(paths_.results, ignored);
  if (made_manifest_) fs::remove(paths_.manifest, ignored);
}

}  // namespace longhaul
