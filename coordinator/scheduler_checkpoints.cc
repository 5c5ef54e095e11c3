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
    SaveSequence command =
        save_command(*config_.checkpoint, sequence.id,
                     {group.document.begin(), group.document.begin() + sequence.n_sent});
    command.name = group.checkpoint_name;
    command.goes_on = true;
    return command;
  }
  return std::nullopt;
}

std::vector<std::string> Scheduler::take_done_documents() {
  return std::exchange(done_documents_, {});
}

void Scheduler::consume_checkpoint(const Outstanding& step, const StepDone& done,
                                   std::vector<SchedulerEvent>& events) {
  Group& group = groups_.at(step.group);
  --group.document_sequence.n_outstanding;
  group.n_checkpointed = step.n_tokens;
  events.push_back(
      Checkpointed{group.checkpoint_name, step.n_tokens, group.n_document, done.seconds});
}

}  // namespace longhaul
