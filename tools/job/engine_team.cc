#include "tools/job/engine_team.h"

#include <thread>

#include "base/error.h"

namespace longhaul {
namespace {

constexpr auto kReportDeadline = std::chrono::seconds(60);

// One at a time, and never cut short by the end of the process. An empty one stays empty.
template <typename Result, typename... Args>
std::function<Result(Args...)> locked(const std::function<Result(Args...)>& callback,
                                      std::mutex& writing) {
  if (!callback) return {};
  return [&](Args... args) {
    const std::lock_guard lock(writing);
    return callback(args...);
  };
}

EngineCallbacks locked(const EngineCallbacks& callbacks, std::mutex& writing) {
  return {.on_done = locked(callbacks.on_done, writing),
          .on_failed = locked(callbacks.on_failed, writing),
          .on_text = locked(callbacks.on_text, writing),
          .picked_before = locked(callbacks.picked_before, writing),
          .on_unfinished = locked(callbacks.on_unfinished, writing),
          .on_note = locked(callbacks.on_note, writing),
          .on_warning = locked(callbacks.on_warning, writing),
          .on_progress = locked(callbacks.on_progress, writing),
          .stop_requested = callbacks.stop_requested};
}

TeamResult run_engine(const EngineTeam& team, std::size_t replica) {
  Engine engine(team.configs[replica], *team.tokenizer, *team.links[replica], *team.feed,
                *team.progress, locked(team.callbacks, *team.writing));
  const bool complete = engine.run();
  return {complete, ask_for_reports(*team.links[replica])};
}

}  // namespace

TeamResult run_engines(const EngineTeam& team) {
  team.progress->set_lanes(team.links.size());
  if (team.links.size() == 1) return run_engine(team, 0);
  std::vector<TeamResult> results(team.links.size());  // each written by one thread
  {
    std::vector<std::jthread> engines;
    for (std::size_t r = 0; r < team.links.size(); ++r) {
      engines.emplace_back([&, r] {
        try {
          results[r] = run_engine(team, r);
        } catch (...) {
          team.fail(std::current_exception());
        }
      });
    }
  }
  TeamResult all;
  for (const TeamResult& one : results) {
    all.complete = all.complete && one.complete;
    all.reports.insert(all.reports.end(), one.reports.begin(), one.reports.end());
  }
  return all;
}

std::vector<RankReport> ask_for_reports(Link& link) {
  link.send(ReportRank{});
  const StepResult result = link.receive(deadline_in(kReportDeadline));
  if (const auto* done = std::get_if<StepDone>(&result)) return done->reports;
  const auto& failed = std::get<StepFailed>(result);
  throw Error(failed.code, failed.message);
}

}  // namespace longhaul
