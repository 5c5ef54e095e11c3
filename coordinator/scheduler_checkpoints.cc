// The scheduler's checkpoints: documents that are being read, or whose requests run, are saved as
// far as they are, so that a run that ends early goes on from there.
#include <algorithm>
#include <utility>

#include "coordinator/scheduler.h"

namespace longhaul {

void Scheduler::request_checkpoints() {
  if (!config_.checkpoint) return;
  for (auto& [number, group] : groups_) {
    const Sequence& sequence = group.document_sequence;
    const bool has_tokens = sequence.stage == Stage::kToPrefill ||
                            sequence.stage == Stage::kToSave || sequence.stage == Stage::kReady;
    if (group.admitted && has_tokens && !group.checkpoint_name.empty() && !group.document.empty() &&
        sequence.n_sent > group.n_checkpointed)
      group.wants_checkpoint = true;
  }
}

std::int64_t Scheduler::n_chunks_under_way() const {
  return std::count_if(outstanding_.begin(), outstanding_.end(), [](const Outstanding& step) {
    return step.kind == Outstanding::Kind::kPrefill && step.group >= 0;
  });
}

void Scheduler::stop_checkpoints() {
  config_.checkpoint.reset();
  for (auto& [number, group] : groups_) group.wants_checkpoint = false;
}

std::optional<StepCommand> Scheduler::next_checkpoint() {
  return is_saving() ? finish_checkpoint() : begin_checkpoint();
}

// One was begun, and the command that ends it is to be sent.
bool Scheduler::is_saving() const {
  return !checkpoints_.empty() && !checkpoints_.back().is_finishing;
}

std::optional<StepCommand> Scheduler::begin_checkpoint() {
  if (is_saving()) return std::nullopt;
  for (auto& [number, group] : groups_) {
    if (!group.wants_checkpoint) continue;
    group.wants_checkpoint = false;
    Sequence& sequence = group.document_sequence;
    if (sequence.stage == Stage::kSaving || group.document.empty()) continue;
    ++sequence.n_outstanding;
    outstanding_.push_back({.kind = Outstanding::Kind::kCheckpoint,
                            .group = number,
                            .requests = {},
                            .n_tokens = sequence.n_sent});
    checkpoints_.push_back({.group = number,
                            .document = group.checkpoint_name,
                            .n_tokens = sequence.n_sent,
                            .n_document = group.n_document});
    SaveSequence command =
        save_command(*config_.checkpoint, sequence.id,
                     {group.document.begin(), group.document.begin() + sequence.n_sent});
    command.name = group.checkpoint_name;
    command.goes_on = true;
    return command;
  }
  return std::nullopt;
}

// A step is sent that its files are written beside.
void Scheduler::cover_checkpoint() {
  if (is_saving()) checkpoints_.back().is_covered = true;
}

// When there is such a step, or something else is to be saved.
bool Scheduler::must_finish_checkpoint() const {
  if (!is_saving()) return false;
  return checkpoints_.back().is_covered ||
         std::any_of(groups_.begin(), groups_.end(), [](const auto& numbered) {
           return numbered.second.wants_checkpoint ||
                  numbered.second.document_sequence.stage == Stage::kToSave;
         });
}

std::optional<StepCommand> Scheduler::finish_checkpoint() {
  if (!is_saving()) return std::nullopt;
  Checkpoint& checkpoint = checkpoints_.back();
  checkpoint.is_finishing = true;
  outstanding_.push_back({.kind = Outstanding::Kind::kFinishCheckpoint, .requests = {}});
  return FinishSave{};
}

std::vector<std::string> Scheduler::take_done_documents() {
  return std::exchange(done_documents_, {});
}

// The results of a checkpoint's two commands, and of steps between them.
void Scheduler::note_beside(const Outstanding& step, const StepResult& result) {
  if (checkpoints_.empty()) return;
  Checkpoint& checkpoint = checkpoints_.front();
  const auto* done = std::get_if<StepDone>(&result);
  if (step.kind == Outstanding::Kind::kCheckpoint) {
    checkpoint.is_begun = true;
    checkpoint.has_failed = done == nullptr;
    checkpoint.seconds = done == nullptr ? 0.0 : done->seconds;
  } else if (checkpoint.is_begun && done != nullptr) {
    checkpoint.beside_seconds += done->seconds;
  }
}

// Its files go when they are whole, if they are being written; but not while another group has the
// same document, under another name of its file, say.
void Scheduler::document_is_done(std::int64_t number) {
  const std::string& checkpoint_name = groups_.at(number).checkpoint_name;
  for (const auto& [other, group] : groups_) {
    if (other != number && group.checkpoint_name == checkpoint_name) return;
  }
  for (auto checkpoint = checkpoints_.rbegin(); checkpoint != checkpoints_.rend(); ++checkpoint) {
    if (checkpoint->document != checkpoint_name) continue;
    checkpoint->is_done = true;
    return;
  }
  done_documents_.push_back(checkpoint_name);
}

void Scheduler::consume_finished_checkpoint(const StepResult& result,
                                            std::vector<SchedulerEvent>& events) {
  const Checkpoint checkpoint = std::move(checkpoints_.front());
  checkpoints_.pop_front();
  if (checkpoint.is_done) done_documents_.push_back(checkpoint.document);
  if (checkpoint.has_failed) return;
  if (const auto* failure = std::get_if<StepFailed>(&result)) {
    events.push_back(CheckpointFailed{failure->message});
    return;
  }
  const auto& done = std::get<StepDone>(result);
  if (const auto group = groups_.find(checkpoint.group); group != groups_.end())
    group->second.n_checkpointed = checkpoint.n_tokens;
  events.push_back(Checkpointed{.document = checkpoint.document,
                                .n_tokens = checkpoint.n_tokens,
                                .n_document = checkpoint.n_document,
                                .seconds = checkpoint.seconds + done.seconds,
                                .beside_seconds = checkpoint.beside_seconds});
}

}  // namespace longhaul
