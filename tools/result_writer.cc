#include "tools/result_writer.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "base/error.h"

namespace longhaul {
namespace {

void write_to_stdout(std::string_view line) {
  if (std::fwrite(line.data(), 1, line.size(), stdout) == line.size() && std::fflush(stdout) == 0)
    return;
  throw Error(ErrorCode::kIo,
              fmt::format("results cannot be written to standard output: {}", strerror(errno)));
}

}  // namespace

Journal::ToDo ResultWriter::plan(const std::vector<RequestIdentity>& requests, bool retry_errors) {
  if (journal_) return journal_->plan(requests, retry_errors);
  Journal::ToDo all;
  all.requests.resize(requests.size());
  std::iota(all.requests.begin(), all.requests.end(), std::size_t{0});
  return all;
}

void ResultWriter::set_bad_lines(const std::vector<std::string>& lines) {
  if (journal_) return journal_->set_bad_lines(lines);
  for (const std::string& line : lines) write_to_stdout(line);
}

void ResultWriter::add_result(std::string_view line) {
  journal_ ? journal_->add_result(line) : write_to_stdout(line);
}

void ResultWriter::add_error(std::string_view line) {
  journal_ ? journal_->add_error(line) : write_to_stdout(line);
}

void ResultWriter::verify() const {
  if (journal_) journal_->verify();
}

void ResultWriter::remove_if_empty() {
  if (journal_) journal_->remove_if_empty();
}

std::string ResultWriter::place_of_results() const {
  return journal_ ? " in " + paths_.results.string() : "";
}

std::string ResultWriter::place_of_errors() const {
  return journal_ ? ": see " + paths_.errors.string() : "";
}

}  // namespace longhaul
