#include "tools/supervise/supervise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "tools/job/exit_status.h"
#include "tools/supervise/child_process_group.h"

namespace longhaul {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);   // for its end, and for signals
constexpr auto kCount = std::chrono::seconds(1);         // of ranks: reads all of /proc; at every
                                                         // look until there is a first one
constexpr auto kLastWarning = std::chrono::seconds(10);  // between SIGTERM and SIGKILL
constexpr auto kLongestPause = std::chrono::minutes(1);
// Beyond what a host takes to start a process: a launcher that failed later waited for something.
constexpr auto kMoreThanAStart = std::chrono::seconds(1);

volatile std::sig_atomic_t g_signal = 0;  // the last that came and was not handed on yet
extern "C" void note_signal(int number) { g_signal = number; }

class SignalNotes {
 public:
  SignalNotes() {
    struct sigaction action {};
    action.sa_handler = note_signal;
    for (std::size_t i = 0; i < kNumbers.size(); ++i)
      ::sigaction(kNumbers[i], &action, &before_[i]);
  }
  ~SignalNotes() {
    for (std::size_t i = 0; i < kNumbers.size(); ++i)
      ::sigaction(kNumbers[i], &before_[i], nullptr);
  }
  SignalNotes(const SignalNotes&) = delete;
  SignalNotes& operator=(const SignalNotes&) = delete;
  // 0: none.
  static int take() {
    const int number = g_signal;
    g_signal = 0;
    return number;
  }

 private:
  static constexpr std::array kNumbers = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
  std::array<struct sigaction, kNumbers.size()> before_{};
};

template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  print_stderr("longhaul supervise: {}\n", fmt::format(format, std::forward<Args>(args)...));
}

