#include "cluster/wire/group_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

// Failures that only say that another rank failed, or may have.
bool is_consequence(ErrorCode code) {
  return code == ErrorCode::kPeerFailed || code == ErrorCode::kTimeout;
}

// Failures after which the ranks' communicators cannot be used any more.
bool breaks_the_ring(ErrorCode code) {
  return is_consequence(code) || code == ErrorCode::kMpi || code == ErrorCode::kNccl ||
         code == ErrorCode::kCuda;
}

void append_all(auto& to, auto& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

StepDone merge_done(std::vector<RankResult>& results) {
  StepDone merged;
  for (RankResult& r : results) {
    auto& done = std::get<StepDone>(r.result);
    if (merged.picked.empty()) merged.picked = std::move(done.picked);
    if (merged.scored.empty()) merged.scored = std::move(done.scored);
    merged.kv_bytes_in_use += done.kv_bytes_in_use;
    merged.seconds = std::max(merged.seconds, done.seconds);
    for (RankReport& report : done.reports) report.rank = r.from.rank;
    append_all(merged.reports, done.reports);
    for (RankRates& rates : done.rates) rates.rank = r.from.rank;
    append_all(merged.rates, done.rates);
  }
  std::stable_sort(merged.reports.begin(), merged.reports.end(),
                   [](const RankReport& a, const RankReport& b) { return a.rank < b.rank; });
  return merged;
}

}  // namespace

std::string to_text(const RankName& name) {
  if (name.host.empty()) return fmt::format("rank {}", name.rank.value);
  return fmt::format("rank {} on {}", name.rank.value, name.host);
}

StepResult merge_results(std::vector<RankResult> results) {
  require(!results.empty(), "results of no rank");
  std::sort(results.begin(), results.end(),
            [](const RankResult& a, const RankResult& b) { return a.from.rank < b.from.rank; });
  const RankResult* cause = nullptr;
  bool is_broken = false;
  for (const RankResult& r : results) {
    const auto* failure = std::get_if<StepFailed>(&r.result);
    if (failure == nullptr) continue;
    is_broken = is_broken || failure->ends_job || breaks_the_ring(failure->code);
    if (cause == nullptr || (is_consequence(std::get<StepFailed>(cause->result).code) &&
                             !is_consequence(failure->code))) {
      cause = &r;
    }
  }
  if (cause == nullptr) return merge_done(results);
  const auto& failure = std::get<StepFailed>(cause->result);
  // With one rank there is nobody to tell it from.
  const std::string text = results.size() == 1
                               ? failure.message
                               : fmt::format("{}: {}", to_text(cause->from), failure.message);
  if (is_broken) throw Error(failure.code, text);
  return StepFailed{.code = failure.code, .message = text};
}

GroupLink::GroupLink(std::vector<Member> members) : members_(std::move(members)) {
  require(!members_.empty(), "a group link to no rank");
}

void GroupLink::send(StepCommand command) {
  for (std::size_t i = 0; i + 1 < members_.size(); ++i) members_[i].link->send(command);
  members_.back().link->send(std::move(command));
}

StepResult GroupLink::receive(Deadline deadline) {
  std::vector<RankResult> results;
  for (Member& member : members_) results.push_back({member.name, member.link->receive(deadline)});
  return merge_results(std::move(results));
}

}  // namespace longhaul
