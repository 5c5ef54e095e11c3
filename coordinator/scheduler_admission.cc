// The scheduler's memory: what groups, their parts and requests may come to need, and which of them
// may start.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/sizes.h"
#include "coordinator/scheduler.h"

namespace longhaul {

// After `n_before` tokens of other documents, which take `bytes_before`.
Scheduler::Group Scheduler::group_of(JobGroup jobs, std::int64_t n_before, std::size_t bytes_before,
                                     std::vector<SchedulerEvent>& failures) const {
  const KvBudget& budget = config_.budget;
  Group group;
  group.has_document = !jobs.document.empty();
  group.n_document = n_before + static_cast<std::int64_t>(jobs.document.size());
  group.document_bytes = group.has_document ? budget.bytes_for({n_before, group.n_document}) : 0;
  group.document = std::move(jobs.document);
  const std::size_t of_documents = bytes_before + group.document_bytes;
  for (Job& job : jobs.jobs) {
    require(!job.prompt.empty(), "scheduler: a request without prompt tokens");
    const std::size_t bytes = bytes_of(job, group.n_document);
    if (of_documents > budget.limit_bytes || bytes > budget.limit_bytes - of_documents) {
      failures.push_back(RequestFailed{
          job.request, ErrorCode::kOutOfMemory,
          fmt::format("needs up to {} of KV cache ({} document tokens, {} prompt tokens, "
                      "up to {} new ones); the limit is {}",
                      format_byte_size(static_cast<std::int64_t>(of_documents + bytes)),
                      group.n_document, job.prompt.size(), job.max_tokens,
                      format_byte_size(static_cast<std::int64_t>(budget.limit_bytes)))});
      continue;
    }
    group.headroom_bytes = std::max(group.headroom_bytes, bytes);
    group.waiting.push_back(std::move(job));
  }
  for (JobGroup& more : jobs.parts) {
    require(!more.document.empty(), "scheduler: a part without a document");
    Group part = group_of(std::move(more), group.n_document, of_documents, failures);
    if (!part.has_waiting()) continue;
    group.headroom_bytes = std::max(group.headroom_bytes, part.bytes());
    group.parts.push_back(std::move(part));
  }
  return group;
}

std::size_t Scheduler::bytes_of(const Job& job, std::int64_t n_document) const {
  const auto n_tokens = static_cast<std::int64_t>(job.prompt.size()) + job.max_tokens;
  return config_.budget.bytes_for({n_document, n_document + n_tokens});
}

// While requests wait, a group holds room for its largest one, so every admitted group can go on.
std::size_t Scheduler::Group::bytes_for_requests(std::size_t more) const {
  return std::max(has_waiting() ? headroom_bytes : 0, running_bytes + more);
}

std::size_t Scheduler::bytes_free() const {
  std::size_t bytes = config_.budget.limit_bytes;
  for (const auto& [number, group] : groups_) {
    if (group.admitted && !group.is_part()) bytes -= group.bytes();  // parts are part of theirs
  }
  return bytes;
}

// Whether there is room for so many bytes more of a group's requests.
bool Scheduler::fits(const Group& group, std::size_t more) const {
  const std::size_t grows = group.bytes_for_requests(more) - group.bytes_for_requests(0);
  return group.is_part() ? fits(groups_.at(group.parent), grows) : grows <= bytes_free();
}

// After a change of a group that took so many bytes: what it is a part of takes as many more.
void Scheduler::follow_change(const Group& group, std::size_t bytes_before) {
  if (!group.is_part()) return;
  Group& parent = groups_.at(group.parent);
  const std::size_t before = parent.bytes();
  parent.running_bytes += group.bytes() - bytes_before;  // less, too: sums wrap
  follow_change(parent, before);
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
    admit_jobs(number, group);
    admit_parts(number, group);
  }
}

void Scheduler::admit_jobs(std::int64_t number, Group& group) {
  while (!group.waiting.empty()) {
    if (static_cast<std::int64_t>(running_.size()) >= config_.max_sequences) return;
    const std::size_t bytes = bytes_of(group.waiting.front(), group.n_document);
    if (!fits(group, bytes)) return;
    const std::size_t before = group.bytes();
    Running running;
    running.job = std::move(group.waiting.front());
    group.waiting.pop_front();
    running.group = number;
    running.bytes = bytes;
    running.sequence.id = new_sequence();
    ++group.n_running;
    group.running_bytes += bytes;
    follow_change(group, before);
    const RequestId request = running.job.request;
    running_.emplace(request, std::move(running));
  }
}

bool Scheduler::is_within(std::int64_t number, std::int64_t whole) const {
  while (number >= 0 && number != whole) number = groups_.at(number).parent;
  return number == whole;
}

// Only as many as have requests to fill the batch with. Those that wait in the group's own parts,
// or beside it in parts of what it is a part of, have not started.
void Scheduler::admit_parts(std::int64_t number, Group& group) {
  if (group.parts.empty()) return;
  auto n_started = static_cast<std::int64_t>(running_.size());
  for (const auto& [other, part] : groups_) {
    if (!part.is_part()) continue;
    n_started += is_within(number, other) ? std::ssize(part.waiting) : part.n_waiting();
  }
  while (!group.parts.empty() && n_started < config_.max_sequences) {
    const std::size_t bytes = group.parts.front().bytes();
    if (!fits(group, bytes)) return;
    const std::size_t before = group.bytes();
    Group part = std::move(group.parts.front());
    group.parts.pop_front();
    ++group.n_running;
    group.running_bytes += bytes;
    follow_change(group, before);
    part.parent = number;
    part.admitted = true;
    part.document_sequence.id = new_sequence();
    n_started += part.n_waiting();
    groups_.emplace(n_groups_++, std::move(part));
  }
}

}  // namespace longhaul
