#include "coordinator/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "partition/workload.h"

namespace longhaul {

std::vector<SchedulerEvent> Scheduler::add(JobGroup group) {
  std::vector<SchedulerEvent> failures;
  std::deque<SavedStart> starts = std::exchange(group.starts, {});
  Group added = group_of(std::move(group), 0, 0, failures);
  if (!added.has_waiting()) return failures;
  added.starts = std::move(starts);
  if (config_.checkpoint && added.has_document) {
    added.checkpoint_name =
        name_of_document(content_id_of(config_.checkpoint->identity, added.document));
  }
  groups_.emplace(n_groups_++, std::move(added));
  return failures;
}

bool Scheduler::wants_more() const {
  return n_waiting() + static_cast<std::int64_t>(running_.size()) < config_.max_sequences;
}

std::int64_t Scheduler::n_waiting() const {
  std::int64_t n = 0;
  for (const auto& [number, group] : groups_) n += group.n_waiting();
  return n;
}

std::int64_t Scheduler::Group::n_waiting() const {
  auto n = static_cast<std::int64_t>(waiting.size());
  for (const Group& part : parts) n += part.n_waiting();
  return n;
}

std::vector<Extent> Scheduler::unread_documents() const {
  std::vector<Extent> unread;
  for (const auto& [number, group] : groups_) {
    const bool is_read = group.document.empty() || group.document_sequence.stage == Stage::kReady;
    if (group.is_part() || is_read) continue;
    unread.push_back(
        {group.document_sequence.n_prefilled, static_cast<std::int64_t>(group.document.size())});
  }
  return unread;
}

std::optional<StepCommand> Scheduler::next() {
  if (!drops_.empty()) {
    outstanding_.push_back({.kind = Outstanding::Kind::kDrop, .requests = {}});
    return DropSequences{std::exchange(drops_, {})};
  }
  admit_groups();
  admit_requests();
  if (auto command = create_command()) return command;
  if (must_finish_checkpoint()) {
    if (auto command = finish_checkpoint()) return command;
  }
  if (auto command = begin_checkpoint()) return command;
  if (auto command = save_document_command()) return command;
  if (auto command = short_prompt_command()) return command;
  if (auto command = long_prefill_or_decode_command()) return command;
  return finish_checkpoint();
}

std::optional<StepCommand> Scheduler::long_prefill_or_decode_command() {
  if (decode_is_next_) {
    if (auto command = decode_command()) return command;
    return long_prefill_command();
  }
  if (auto command = long_prefill_command()) return command;
  return decode_command();
}

std::optional<StepCommand> Scheduler::create_command() {
  for (auto& [number, group] : groups_) {
    Sequence& sequence = group.document_sequence;
    if (!group.admitted || sequence.stage != Stage::kToCreate || sequence.busy()) continue;
    return create_document(number, group);
  }
  for (auto& [request, running] : running_) {
    Sequence& sequence = running.sequence;
    if (sequence.stage != Stage::kToCreate || sequence.busy()) continue;
    ++sequence.n_outstanding;
    outstanding_.push_back({.kind = Outstanding::Kind::kCreate, .requests = {request}});
    const Group& group = groups_.at(running.group);
    const Job& job = running.job;
    if (!group.has_document) return OpenSequence{sequence.id, job.sampling, job.rules};
    return ForkSequence{group.document_sequence.id, sequence.id, job.sampling, job.rules};
  }
  return std::nullopt;
}

StepCommand Scheduler::create_document(std::int64_t number, Group& group) {
  Sequence& sequence = group.document_sequence;
  ++sequence.n_outstanding;
  const bool is_saved = !group.starts.empty();
  outstanding_.push_back(
      {.kind = is_saved ? Outstanding::Kind::kRestore : Outstanding::Kind::kCreate,
       .group = number,
       .requests = {}});
  if (!is_saved) {
    if (!group.is_part() || !groups_.at(group.parent).has_document)
      return OpenSequence{sequence.id, {}};
    return ForkSequence{groups_.at(group.parent).document_sequence.id, sequence.id, {}};
  }
  const SavedStart& start = group.starts.front();
  return RestoreSequence{.sequence = sequence.id,
                         .folder = start.folder,
                         .name = start.name,
                         .content_id = start.content_id,
                         .n_tokens = start.n_tokens,
                         .converts = start.converts};
}

std::optional<StepCommand> Scheduler::save_document_command() {
  for (auto& [number, group] : groups_) {
    Sequence& sequence = group.document_sequence;
    if (sequence.stage != Stage::kToSave) continue;
    sequence.stage = Stage::kSaving;
    outstanding_.push_back({.kind = Outstanding::Kind::kSave, .group = number, .requests = {}});
    return save_command(*config_.save, sequence.id, std::exchange(group.document, {}));
  }
  return std::nullopt;
}

StepCommand Scheduler::prefill_request(RequestId request, Running& running) {
  const std::vector<std::int32_t>& prompt = running.job.prompt;
  const auto begin = running.sequence.n_sent;
  const auto n = std::min(config_.chunk_len, static_cast<std::int64_t>(prompt.size()) - begin);
  const bool is_last = begin + n == static_cast<std::int64_t>(prompt.size());
  cover_checkpoint();
  ++running.sequence.n_outstanding;
  running.sequence.n_sent += n;
  outstanding_.push_back(
      {.kind = Outstanding::Kind::kPrefill, .requests = {request}, .n_tokens = n});
  return PrefillChunk{.sequence = running.sequence.id,
                      .tokens = {prompt.begin() + begin, prompt.begin() + begin + n},
                      .after = !is_last                     ? AfterPrefill::kNothing
                               : running.job.max_tokens > 0 ? AfterPrefill::kSample
                                                            : AfterPrefill::kPromptEnd,
                      .score_logprobs = running.job.score_logprobs,
                      .allowed = is_last ? running.job.allowed : nullptr};
}

std::optional<StepCommand> Scheduler::short_prompt_command() {
  for (auto& [request, running] : running_) {
    const Sequence& sequence = running.sequence;
    const auto n_left = static_cast<std::int64_t>(running.job.prompt.size()) - sequence.n_sent;
    if (sequence.stage == Stage::kToPrefill && n_left > 0 && n_left <= config_.chunk_len)
      return prefill_request(request, running);
  }
  for (auto& [number, group] : groups_) {
    const Sequence& sequence = group.document_sequence;
    const auto n_left = static_cast<std::int64_t>(group.document.size()) - sequence.n_sent;
    if (group.is_part() && sequence.stage == Stage::kToPrefill && n_left > 0 &&
        n_left <= config_.chunk_len)
      return prefill_document(number, group);
  }
  return std::nullopt;
}

StepCommand Scheduler::prefill_document(std::int64_t number, Group& group) {
  cover_checkpoint();
  Sequence& sequence = group.document_sequence;
  const auto n_document = static_cast<std::int64_t>(group.document.size());
  const auto begin = sequence.n_sent;
  const auto n = std::min(config_.chunk_len, n_document - begin);
  // Methods that cut documents down do so where documents end, not what is shared behind them.
  const AfterPrefill end = group.is_part() ? AfterPrefill::kSharedEnd : AfterPrefill::kDocumentEnd;
  ++sequence.n_outstanding;
  sequence.n_sent += n;
  outstanding_.push_back(
      {.kind = Outstanding::Kind::kPrefill, .group = number, .requests = {}, .n_tokens = n});
  return PrefillChunk{
      .sequence = sequence.id,
      .tokens = {group.document.begin() + begin, group.document.begin() + begin + n},
      .after = begin + n == n_document ? end : AfterPrefill::kNothing};
}

std::optional<StepCommand> Scheduler::long_prefill_command() {
  for (auto& [request, running] : running_) {
    if (running.sequence.stage != Stage::kToPrefill) continue;
    if (running.sequence.n_sent == static_cast<std::int64_t>(running.job.prompt.size())) continue;
    decode_is_next_ = true;
    return prefill_request(request, running);
  }
  for (const bool of_parts : {true, false}) {  // whose documents are read already go first
    for (auto& [number, group] : groups_) {
      const Sequence& sequence = group.document_sequence;
      if (group.is_part() != of_parts || !group.admitted || sequence.stage != Stage::kToPrefill)
        continue;
      // One document after the other, the oldest first.
      if (sequence.n_sent == static_cast<std::int64_t>(group.document.size())) continue;
      decode_is_next_ = true;
      return prefill_document(number, group);
    }
  }
  return std::nullopt;
}

std::optional<StepCommand> Scheduler::decode_command() {
  // One batch at a time: two in flight would split it in halves for good.
  for (const Outstanding& step : outstanding_) {
    if (step.kind == Outstanding::Kind::kDecode) return std::nullopt;
  }
  Outstanding step{.kind = Outstanding::Kind::kDecode, .requests = {}};
  for (const auto& [request, running] : running_) {
    if (running.sequence.stage != Stage::kReady || running.sequence.busy()) continue;
    if (running.next_token < 0) continue;  // complete, its owner has not said so yet
    step.requests.push_back(request);
  }
  if (step.requests.empty()) return std::nullopt;
  const auto n_rows = static_cast<std::int64_t>(step.requests.size());
  const std::int64_t room = std::max<std::int64_t>(0, Workload::kRowsWithGuesses / n_rows - 1);
  DecodeBatch batch;
  for (const RequestId request : step.requests) {
    Running& running = running_.at(request);
    ++running.sequence.n_outstanding;
    DecodeBatch::Row& row = batch.rows.emplace_back();
    row = {running.sequence.id, running.next_token, running.job.allowed, {}, running.n_wrong};
    // Each step picks one token at least.
    const std::int64_t most = std::min(room, running.job.max_tokens - running.n_picked - 1);
    row.guesses = guesses_for(running, most);
    running.n_guessed = static_cast<std::int64_t>(row.guesses.size());
    if (running.draft) {
      const bool may_draft = row.guesses.empty() && most > 0;
      running.draft->n_wished = may_draft ? running.draft->length.next(most) : 0;
      running.draft->has_guessed = false;
    }
  }
  decode_is_next_ = false;
  cover_checkpoint();
  outstanding_.push_back(std::move(step));
  return batch;
}

std::vector<std::int32_t> Scheduler::guesses_for(Running& running, std::int64_t most) const {
  const std::vector<std::int32_t>& expected = running.job.expected;
  const std::int64_t n_left = std::ssize(expected) - running.n_picked;
  if (running.is_as_expected && running.job.may_guess && n_left > 0) {
    const auto next = expected.begin() + running.n_picked;
    return {next,
            next + std::clamp<std::int64_t>(most, 0, std::min(n_left, config_.budget.n_guesses))};
  }
  return running.lookup ? running.lookup->guess(most) : std::vector<std::int32_t>();
}

std::vector<DraftWish> Scheduler::draft_wishes() const {
  std::vector<DraftWish> wishes;
  if (outstanding_.empty() || outstanding_.back().kind != Outstanding::Kind::kDecode) return wishes;
  for (const RequestId request : outstanding_.back().requests) {
    const Running& running = running_.at(request);
    if (!running.draft || running.draft->n_wished == 0) continue;
    wishes.push_back({.sequence = running.sequence.id,
                      .text = &running.draft->text,
                      .sampling = running.job.sampling,
                      .most = running.draft->n_wished});
  }
  return wishes;
}

void Scheduler::add_guesses(std::span<const DraftWish> wishes,
                            std::vector<std::vector<std::int32_t>> guesses, DecodeBatch& batch) {
  const std::vector<RequestId>& requests = outstanding_.back().requests;
  for (std::size_t i = 0, wish = 0; i < requests.size() && wish < wishes.size(); ++i) {
    DecodeBatch::Row& row = batch.rows.at(i);
    if (row.sequence != wishes[wish].sequence) continue;
    Running& running = running_.at(requests[i]);
    row.guesses = std::move(guesses.at(wish++));
    running.n_guessed = static_cast<std::int64_t>(row.guesses.size());
    running.draft->has_guessed = true;
  }
}

}  // namespace longhaul
