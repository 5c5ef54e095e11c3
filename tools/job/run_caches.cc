#include "tools/job/run_caches.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "build_info.h"
#include "tools/job/input_errors.h"
#include "tools/job/run_identity.h"
#include "tools/job/saved_documents.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

void require_hdf5(std::string_view flag) {
  if (build_info::kHasHdf5) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{} needs HDF5, and this build of Longhaul has none; install its "
                          "development files (Debian: libhdf5-openmpi-dev) and build again",
                          flag));
}

SaveCaches caches_in(const fs::path& folder, const RunSession& session, const JobConfig& job,
                     const AnswerConfig& answers) {
  const Json& model = *session.fingerprint.find("model");
  const std::string identity = identity_of(session, job, answers);
  const Json* tokenizer = model.find("tokenizer_sha256");
  return SaveCaches{
      .folder = folder.string(),
      .identity = identity,
      .facts = {{"model_id", answers.model},
                {"model_sha256", sha256_of(to_text(model))},
                {"tokenizer_sha256", JsonField(*tokenizer, "tokenizer_sha256").as_string()},
                {"settings", identity}}};
}

// Documents' caches go to --save-kv FOLDER; what cannot work is refused before anything is
// computed.
std::optional<SaveCaches> saving(const RunSession& session, const JobConfig& job,
                                 const AnswerConfig& answers) {
  if (answers.save_kv.empty()) return std::nullopt;
  require_hdf5("--save-kv");
  std::error_code error;
  fs::create_directories(answers.save_kv, error);
  if (error || ::access(answers.save_kv.c_str(), W_OK | X_OK) != 0) {
    throw Error(ErrorCode::kIo, fmt::format("--save-kv {}: files cannot be made in this folder",
                                            answers.save_kv.string()));
  }
  return caches_in(answers.save_kv, session, job, answers);
}

bool has_checkpoints(const AnswerConfig& answers) {
  return !answers.checkpoint_dir.empty() && build_info::kHasHdf5 &&
         answers.checkpoint_every.unit != CheckpointEvery::Unit::kNever;
}

fs::path as_given(const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(path, ignored);
  return (ignored ? path : whole).lexically_normal();
}

// Checkpoints are named as saved caches are, and are removed once they have served.
void refuse_checkpoints_among_caches(const AnswerConfig& answers) {
  if (!has_checkpoints(answers)) return;
  for (const auto& [flag, folder] :
       {std::pair{"--save-kv", answers.save_kv}, std::pair{"--load-kv", answers.load_kv}}) {
    if (folder.empty()) continue;
    // A folder "x/" has no last part: x.
    require(as_given(folder / "f") != as_given(answers.checkpoint_dir / "f"),
            fmt::format("{} {}: this run's checkpoints go there, and are removed when their "
                        "document's requests are done: give another folder, or another "
                        "--checkpoint-dir",
                        flag, folder.string()));
  }
}

// Before anything is computed: a folder without saved caches is none that cannot be read.
void require_readable(const fs::path& load_kv) {
  std::error_code ignored;
  if (!fs::exists(load_kv, ignored) && !ignored) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("--load-kv {}: there is no such folder", load_kv.string()));
  }
  try {
    read_input([&] { return saved_masters(load_kv); });
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("--load-kv: {}", error.what()));
  }
}

// Documents begin with saved caches of --load-kv FOLDER, which must fit, and of --save-kv FOLDER
// and checkpoints, where they do.
std::function<std::vector<SavedStart>(std::span<const std::int32_t>)> loading(
    const RunSession& session, const JobConfig& job, const AnswerConfig& answers) {
  std::vector<SavedFolder> folders;
  if (!answers.load_kv.empty()) {
    require_hdf5("--load-kv");
    require_readable(answers.load_kv);
    folders.push_back({.path = answers.load_kv, .must_work = true});
  }
  std::error_code ignored;
  if (!answers.save_kv.empty() && !fs::equivalent(answers.save_kv, answers.load_kv, ignored))
    folders.push_back({.path = answers.save_kv});
  if (has_checkpoints(answers))
    folders.push_back({.path = answers.checkpoint_dir, .has_checkpoints = true});
  if (folders.empty()) return {};
  WantedCaches wanted{.identity = identity_of(session, job, answers),
                      .k_type = session.kv.k_type,
                      .v_type = session.kv.v_type,
                      .block_size = session.kv.block_size,
                      .rope_theta = session.spec().rope_theta,
                      .converts = answers.kv_convert,
                      .cuts_documents = session.heads.table.cuts_documents()};
  const auto saved = std::make_shared<SavedDocuments>(std::move(folders), std::move(wanted));
  return [saved](std::span<const std::int32_t> document) { return saved->starts_of(document); };
}

}  // namespace

void set_up_caches(const JobConfig& job, const AnswerConfig& answers, RunSession& session) {
  refuse_checkpoints_among_caches(answers);
  session.engine.scheduler.save = saving(session, job, answers);
  if (has_checkpoints(answers)) {
    session.engine.scheduler.checkpoint = caches_in(answers.checkpoint_dir, session, job, answers);
    session.engine.checkpoint_every = answers.checkpoint_every;
  }
  session.engine.find_starts = loading(session, job, answers);
  session.engine.expected_in = answers.load_kv.string();
}

std::vector<std::string> notes_on_unused_folders(const AnswerConfig& answers,
                                                 const std::vector<Request>& requests) {
  if (std::ranges::any_of(requests, [](const Request& r) { return !r.documents.empty(); }))
    return {};
  std::vector<std::string> notes;
  for (const auto& [flag, folder, what] :
       {std::tuple{"--save-kv", answers.save_kv, "saved"},
        std::tuple{"--load-kv", answers.load_kv, "taken from there"},
        std::tuple{"--checkpoint-dir", answers.checkpoint_dir, "saved"}}) {
    if (folder.empty()) continue;
    notes.push_back(fmt::format("{} {}: nothing is {}, for there are no documents", flag,
                                folder.string(), what));
  }
  return notes;
}

}  // namespace longhaul
