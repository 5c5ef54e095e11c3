#include "tools/result_writer.h"

#include <numeric>

#include "tools/standard_streams.h"

namespace longhaul {

Journal::ToDo ResultWriter::plan(const std::vector<RequestIdentity>& requests, bool retry_errors) {
  if (journal_) return journal_->plan(requests, retry_errors);
  Journal::ToDo all;
  all.requests.resize(requests.size());
  std::iota(all.requests.begin(), all.requests.end(), std::size_t{0});
  return all;
}

void ResultWriter::start() {
  if (journal_) journal_->start();
}

void ResultWriter::set_bad_lines(const std::vector<std::string>& lines) {
  if (journal_) return journal_->set_bad_lines(lines);
  for (const std::string& line : lines) print_now(line);
}

void ResultWriter::add_result(std::string_view line) {
  journal_ ? journal_->add_result(line) : print_now(line);
}

void ResultWriter::add_error(std::string_view line) {
  journal_ ? journal_->add_error(line) : print_now(line);
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
