// The second half of the scheduler: what results of steps mean.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "coordinator/scheduler.h"

namespace longhaul {

Scheduler::Sequence& Scheduler::sequence_of(const Outstanding& step) {
  if (step.group >= 0) return groups_.at(step.group).document_sequence;
  return running_.at(step.requests.front()).sequence;
}

// Of a text that failed, or ended, while later chunks or a checkpoint of it were under way.
bool Scheduler::is_forgotten(const Outstanding& step) const {
  if (step.kind != Outstanding::Kind::kPrefill && step.kind != Outstanding::Kind::kCheckpoint)
    return false;
  return step.group >= 0 ? !groups_.contains(step.group)
                         : !running_.contains(step.requests.front());
}

std::vector<SchedulerEvent> Scheduler::consume(StepResult result) {
  require(!outstanding_.empty(), "scheduler: a result without a command");
  const Outstanding step = std::move(outstanding_.front());
  outstanding_.pop_front();
  std::vector<SchedulerEvent> events;
  if (step.kind == Outstanding::Kind::kFinishCheckpoint) {
    consume_finished_checkpoint(result, events);
    return events;
  }
  note_beside(step, result);
  if (is_forgotten(step)) return events;
  if (const auto* failure = std::get_if<StepFailed>(&result)) {
    consume_failure(step, *failure, events);
  } else {
    consume_done(step, std::get<StepDone>(result), events);
  }
  return events;
}

void Scheduler::consume_done(const Outstanding& step, StepDone& done,
                             std::vector<SchedulerEvent>& events) {
  switch (step.kind) {
    case Outstanding::Kind::kDrop:
      return;
    case Outstanding::Kind::kCreate: {
      Sequence& sequence = sequence_of(step);
      --sequence.n_outstanding;
      sequence.stage = Stage::kToPrefill;
      return;
    }
    case Outstanding::Kind::kRestore:
      return consume_restore(step, done, events);
    case Outstanding::Kind::kPrefill:
      return consume_prefill(step, done, events);
    case Outstanding::Kind::kSave:
      sequence_of(step).stage = Stage::kReady;
      return;
    case Outstanding::Kind::kCheckpoint:
      --sequence_of(step).n_outstanding;
      return;
    case Outstanding::Kind::kFinishCheckpoint:
      return;
    case Outstanding::Kind::kDecode:
      break;
  }
  consume_decode(step, done, events);
}

// A row picks one token, and one more for each guess that came true.
void Scheduler::consume_decode(const Outstanding& step, StepDone& done,
                               std::vector<SchedulerEvent>& events) {
  auto picked = done.picked.begin();
  for (const RequestId request : step.requests) {
    Running& running = running_.at(request);
    --running.sequence.n_outstanding;
    std::vector<std::int32_t> tokens;
    const auto most = static_cast<std::size_t>(1 + running.n_guessed);
    for (; picked != done.picked.end() && picked->sequence == running.sequence.id &&
           tokens.size() < most;
         ++picked) {
      tokens.push_back(picked->token);
      events.push_back(TokenAdded{request, std::move(*picked)});
    }
    if (tokens.empty()) break;
    const auto n_picked = static_cast<std::int64_t>(tokens.size());
    running.next_token = tokens.back();
    running.n_picked += n_picked;
    running.n_wrong = 1 + running.n_guessed - n_picked;
    learn(running, tokens);
  }
  if (picked != done.picked.end() || events.size() < step.requests.size()) {
    throw Error(ErrorCode::kInternal,
                fmt::format("the workers picked {} tokens for a batch of {} sequences, not in its "
                            "order, or more than were guessed",
                            done.picked.size(), step.requests.size()));
  }
}

// From a step that picked these tokens, which are counted already.
void Scheduler::learn(Running& running, std::span<const std::int32_t> tokens) const {
  const std::int64_t n_true = std::ssize(tokens) - 1;
  const std::int64_t first = running.n_picked - std::ssize(tokens);
  const std::vector<std::int32_t>& expected = running.job.expected;
  for (std::int64_t i = first; i < std::min(running.n_picked, std::ssize(expected)); ++i)
    running.is_as_expected &=
        expected[static_cast<std::size_t>(i)] == tokens[static_cast<std::size_t>(i - first)];
  if (!running.lookup) return;
  running.lookup->add(tokens);
  if (running.draft) running.draft->text.add(tokens);
  if (running.draft && running.draft->has_guessed)
    running.draft->length.learn(running.n_guessed, n_true);
  else
    running.lookup->learn(running.n_guessed, n_true);
}

void Scheduler::index_document(Group& group) const {
  if (config_.lookup.most == 0) return;
  LookupDocument document{group.is_part() ? groups_.at(group.parent).lookup : nullptr,
                          TokenIndex(config_.lookup.least)};
  document.index.append(group.document);
  group.lookup = std::make_shared<const LookupDocument>(std::move(document));
}

// The prompt is read, and the answer's first token picked.
void Scheduler::begin_answer(Running& running, PickedToken first,
                             std::vector<SchedulerEvent>& events) {
  running.next_token = first.token;
  running.n_picked = 1;
  if (config_.lookup.most > 0 && running.job.may_guess) {
    const Group& group = groups_.at(running.group);
    running.lookup.emplace(config_.lookup, group.lookup, running.job.prompt);
    if (config_.draft_context > 0) {
      running.draft.emplace(
          Draft{.text = DraftText(config_.draft_context, group.lookup, running.job.prompt),
                .length = GuessLength(config_.lookup.most)});
    }
  }
  learn(running, {&first.token, 1});
  events.push_back(TokenAdded{running.job.request, std::move(first)});
}

// The document is read: it is saved first, or its requests start.
void Scheduler::document_is_read(Group& group) const {
  index_document(group);
  const bool saves = config_.save && !group.is_part();
  group.document_sequence.stage = saves ? Stage::kToSave : Stage::kReady;
  // The workers have it; ids of long documents are worth freeing.
  if (!saves && group.checkpoint_name.empty()) group.document = {};
}

void Scheduler::consume_restore(const Outstanding& step, const StepDone& done,
                                std::vector<SchedulerEvent>& events) {
  Group& group = groups_.at(step.group);
  Sequence& sequence = group.document_sequence;
  const auto n_document = static_cast<std::int64_t>(group.document.size());
  const SavedStart start = group.starts.front();
  group.starts.clear();
  --sequence.n_outstanding;
  sequence.stage = Stage::kToPrefill;
  sequence.n_sent = sequence.n_prefilled = start.n_tokens;
  const bool is_checkpoint = config_.checkpoint && start.folder == config_.checkpoint->folder;
  if (is_checkpoint) group.n_checkpointed = start.n_tokens;
  if (sequence.n_prefilled == n_document) {
    const bool is_there = config_.save && start.folder == config_.save->folder && !start.converts;
    if (is_there) {
      index_document(group);
      sequence.stage = Stage::kReady;
    } else {
      document_is_read(group);
    }
  }
  events.push_back(DocumentRestored{start, n_document, done.seconds, is_checkpoint});
}

// Of a document whose saved caches cannot be used. Nothing was made of them.
bool Scheduler::try_another_start(const Outstanding& step, const StepFailed& failure,
                                  std::vector<SchedulerEvent>& events) {
  const bool is_files_fault =
      failure.code == ErrorCode::kCorruptData || failure.code == ErrorCode::kIo ||
      failure.code == ErrorCode::kFailedPrecondition || failure.code == ErrorCode::kUnsupported;
  if (!is_files_fault) return false;
  Group& group = groups_.at(step.group);
  SavedStart start = std::move(group.starts.front());
  group.starts.pop_front();
  if (start.must_work) {
    // Of another format version: a file of a kind that is not read.
    const bool is_unread = failure.code == ErrorCode::kUnsupported;
    throw Error(is_unread ? ErrorCode::kCorruptData : failure.code,
                fmt::format("a document's saved KV cache cannot be used: {}", failure.message));
  }
  --group.document_sequence.n_outstanding;
  events.push_back(StartRefused{std::move(start), failure.message});
  return true;
}

void Scheduler::consume_prefill(const Outstanding& step, StepDone& done,
                                std::vector<SchedulerEvent>& events) {
  Sequence& sequence = sequence_of(step);
  --sequence.n_outstanding;
  sequence.n_prefilled += step.n_tokens;
  if (step.group >= 0) {
    Group& group = groups_.at(step.group);
    if (!group.checkpoint_name.empty())
      events.push_back(ChunkRead{group.checkpoint_name, sequence.n_prefilled, done.seconds});
    if (sequence.n_prefilled == static_cast<std::int64_t>(group.document.size()))
      document_is_read(group);
    return;
  }
  const RequestId request = step.requests.front();
  Running& running = running_.at(request);
  if (!done.scored.empty()) events.push_back(PromptScored{request, std::move(done.scored)});
  if (sequence.n_prefilled < static_cast<std::int64_t>(running.job.prompt.size())) return;
  sequence.stage = Stage::kReady;
  if (running.job.max_tokens == 0) {
    events.push_back(PromptRead{request});
    return;
  }
  if (done.picked.size() != 1) {
    throw Error(ErrorCode::kInternal,
                fmt::format("the workers picked {} tokens after a prompt", done.picked.size()));
  }
  begin_answer(running, std::move(done.picked.front()), events);
}

void Scheduler::consume_failure(const Outstanding& step, const StepFailed& failure,
                                std::vector<SchedulerEvent>& events) {
  if (step.kind == Outstanding::Kind::kDrop) {
    throw Error(ErrorCode::kInternal,
                fmt::format("sequences could not be dropped: {}", failure.message));
  }
  if (step.kind == Outstanding::Kind::kCheckpoint) {
    --sequence_of(step).n_outstanding;
    events.push_back(CheckpointFailed{failure.message});
    return;
  }
  if (step.kind == Outstanding::Kind::kSave) {
    // The run was asked for these files: it must not end as if they were there.
    throw Error(failure.code,
                fmt::format("a document's KV cache could not be saved: {}", failure.message));
  }
  if (step.kind == Outstanding::Kind::kRestore && try_another_start(step, failure, events)) return;
  const bool makes =
      step.kind == Outstanding::Kind::kCreate || step.kind == Outstanding::Kind::kRestore;
  if (makes) sequence_of(step).id = {};  // it was not made
  if (step.group >= 0) {
    fail_group(step.group, failure, events);
    return;
  }
  for (const RequestId request : step.requests) {
    events.push_back(RequestFailed{request, failure.code, failure.message});
    forget(request);
  }
}

// The document itself is lost. Nothing was forked from it yet: requests start when it is complete.
void Scheduler::fail_group(std::int64_t number, const StepFailed& failure,
                           std::vector<SchedulerEvent>& events) {
  Group& group = groups_.at(number);
  const std::size_t before = group.bytes();
  fail_waiting(group, failure, events);
  group.is_lost = true;
  follow_change(group, before);
  forget_group_if_done(number);
}

void Scheduler::fail_waiting(Group& group, const StepFailed& failure,
                             std::vector<SchedulerEvent>& events) {
  for (const Job& job : group.waiting)
    events.push_back(RequestFailed{job.request, failure.code, failure.message});
  group.waiting.clear();
  for (Group& part : group.parts) fail_waiting(part, failure, events);
  group.parts.clear();
}

void Scheduler::allow(RequestId request, AllowedTokens allowed) {
  require(running_.contains(request), "scheduler: allow of a request that does not run");
  running_.at(request).job.allowed = std::move(allowed);
}

void Scheduler::finish(RequestId request) {
  require(running_.contains(request), "scheduler: finish of a request that does not run");
  require(!running_.at(request).sequence.busy(), "scheduler: finish of a request in a step");
  forget(request);
}

void Scheduler::forget(RequestId request) {
  const auto at = running_.find(request);
  const std::int64_t group = at->second.group;
  const std::size_t bytes = at->second.bytes;
  if (at->second.sequence.id != SequenceId{}) drops_.push_back(at->second.sequence.id);
  running_.erase(at);
  Group& of_request = groups_.at(group);
  const std::size_t before = of_request.bytes();
  --of_request.n_running;
  of_request.running_bytes -= bytes;
  follow_change(of_request, before);
  forget_group_if_done(group);
}

void Scheduler::forget_group_if_done(std::int64_t number) {
  const auto at = groups_.find(number);
  const Group& group = at->second;
  if (group.has_waiting() || group.n_running > 0) return;
  const SequenceId document = group.document_sequence.id;
  if (group.has_document && document != SequenceId{}) drops_.push_back(document);
  if (!group.checkpoint_name.empty() && !group.is_lost) document_is_done(number);
  const std::int64_t parent = group.parent;
  const std::size_t bytes = group.bytes();
  groups_.erase(at);
  if (parent < 0) return;
  Group& whole = groups_.at(parent);
  const std::size_t before = whole.bytes();
  --whole.n_running;
  whole.running_bytes -= bytes;
  follow_change(whole, before);
  forget_group_if_done(parent);
}

}  // namespace longhaul
