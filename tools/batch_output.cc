#include "tools/batch_output.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.h"
#include "build_info.h"
#include "coordinator/journal.h"
#include "kernels/cpu/isa.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

bool is_stream(const fs::path& path) { return path == "-"; }

Json manifest_of(const RunSession& session, const RunOptions& options, std::int64_t started) {
  return JsonObject{{"format", "longhaul-results"},
                    {"format_version", 1},
                    {"created", started},
                    {"producer", fmt::format("longhaul {}", build_info::kVersion)},
                    {"isa", std::string(name_of(active_isa()))},
                    {"model", options.answers.model},
                    {"requests", options.input.string()},
                    {"system_fingerprint", session.system_fingerprint},
                    {"fingerprint", session.fingerprint}};
}

OpenMode mode_of(const RunOptions& options) {
  return options.overwrite ? OpenMode::kOverwrite : OpenMode::kResume;
}

}  // namespace

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void refuse_bad_output(const RunOptions& options) {
  if (is_stream(options.output)) return;
  std::error_code ignored;
  require(!fs::equivalent(options.input, options.output, ignored),
          "the results would be written over the requests: give -o another name");
  const fs::path folder =
      options.output.has_parent_path() ? options.output.parent_path() : fs::path(".");
  require(fs::is_directory(folder),
          fmt::format("-o {}: there is no folder {}", options.output.string(), folder.string()));
}

void refuse_output_over_documents(const RunOptions& options, const InputBatch& batch) {
  if (is_stream(options.output)) return;
  const JournalPaths paths = journal_paths(options.output);
  for (const fs::path& made : {paths.results, paths.errors, paths.manifest, paths.unfinished}) {
    std::error_code ignored;
    if (!fs::exists(made, ignored)) continue;
    for (const auto& [document, sha256] : batch.documents.sha256_of_file) {
      require(!fs::equivalent(made, document, ignored),
              fmt::format("{} is a document of these requests, and would be written over: give -o "
                          "another name",
                          document));
    }
  }
}

std::int64_t start_of_run(const RunOptions& options) {
  if (is_stream(options.output)) return unix_time();
  return first_start(journal_paths(options.output), mode_of(options)).value_or(unix_time());
}

CheckpointFolder checkpoint_folder(const RunOptions& options) {
  if (!options.answers.checkpoint_dir.empty() || is_stream(options.output))
    return {options.answers.checkpoint_dir, Checkpoints::Folder::kShared};
  fs::path beside = journal_paths(options.output).manifest.replace_extension();
  return {beside.replace_extension(".checkpoints"), Checkpoints::Folder::kOfThisRun};
}

AnswerConfig answers_of(const RunOptions& options, std::int64_t started) {
  AnswerConfig answers = options.answers;
  answers.checkpoint_dir = checkpoint_folder(options).path;
  if (answers.sampling.draws_seed && !is_stream(options.output)) {
    if (const auto seed = first_seed(journal_paths(options.output), mode_of(options)))
      answers.sampling.seed = seed;
  }
  answers.chat.started = started;
  return answers;
}

ResultWriter open_writer(const RunSession& session, const RunOptions& options,
                         std::int64_t started) {
  if (is_stream(options.output)) return {};
  return {journal_paths(options.output), manifest_of(session, options, started), mode_of(options),
          options.accept_edited ? EditedLines::kAccept : EditedLines::kRefuse};
}

std::optional<UnfinishedAnswers> open_unfinished(const RunOptions& options,
                                                 const std::vector<RequestIdentity>& identities,
                                                 const Journal::ToDo& todo) {
  if (is_stream(options.output)) return std::nullopt;
  std::vector<RequestIdentity> to_do;
  if (!options.overwrite)
    for (const std::size_t request : todo.requests) to_do.push_back(identities[request]);
  UnfinishedAnswers unfinished(journal_paths(options.output).unfinished);
  unfinished.keep_only(to_do);
  return unfinished;
}

}  // namespace longhaul