std::string names_of(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> names;
  for (const HostSlots& host : hosts) names.push_back(host.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<HostSlots> of_unknown_slots(const std::vector<HostSlots>& hosts) {
  std::vector<HostSlots> unknown;
  std::copy_if(hosts.begin(), hosts.end(), std::back_inserter(unknown),
               [](const HostSlots& host) { return !host.n_slots; });
  return unknown;
}

struct Answers {
  std::vector<HostSlots> hosts;  // that started a process in time
  Clock::duration quickest = Clock::duration::max();
};

// Asks all hosts at the same time.
Answers that_answer(const Words& launcher, const std::vector<HostSlots>& hosts,
                    std::chrono::milliseconds limit) {
  std::vector<std::unique_ptr<ChildProcessGroup>> probes;
  for (const HostSlots& host : hosts) {
    probes.push_back(std::make_unique<ChildProcessGroup>(probe_of(launcher, host.name), "",
                                                         ChildProcessGroup::Output::kNone));
  }
  const Clock::time_point asked = Clock::now();
  const Deadline deadline = deadline_in(limit);
  Answers found;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const auto rest =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (probes[i]->wait(std::max(rest, kLook)) != 0) continue;
    found.hosts.push_back(hosts[i]);
    found.quickest = std::min(found.quickest, Clock::now() - asked);
  }
  return found;
}

class Supervisor {
 public:
  explicit Supervisor(const SuperviseConfig& config)
      : config_(config),
        program_name_(own_name()),
        command_(split_command(config.command, program_name_)),
        hosts_(hosts_of(command_.launcher)),
        mark_(fmt::format("LONGHAUL_SUPERVISED={}.{}", ::getpid(), std::random_device()())) {}

  int run() {
    auto pause = config_.first_pause;
    Words launcher = command_.launcher;
    bool failed_late = false;
    for (int n_restarts = 0;; ++n_restarts) {
      const Clock::time_point begun = Clock::now();
      const int status = run_once(launcher);
      const Clock::duration life = Clock::now() - begun;
      // A launcher that was told to end does so with a status of its own.
      if (signal_ != 0) return status == kExitDone ? kExitDone : kExitStopped;
      // Open MPI's mpirun ends with 1, too, when it cannot start its daemon on a host.
      const bool not_started = status == kExitSomeFailed && !had_ranks_ && !hosts_.empty() &&
                               n_restarts < config_.max_restarts;
      if (ending_of(status) == Ending::kFinal && !not_started) return status;
      if (n_restarts == config_.max_restarts) {
        say("stopped or lost {} times; gives up (--max-restarts)", n_restarts + 1);
        return kExitStopped;
      }
      if (!wait(pause)) return kExitStopped;
      pause = std::min<std::chrono::milliseconds>(2 * pause, kLongestPause);
      const auto next = launcher_for_hosts_that_answer();
      signal_ = SignalNotes::take();
      if (!next || signal_ != 0) return kExitStopped;
      // It was no host's fault, unless one was away for a while.
      if (not_started && *next == launcher) {
        if (failed_late || life < quickest_answer_ + kMoreThanAStart) return status;
        failed_late = true;
      }
      launcher = *next;
      say("starts again ({} of {})", n_restarts + 1, config_.max_restarts);
    }
  }

 private:
  static std::string own_name() {
    return std::filesystem::read_symlink("/proc/self/exe").filename().string();
  }

  // False when a signal came meanwhile.
  bool wait(std::chrono::milliseconds time) {
    for (const Deadline end = deadline_in(time); Clock::now() < end;) {
      std::this_thread::sleep_for(kLook);
      signal_ = SignalNotes::take();
      if (signal_ != 0) return false;
    }
    return true;
  }

  int run_once(const Words& launcher) {
    Words words = launcher;
    words.insert(words.end(), command_.program.begin(), command_.program.end());
    ChildProcessGroup job(words, mark_, ChildProcessGroup::Output::kOurs);
    had_ranks_ = false;
    const Clock::time_point begun = Clock::now();
    Clock::time_point last_rank_seen = begun;
    Clock::time_point last_count = begun;
    std::optional<Deadline> must_end;  // since somebody sent a signal
    for (;;) {
      if (const auto status = job.wait(kLook)) {
        if (ending_of(*status) == Ending::kLost)
          say("{} ended with status {}", launcher.front(), *status);
        return *status;
      }
      if (const int number = SignalNotes::take()) {
        signal_ = number;
        job.signal(number);
        if (!must_end) must_end = deadline_in(config_.stop_limit);
      }
      if (must_end && Clock::now() > *must_end) {
        kill_job(job, launcher.front());
        return kExitStopped;
      }
      if (had_ranks_ && Clock::now() - last_count < kCount) continue;
      last_count = Clock::now();
      if (!processes_with(mark_, program_name_).empty()) {
        had_ranks_ = true;
        last_rank_seen = Clock::now();
      } else if (had_ranks_ && Clock::now() - last_rank_seen > config_.grace) {
        end_launcher(job, launcher.front(), "no rank is left on this host", config_.grace);
        return kExitStopped;
      } else if (!had_ranks_ && !hosts_.empty() && Clock::now() - begun > config_.launch_limit) {
        end_launcher(job, launcher.front(), "no rank was started on this host",
                     config_.launch_limit);
        return kExitStopped;
      }
    }
  }

  static void end_launcher(ChildProcessGroup& job, const std::string& name, std::string_view why,
                           std::chrono::duration<double> since) {
    say("{} since {:.3g} s, but {} (process {}) has not ended: a host is lost; ends it", why,
        since.count(), name, job.pid());
    job.signal_group(SIGTERM);
    if (job.wait(kLastWarning)) return;
    job.signal_group(SIGKILL);
    job.wait(kLastWarning);
  }

  // It was told to stop, and does not.
  void kill_job(ChildProcessGroup& job, const std::string& name) const {
    say("{} (process {}) has not ended within {:.3g} s of signal {} (--stop-timeout): kills it; "
        "what was answered is kept",
        name, job.pid(), std::chrono::duration<double>(config_.stop_limit).count(), signal_);
    job.signal_group(SIGKILL);
    job.wait(kLastWarning);
    // Launchers put their ranks into groups of their own.
    for (const pid_t rank : processes_with(mark_, program_name_)) ::kill(rank, SIGKILL);
  }

  // Null: none does.
  std::optional<Words> launcher_for_hosts_that_answer() {
    if (hosts_.empty()) return command_.launcher;
    const Answers answers = that_answer(command_.launcher, hosts_, config_.probe_limit);
    const std::vector<HostSlots>& there = answers.hosts;
    quickest_answer_ = answers.quickest;
    if (there.size() == hosts_.size()) return command_.launcher;
    std::vector<HostSlots> lost;
    std::copy_if(hosts_.begin(), hosts_.end(), std::back_inserter(lost),
                 [&](const HostSlots& host) {
                   return std::find(there.begin(), there.end(), host) == there.end();
                 });
    if (there.empty()) {
      say("none of the hosts answers ({}); gives up", names_of(lost));
      return std::nullopt;
    }
    say("{} {} not answer; goes on with {}", names_of(lost), lost.size() == 1 ? "does" : "do",
        names_of(there));
    if (const auto unknown = of_unknown_slots(there); !unknown.empty()) {
      say("how many ranks {} can have is not known: the number of ranks stays as it was given, and "
          "the launcher may refuse it; write slots=N behind each host of the host file",
          names_of(unknown));
    }
    return with_hosts(command_.launcher, there);
  }

  const SuperviseConfig& config_;
  std::string program_name_;
  LauncherCommand command_;
  std::vector<HostSlots> hosts_;
  std::string mark_;        // in the environment of the job's processes on this host
  int signal_ = 0;          // that somebody sent: the last
  bool had_ranks_ = false;  // on this host, in the last run
  Clock::duration quickest_answer_ = {};
};

}  // namespace

Ending ending_of(int status) {
  if (status == kExitStopped) return Ending::kStopped;
  for (const int own : {kExitDone, kExitSomeFailed, kExitUsage, kExitDoesNotFit, kExitEnvironment,
                        kExitBadInput, kExitInternal}) {
    if (status == own) return Ending::kFinal;
  }
  return Ending::kLost;
}

int supervise(const SuperviseConfig& config) {
  const SignalNotes notes;
  return Supervisor(config).run();
}

}  // namespace longhaul
