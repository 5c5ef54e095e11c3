#include "tools/batch_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "tools/job/input_errors.h"
#include "tools/job/stop_signal.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

ParsedRequests parse_input(const fs::path& input, const std::string& source,
                           const TextLimits& texts) {
  constexpr std::size_t kMost = std::size_t{64} << 30;
  return parse_requests(read_input([&] {
                          return input == "-"
                                     ? read_standard_input(kMost, stop_requested)
                                     : read_file_patiently(input, kMost, patience_of(texts));
                        }),
                        source);
}

void sort_by_line(std::vector<Problem>& problems) {
  std::stable_sort(problems.begin(), problems.end(),
                   [](const Problem& a, const Problem& b) { return a.line < b.line; });
}

std::string listed(const InputBatch& batch, std::size_t n_shown) {
  std::string text;
  const std::size_t n = batch.problems.size();
  for (std::size_t i = 0; i < std::min(n, n_shown); ++i)
    text += fmt::format("  {}\n", describe(batch.problems[i], batch.source));
  if (n > n_shown) text += fmt::format("  and {} more\n", n - n_shown);
  return text;
}

std::string count_of(std::size_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

// Of several problems of a line, one that says all.
void join_problems(std::vector<Problem>& problems) {
  std::vector<Problem> joined;
  for (Problem& problem : problems) {
    if (!joined.empty() && joined.back().line == problem.line) {
      joined.back().message += "; " + problem.message;
    } else {
      joined.push_back(std::move(problem));
    }
  }
  problems = std::move(joined);
}

}  // namespace

InputBatch read_batch(const fs::path& input, const TextLimits& texts) {
  InputBatch batch;
  const bool is_file = input != "-";
  batch.source = is_file ? input.string() : "standard input";
  batch.folder = is_file && input.has_parent_path() ? input.parent_path() : fs::path(".");
  ParsedRequests parsed = parse_input(input, batch.source, texts);
  if (parsed.requests.empty() && parsed.problems.empty())
    throw Error(ErrorCode::kCorruptData, batch.source + " holds no requests");
  batch.requests = std::move(parsed.requests);
  batch.problems = std::move(parsed.problems);
  batch.documents = check_documents(batch.requests, batch.folder, texts);
  for (const Problem& warning : batch.documents.warnings)
    print_stderr("longhaul: warning: {}\n", describe(warning, batch.source));
  std::vector<Problem>& missing = batch.documents.problems;
  batch.problems.insert(batch.problems.end(), std::make_move_iterator(missing.begin()),
                        std::make_move_iterator(missing.end()));
  missing.clear();
  sort_by_line(batch.problems);
  for (std::size_t i = 0; i < batch.requests.size(); ++i) {
    batch.identities.push_back(
        {batch.requests[i].custom_id, batch.requests[i].body_sha256, batch.documents.digests[i]});
  }
  return batch;
}

void add_missing_templates(const PreparationConfig& preparation, InputBatch& batch) {
  if (preparation.chat != nullptr) return;
  for (const Request& request : batch.requests) {
    if (request.chat() == nullptr) continue;
    batch.problems.push_back({request.line, preparation.no_chat_reason, request.custom_id});
  }
  sort_by_line(batch.problems);
}

void refuse_problems(const InputBatch& batch) {
  if (batch.problems.empty()) return;
  std::string text =
      fmt::format("{} in {}; nothing was run\n{}", count_of(batch.problems.size(), "problem"),
                  batch.source, listed(batch, 100));
  text.pop_back();
  throw Error(ErrorCode::kCorruptData, text);
}

void skip_bad_lines(InputBatch& batch) {
  if (batch.problems.empty()) return;
  std::set<std::int64_t> bad;
  for (const Problem& problem : batch.problems) bad.insert(problem.line);
  std::size_t n = 0;
  for (std::size_t i = 0; i < batch.requests.size(); ++i) {
    if (bad.contains(batch.requests[i].line)) continue;
    if (n != i) {
      batch.requests[n] = std::move(batch.requests[i]);
      batch.identities[n] = std::move(batch.identities[i]);
      batch.documents.digests[n] = std::move(batch.documents.digests[i]);
      batch.documents.n_bytes[n] = batch.documents.n_bytes[i];
    }
    ++n;
  }
  if (n == 0) refuse_problems(batch);
  batch.requests.resize(n);
  batch.identities.resize(n);
  batch.documents.digests.resize(n);
  batch.documents.n_bytes.resize(n);
  join_problems(batch.problems);
  print_stderr("longhaul: warning: {} in {} skipped\n{}",
               count_of(batch.problems.size(), "bad line"), batch.source, listed(batch, 10));
}

}  // namespace longhaul
