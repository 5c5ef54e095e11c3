// What a question to support needs, in one place: versions, the host, the plan and the logs of a
// run, its manifest, what its status says. Never text of documents, prompts or answers.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"

namespace longhaul {

struct SupportSources {
  std::filesystem::path log_dir;  // of --log-dir; empty: none
  std::filesystem::path results;  // of -o; only its manifest is taken; empty: none
  std::string status;             // JSON of the status server; empty: none
};

// Writes files to the folder, which it makes. Throws kIo, and kInvalidArgument where there is
// something already.
void write_support_report(const std::filesystem::path& folder, const SupportSources& sources);

// Of the lines of an event log, those that are objects with a time and an event; others are
// counted, not copied. Pure.
std::string known_events(std::string_view log);
// A status without what requests failed with: messages may quote them. Pure.
std::string status_without_messages(std::string_view json);

// Whether the report is to be an archive, by its name (.tar.gz, .tgz), and not a folder. Throws
// kInvalidArgument for names of archives of other kinds, and for one in a folder that is not there.
bool is_report_archive(const std::filesystem::path& output);

}  // namespace longhaul
