// Where a batch's finished lines go: files that are also a journal, or standard output, where they
// are only written.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "coordinator/journal.h"

namespace longhaul {

// Used by one thread.
class ResultWriter {
 public:
  // To standard output: results and failures, a line each.
  ResultWriter() = default;
  // To files; throws what Journal does.
  ResultWriter(const JournalPaths& paths, const Json& manifest, OpenMode mode, EditedLines edited)
      : paths_(paths), journal_(std::make_unique<Journal>(paths, manifest, mode, edited)) {}

  // What is left to do: of standard output, everything.
  Journal::ToDo plan(const std::vector<RequestIdentity>& requests, bool retry_errors);
  // As Journal::start.
  void start();
  // The lines of the requests file that are skipped, of this run.
  void set_bad_lines(const std::vector<std::string>& lines);
  // A line with its line break; written when it returns. Throws kIo.
  void add_result(std::string_view line);
  void add_error(std::string_view line);

  // Reads files back; throws kIo when they do not hold what was written.
  void verify() const;
  // Removes files that hold nothing, of a run that was refused.
  void remove_if_empty();

  // " in out.jsonl", ": see out.errors.jsonl"; empty for standard output.
  std::string place_of_results() const;
  std::string place_of_errors() const;
  bool is_resumable() const { return journal_ != nullptr; }

 private:
  JournalPaths paths_;
  std::unique_ptr<Journal> journal_;
};

}  // namespace longhaul
