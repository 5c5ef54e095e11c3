#include "coordinator/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace longhaul {

std::vector<SchedulerEvent> Scheduler::add(JobGroup group) {
  const KvBudget& budget = config_.budget;
  std::vector<SchedulerEvent> failures;
  Group added;
  added.has_document = !group.document.empty();
  const auto n_document = static_cast<std::int64_t>(group.document.size());
  added.n_document = n_document;
  added.document_bytes = added.has_document ? budget.bytes_for({0, n_document}) : 0;
  added.document = std::move(group.document);
  for (Job& job : group.jobs) {
    require(!job.prompt.empty(), "scheduler: a request without prompt tokens");
    const std::size_t bytes = bytes_of(job, n_document);
    if (added.document_bytes > budget.limit_bytes ||
        bytes > budget.limit_bytes - added.document_bytes) {
      failures.push_back(RequestFailed{
          job.request, ErrorCode::kOutOfMemory,
          fmt::format("needs up to {:.1f} MiB of KV cache ({} document tokens, {} prompt tokens, "
                      "up to {} new ones); the limit is {:.1f} MiB",
                      static_cast<double>(added.document_bytes + bytes) / 0x1p20, n_document,
                      job.prompt.size(), job.max_tokens,
                      static_cast<double>(budget.limit_bytes) / 0x1p20)});
      continue;
    }
    added.headroom_bytes = std::max(added.headroom_bytes, bytes);
    added.waiting.push_back(std::move(job));
  }
  if (!added.waiting.empty()) groups_.emplace(n_groups_++, std::move(added));
  return failures;
}

bool Scheduler::wants_more() const {
  return n_waiting() + static_cast<std::int64_t>(running_.size()) < config_.max_sequences;
}

std::int64_t Scheduler::n_waiting() const {
  std::int64_t n = 0;
  for (const auto& [number, group] : groups_) n += static_cast<std::int64_t>(group.waiting.size());
  return n;
}

std::vector<Extent> Scheduler::unread_documents() const {
  std::vector<Extent> unread;
  for (const auto& [number, group] : groups_) {
    if (group.document.empty()) continue;  // none, or read and forgotten
    unread.push_back(
        {group.document_sequence.n_prefilled, static_cast<std::int64_t>(group.document.size())});
  }
  return unread;
}

std::size_t Scheduler::bytes_of(const Job& job, std::int64_t n_document) const {
  const auto n_tokens = static_cast<std::int64_t>(job.prompt.size()) + job.max_tokens;
  return config_.budget.bytes_for({n_document, n_document + n_tokens});
}

// While requests wait, a group holds room for its largest one, so every admitted group can go on.
std::size_t Scheduler::Group::bytes_for_requests(std::size_t more) const {
  return std::max(waiting.empty() ? 0 : headroom_bytes, running_bytes + more);
}

std::size_t Scheduler::bytes_free() const {
  std::size_t bytes = config_.budget.limit_bytes;
  for (const auto& [number, group] : groups_) {
    if (group.admitted) bytes -= group.document_bytes + group.bytes_for_requests(0);
  }
  return bytes;
}

void Scheduler::admit_groups() {
  for (auto& [number, group] : groups_) {
    if (group.admitted) continue;
    // In order of arrival: nobody overtakes a large document for ever.
    if (group.document_bytes + group.headroom_bytes > bytes_free()) return;
    group.admitted = true;
    group.document_sequence.id = new_sequence();
    group.document_sequence.stage = group.has_document ? Stage::kToCreate : Stage::kReady;
  }
}

void Scheduler::admit_requests() {
  for (auto& [number, group] : groups_) {
    if (!group.admitted || group.document_sequence.stage != Stage::kReady) continue;
    while (!group.waiting.empty()) {
      if (static_cast<std::int64_t>(running_.size()) >= config_.max_sequences) return;
      const std::size_t bytes = bytes_of(group.waiting.front(), group.n_document);
      if (group.bytes_for_requests(bytes) - group.bytes_for_requests(0) > bytes_free()) break;
      Running running;
      running.job = std::move(group.waiting.front());
      group.waiting.pop_front();
      running.group = number;
      running.bytes = bytes;
      running.sequence.id = new_sequence();
      ++group.n_running;
      group.running_bytes += bytes;
      const RequestId request = running.job.request;
      running_.emplace(request, std::move(running));
    }
  }
}

std::optional<StepCommand> Scheduler::next() {
  if (!drops_.empty()) {
    outstanding_.push_back({.kind = Outstanding::Kind::kDrop, .requests = {}});
    return DropSequences{std::exchange(drops_, {})};
  }
  admit_groups();
  admit_requests();
  if (auto command = create_command()) return command;
  if (auto command = save_document_command()) return command;
  if (auto command = short_prompt_command()) return command;
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
    ++sequence.n_outstanding;
    outstanding_.push_back({.kind = Outstanding::Kind::kCreate, .group = number, .requests = {}});
    return OpenSequence{sequence.id, {}};
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
  return std::nullopt;
}

std::optional<StepCommand> Scheduler::long_prefill_command() {
  for (auto& [request, running] : running_) {
    if (running.sequence.stage != Stage::kToPrefill) continue;
    if (running.sequence.n_sent == static_cast<std::int64_t>(running.job.prompt.size())) continue;
    decode_is_next_ = true;
    return prefill_request(request, running);
  }
  for (auto& [number, group] : groups_) {
    Sequence& sequence = group.document_sequence;
    if (!group.admitted || sequence.stage != Stage::kToPrefill) continue;
    const auto begin = sequence.n_sent;
    const auto n =
        std::min(config_.chunk_len, static_cast<std::int64_t>(group.document.size()) - begin);
    if (n == 0) continue;  // one document after the other, the oldest first
    ++sequence.n_outstanding;
    sequence.n_sent += n;
    decode_is_next_ = true;
    outstanding_.push_back(
        {.kind = Outstanding::Kind::kPrefill, .group = number, .requests = {}, .n_tokens = n});
    return PrefillChunk{
        .sequence = sequence.id,
        .tokens = {group.document.begin() + begin, group.document.begin() + begin + n},
        .after = begin + n == static_cast<std::int64_t>(group.document.size())
                     ? AfterPrefill::kDocumentEnd
                     : AfterPrefill::kNothing};
  }
  return std::nullopt;
}

std::optional<StepCommand> Scheduler::decode_command() {
  // One batch at a time: two in flight would split it in halves for good.
  for (const Outstanding& step : outstanding_) {
    if (step.kind == Outstanding::Kind::kDecode) return std::nullopt;
  }
  DecodeBatch batch;
  Outstanding step{.kind = Outstanding::Kind::kDecode, .requests = {}};
  for (auto& [request, running] : running_) {
    if (running.sequence.stage != Stage::kReady || running.sequence.busy()) continue;
    if (running.next_token < 0) continue;  // complete, its owner has not said so yet
    ++running.sequence.n_outstanding;
    batch.rows.push_back({running.sequence.id, running.next_token, running.job.allowed});
    step.requests.push_back(request);
  }
  if (batch.rows.empty()) return std::nullopt;
  decode_is_next_ = false;
  outstanding_.push_back(std::move(step));
  return batch;
}

}  // namespace longhaul
