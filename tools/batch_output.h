// Where a batch's results go, and what an earlier run of the same command left there, which this
// one goes on with.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "coordinator/journal.h"
#include "coordinator/unfinished_answers.h"
#include "tools/batch_input.h"
#include "tools/job/checkpoints.h"
#include "tools/job/run_session.h"
#include "tools/result_writer.h"
#include "tools/run_options.h"

namespace longhaul {

// Seconds since 1970.
std::int64_t unix_time();

// Throw kInvalidArgument where results cannot go, or would be written over what is read, with or
// without --overwrite.
void refuse_bad_output(const RunOptions& options);
void refuse_output_over_documents(const RunOptions& options, const InputBatch& batch);

// When the run began that this one goes on with: for a new one, now. As unix_time.
std::int64_t start_of_run(const RunOptions& options);

// Where documents are saved that are being read. Where nobody says, out.jsonl -> out.checkpoints,
// as the other files beside the results; empty: nowhere.
struct CheckpointFolder {
  std::filesystem::path path;
  Checkpoints::Folder whose;
};
CheckpointFolder checkpoint_folder(const RunOptions& options);

// What the flags say of answers. A run that goes on writes the same date into its prompts, and
// draws from the same seed.
AnswerConfig answers_of(const RunOptions& options, std::int64_t started);

ResultWriter open_writer(const RunSession& session, const RunOptions& options,
                         std::int64_t started);

// What an earlier run left of the answers that are still to be made; none to standard output.
std::optional<UnfinishedAnswers> open_unfinished(const RunOptions& options,
                                                 const std::vector<RequestIdentity>& identities,
                                                 const Journal::ToDo& todo);

}  // namespace longhaul
