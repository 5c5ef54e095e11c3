#include "tools/job/rank_links.h"

#include <exception>
#include <optional>
#include <utility>
#include <variant>

#include "base/error.h"
#include "cluster/wire/group_link.h"
#include "tools/job/plan_job.h"

namespace longhaul {
namespace {

constexpr auto kShutDownDeadline = std::chrono::seconds(60);

// All are told before one is waited for. Throws what a rank answers that could not end its work,
// such as with a trace that found no room.
void shut_down(const std::vector<std::unique_ptr<Link>>& links) {
  for (const auto& link : links) link->send(Shutdown{});
  const Deadline deadline = deadline_in(kShutDownDeadline);
  std::optional<StepFailed> first;
  for (const auto& link : links) {
    const StepResult result = link->receive(deadline);
    const auto* failed = std::get_if<StepFailed>(&result);
    if (failed != nullptr && !first) first = *failed;
  }
  if (first) throw Error(first->code, first->message);
}

// A step that timed out: what every rank is doing.
std::exception_ptr with_phases(std::exception_ptr failure, const RankLinks& ranks) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout || !ranks.statuses || ranks.name_hangs) return failure;
    return std::make_exception_ptr(Error(ErrorCode::kTimeout, describe_hang(ranks.statuses())));
  } catch (...) {
    return failure;
  }
}

}  // namespace

RankGroups rank_groups(const Plan& plan, std::int64_t n_ranks) {
  RankGroups groups;
  std::vector<bool> has_part(static_cast<std::size_t>(n_ranks), false);
  for (const Replica& replica : plan.replicas) {
    std::vector<Rank>& members = groups.replicas.emplace_back();
    for (const Stage& stage : replica.stages) {
      for (const Rank rank : stage.ring) {
        has_part.at(static_cast<std::size_t>(rank.value)) = true;
        members.push_back(rank);
      }
    }
  }
  for (std::int64_t r = 0; r < n_ranks; ++r) {
    if (!has_part[static_cast<std::size_t>(r)]) groups.idle.push_back(Rank{r});
  }
  return groups;
}

void drive_ranks(const JobPlan& job, const Workload& workload, const RankLinks& ranks, JobEnd& end,
                 const Drive& drive) {
  const RankGroups groups = rank_groups(*job.plan, job.cluster->n_ranks());
  std::vector<std::unique_ptr<Link>> links;
  JobRun run{.job = &job,
             .workload = as_planned(workload, *job.plan),
             .replicas = {},
             .hosts = ranks.hosts,
             .instruction_sets = ranks.instruction_sets,
             .statuses = ranks.statuses,
             .writing = &end.writing(),
             .fail = [&](std::exception_ptr why) { end.fail(with_phases(why, ranks)); }};
  for (const std::vector<Rank>& replica : groups.replicas) {
    std::vector<GroupLink::Member> members;
    for (const Rank rank : replica) {
      members.push_back(
          {{rank, ranks.hosts[static_cast<std::size_t>(rank.value)]}, ranks.link(rank)});
    }
    links.push_back(std::make_unique<GroupLink>(std::move(members)));
    run.replicas.push_back(links.back().get());
  }
  for (const Rank rank : groups.idle) links.push_back(ranks.link(rank));
  try {
    drive(run);
    shut_down(links);
  } catch (...) {
    run.fail(std::current_exception());
  }
}

}  // namespace longhaul
