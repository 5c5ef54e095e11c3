// The results of a run on disk, which are also its journal: OUT.jsonl with finished requests,
// OUT.errors.jsonl with failed ones, OUT.manifest.json with what they depend on. A line is written
// whole and synced when its request is done; a restart reads the files and continues. Every
// custom_id stands in at most one line over both files, beside records of skipped lines
// (bad_line_record), which are no requests.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "coordinator/result_lines.h"

namespace longhaul {

struct JournalPaths {
  std::filesystem::path results;
  std::filesystem::path errors;
  std::filesystem::path manifest;
  std::filesystem::path unfinished;  // UnfinishedAnswers, of these settings, too
};
// out.jsonl -> out.errors.jsonl, out.manifest.json, out.unfinished.jsonl
JournalPaths journal_paths(const std::filesystem::path& results);

enum class OpenMode {
  kResume,     // continue what is there
  kOverwrite,  // start over, once the work starts
};

// When the run that would go on began, as Unix time; nullopt when it would start over or there is
// none. Throws kCorruptData for a manifest that cannot be read.
std::optional<std::int64_t> first_start(const JournalPaths& paths, OpenMode mode);

// The seed that such a run drew or was given, under the same conditions.
std::optional<std::uint64_t> first_seed(const JournalPaths& paths, OpenMode mode);

// What to do with lines whose checksum does not fit them.
enum class EditedLines { kRefuse, kAccept };

// A file of lines that knows what it holds: every byte is hashed when it is read or written.
class JournalFile {
 public:
  explicit JournalFile(const std::filesystem::path& path) : file_(path) {}
  const std::filesystem::path& path() const { return file_.path(); }
  bool was_created() const { return file_.was_created(); }
  // Tells what it holds; once, before lines are added.
  void holds(std::string_view text);
  // Its content. Throws kIo when the file was removed or replaced since it was opened.
  MappedFile map() const;
  void clear();
  void cut(std::size_t size);  // before holds()
  // Appends a line that ends in a line break and syncs it.
  void add(std::string_view line);
  // Reads the file back. Throws kIo unless it holds what was read and written, byte for byte.
  void verify() const;

 private:
  AppendFile file_;
  Sha256 hash_;
};

// Used by one thread. Holds a lock on the results file while it lives.
class Journal {
 public:
  // Opens or creates the files; of a run that is refused no new ones are left. A last line that a
  // crash tore is cut away with a warning. Throws kFailedPrecondition when the files belong to
  // another fingerprint (listing the differences), to no known one, to other results
  // (coordinator/journal_manifest.h), are being written, or hold a line that was edited (unless
  // that is accepted); kCorruptData when a line is no result. `manifest` must hold "fingerprint";
  // it is written when there is none yet.
  Journal(const JournalPaths& paths, const Json& manifest, OpenMode mode,
          EditedLines edited = EditedLines::kRefuse);

  struct ToDo {
    std::vector<std::size_t> requests;  // indices into the identities
    std::int64_t n_done = 0;
    std::int64_t n_failed = 0;  // earlier, and not to be tried again
    std::int64_t n_others = 0;  // lines of both files that belong to none of the requests
  };
  // The run was not refused: with kOverwrite, what was there goes now. Before anything is added.
  void start();

  // What is left of `requests`. Throws kFailedPrecondition when a finished line has the custom_id
  // of a request but another body or other documents. Those that failed for want of memory are left
  // too, with `retry_errors` all that failed; their lines are removed (in one atomic replacement of
  // the errors file).
  ToDo plan(const std::vector<RequestIdentity>& requests, bool retry_errors);

  // Makes the records of skipped lines in the errors file be these, each with its line break: those
  // of an earlier run, whose requests file may have been corrected since, go.
  void set_bad_lines(const std::vector<std::string>& records);

  // Appends a line that ends in a line break and syncs it. Durable when it returns. Throws kIo when
  // the file is not what it was: removed, moved, cut or written to by somebody else.
  void add_result(std::string_view line);
  void add_error(std::string_view line);

  // Reads both files back and compares them with what was read and written. Throws kIo otherwise.
  void verify() const;
  // Removes files that this object made and that hold nothing: for a run that was refused.
  void remove_if_empty();

 private:
  struct Known {
    RequestIdentity identity;
    bool failed = false;
    bool may_work_now = false;  // it failed for a reason that may be over
  };
  void open(const Json& manifest, EditedLines edited);  // to go on
  void check_manifest(const Json& manifest);
  void read_lines(JournalFile& file, bool failed, EditedLines edited);
  void drop_error_lines(const std::vector<std::string>& custom_ids);
  void replace_errors(const std::string& text);

  JournalPaths paths_;
  JournalFile results_;
  std::optional<JournalFile> errors_;  // made when the first request fails
  std::optional<Json> new_manifest_;   // what start() has to write
  bool made_manifest_ = false;
  bool has_lines_ = false;
  std::unordered_map<std::string, Known> known_;
  std::vector<std::string> bad_lines_;  // their records in the errors file
};

}  // namespace longhaul
