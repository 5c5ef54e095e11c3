// Ranks as the processes that mpirun or srun started. Every process' main thread is a worker's step
// thread and owns MPI; on rank 0 the coordinator runs on threads of its own. All ranks, rank 0's
// worker too, hold a control connection to rank 0, whose address and secret travel over MPI.
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <optional>
#include <span>
#include <thread>

#include "base/error.h"
#include "base/event_log.h"
#include "base/file_wait.h"
#include "base/last_wait.h"
#include "base/log.h"
#include "cluster/comm/host_info.h"
#include "cluster/comm/interfaces.h"
#include "cluster/comm/mpi_environment.h"
#include "tools/job/check_in.h"
#include "tools/job/deadlines.h"
#include "tools/job/exit_status.h"
#include "tools/job/file_wait_rules.h"
#include "tools/job/job_end.h"
#include "tools/job/launch.h"
#include "tools/job/plan_job.h"
#include "tools/job/rank_clock.h"
#include "tools/job/rank_links.h"
#include "tools/job/rank_place.h"
#include "tools/job/rank_ranges.h"
#include "tools/job/rank_server.h"
#include "tools/job/start_watch.h"
#include "tools/job/stop_signal.h"
#include "tools/job/weight_check.h"

namespace longhaul {
namespace {

constexpr auto kConnectDeadline = std::chrono::seconds(30);
constexpr auto kWatchFirst = std::chrono::seconds(10);  // StartWatch says more than MPI's watchdog
// Rank 0 has let this rank go and left. What it said last does not come where it passes through a
// rank that is stopped: then this one leaves by itself.
constexpr auto kWithoutCoordinator = std::chrono::minutes(1);

std::chrono::seconds whole_seconds(std::chrono::milliseconds time) {
  return std::chrono::ceil<std::chrono::seconds>(time);
}

// What rank 0 tells the others to do next, by broadcast.
constexpr std::string_view kServe = "serve";        // a plan
constexpr std::string_view kFind = "find";          // out what cluster they are
constexpr std::string_view kTogether = "together";  // a task; its order follows
constexpr std::string_view kLeave = "leave";

// Where the coordinator listens, as bytes that are broadcast.
struct ControlPoint {
  std::array<char, 64> address{};  // ends with 0
  std::uint16_t port = 0;
  Secret secret{};
};

// Collective. Where the ranks are; none does anything else before all hosts are known to reach each
// other. On rank 0 those of all ranks.
std::vector<RankPlace> meet(const JobConfig& config) {
  const Reach reach = find_reach(place_of_this_rank(config.interfaces), greeting_limit(config));
  if (reach.complete()) return reach.places;
  if (!reach.places.empty()) throw Error(ErrorCode::kIo, explain_reach(reach));
  std::this_thread::sleep_for(std::chrono::seconds(2));  // rank 0 tells people and leaves first
  MpiEnvironment::exit_now(kExitEnvironment);
}

bool is_loss(std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.code() == ErrorCode::kPeerFailed;
  } catch (...) {
    return false;
  }
}

class ProcessRank {
 public:
  ProcessRank(const JobConfig& config, const Task& task)
      : config_(config),
        task_(task),
        end_(config.after_loss),
        environment_(nullptr, nullptr, whole_seconds(config.start_timeout) + kWatchFirst),
        places_(meet(config)) {
    CommunicatorConfig comm;
    comm.kind = CommunicatorKind::kMpi;
    comm.default_deadline = transfer_deadline(config);
    comm_ = make_communicator(comm);
    hosts_ = host_info(*comm_);
    set_log_rank(fmt::format("{}:{}", hosts_.hostname, comm_->rank()));
    set_event_rank(comm_->rank(), hosts_.hostname);
    if (comm_->size() > 1) connect();
    file_waits_.emplace(wait_rules());
    server_of_rank_ = std::make_unique<RankServer>(*comm_, config_, board_, &reports_);
  }

  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }

  // Collective over all ranks: they find that they run the same job, or all leave with the status
  // that is returned, which rank 0 has explained.
  std::optional<int> check_in(const OpenModel& open_model);
  // Rank 0, one of several.
  int lead(const Lead& lead);
  // The only rank: leads as one that no launcher started, and ends MPI.
  int lead_alone(const Lead& lead);
  // The other ranks: until rank 0 says that it is over.
  int serve();

 private:
  void connect();
  FileWaitRules wait_rules();
  std::string who_loads() const;
  void on_lost(LostCoordinator how, const std::string& reason);
  void run(const JobWork& work, const Drive& drive);
  int finish(int status);
  void tell_clock();

  // The server outlives MPI_Finalize, and so the other ranks' connections.
  const JobConfig& config_;
  const Task& task_;
  JobEnd end_;
  PhaseBoard board_;
  ReportBoard reports_;
  std::atomic<bool> has_begun_ = false;  // all ranks are connected
  std::atomic<bool> served_ = false;     // from then on a closed connection is no loss
  LastWait last_wait_{kWithoutCoordinator, [] { MpiEnvironment::exit_now(kExitDone); }};
  MpiEnvironment environment_;
  std::vector<RankPlace> places_;  // on rank 0
  std::unique_ptr<Communicator> comm_;
  HostInfo hosts_;
  CheckIn checked_in_;
  std::unique_ptr<ControlServer> server_;  // on rank 0
  std::unique_ptr<WorkerLink> link_;
  std::unique_ptr<RankServer> server_of_rank_;
  std::optional<FileWaitPolicy> file_waits_;
};

FileWaitRules ProcessRank::wait_rules() {
  if (rank() != 0) return file_wait_rules_of_follower();
  FileWaitRules rules = file_wait_rules(config_, end_);
  if (size() > 1) rules.where = [this] { return who_loads(); };
  return rules;
}

// Rank 0 waits for the others' files as well as for its own.
std::string ProcessRank::who_loads() const {
  std::vector<std::size_t> loading;
  for (const WorkerStatus& status : server_->statuses()) {
    if (status.phase.activity == Activity::kLoading)
      loading.push_back(static_cast<std::size_t>(status.rank.value));
  }
  return fmt::format(" on {}", loading.empty() ? "rank 0" : ranges_of(loading));
}

// Collective over all ranks.
void ProcessRank::connect() {
  const ControlTimes times = control_times(config_);
  ControlPoint point;
  if (rank() == 0) {
    std::string address = config_.control_address;
    if (address.empty()) address = hosts_.n_hosts == 1 ? "127.0.0.1" : control_address(places_);
    require(address.size() < point.address.size(), "--control-address is no address");
    std::memcpy(point.address.data(), address.data(), address.size());
    point.secret = random_secret();
    ControlServer::Config config;
    config.bind_address = address;
    config.secret = point.secret;
    config.n_workers = size();
    config.times = times;
    config.board = &board_;
    config.on_stop = request_stop;
    config.on_broken = [this](std::exception_ptr why) { end_.fail(why); };
    // On a thread of its own: the control thread has aborts to send.
    config.on_failure = [this](const std::string& reason) {
      std::thread([this, reason] { end_.fail(reason, "rank_lost"); }).detach();
    };
    server_ = std::make_unique<ControlServer>(config);
    point.port = server_->port();
    end_.before([this] {
      server_->abort_workers();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for them to be sent
    });
  }
  comm_->broadcast(std::as_writable_bytes(std::span(&point, 1)), 0);
  ControlClientConfig client;
  client.address = point.address.data();
  client.port = point.port;
  client.secret = point.secret;
  client.rank = {rank()};
  client.host = hosts_.hostname;
  client.times = times;
  client.board = &board_;
  client.reports = &reports_;
  if (rank() != 0) client.stop_requested = stop_requested;
  client.on_lost = [this](LostCoordinator how, const std::string& reason) { on_lost(how, reason); };
  client.on_broken = [this](std::exception_ptr why) { end_.fail(why); };
  client.on_left = [this] {
    try {
      last_wait_.begin();
    } catch (const std::system_error&) {
      MpiEnvironment::exit_now(kExitDone);
    }
  };
  try {
    link_ = connect_to_coordinator(std::move(client), deadline_in(kConnectDeadline));
    if (server_) server_->wait_for_workers(deadline_in(kConnectDeadline));
  } catch (...) {
    // Those that are there must not take the cause of the end for a loss.
    if (server_) end_.fail(std::current_exception());
    throw;
  }
}

// On the control thread; the step thread may be stuck.
void ProcessRank::on_lost(LostCoordinator how, const std::string& reason) {
  if (served_) return;
  constexpr int kSpeakers = 4;  // ranks that tell people; the others would say the same
  if (how == LostCoordinator::kGone && rank() < kSpeakers) {
    // Rank 0 may have left for a reason of its own, without a connection to say so: its status
    // first.
    if (!has_begun_) std::this_thread::sleep_for(std::chrono::seconds(1));
    end_.fail(fmt::format("rank {} on {} has lost the coordinator, rank 0 on {}: {}", rank(),
                          hosts_.hostname, hosts_.hostnames.front(), reason),
              "coordinator_lost");
  }
  // Rank 0 tells people and leaves first, so that its exit status becomes the job's.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  end_.leave(kExitStopped);
}

int ProcessRank::finish(int status) {
  served_ = true;
  last_wait_.call_off();
  MpiEnding ending{.status = status, .status_if_stuck = status};
  if (rank() == 0) {
    ending.ends_others = size() > 1;
  } else {  // rank 0, whose status is the job's, goes first where it can
    ending.status_if_stuck = kExitStopped;
    ending.limit += std::chrono::seconds(15);
  }
  return environment_.finish(ending, [this] {
    link_.reset();
    server_of_rank_.reset();
    comm_.reset();
  });
}

std::optional<int> ProcessRank::check_in(const OpenModel& open_model) {
  try {
    const FileWait wait(FileUse::kReadingBeforeWork, "the model");
    checked_in_ = longhaul::check_in(*comm_, hosts_, config_, open_model, &board_);
    has_begun_ = true;
    if (keeps_events()) tell_clock();
    return std::nullopt;
  } catch (const Error& error) {
    if (comm_->broken()) throw;  // a rank was lost: that is told in another way
    const int status = rank() == 0 ? report_failure(std::current_exception())
                                   : static_cast<int>(exit_status_of(error.code()));
    if (server_) server_->let_workers_go();
    comm_->barrier();  // nobody closes a connection before rank 0 has let it
    return finish(status);
  }
}

// Collective over all ranks, which all keep events.
void ProcessRank::tell_clock() {
  const RankClock clock = find_rank_clock(*comm_);
  set_event_clock(clock.offset_ns);
  log_event("clock", {{"offset_ns", clock.offset_ns}, {"round_trip_ns", clock.round_trip_ns}});
}

int ProcessRank::lead(const Lead& lead) {
  JobRanks ranks;
  ranks.n_ranks = size();
  ranks.plans = true;
  ranks.instruction_sets = checked_in_.instruction_sets;
  ranks.run = [this](const JobWork& work, const Drive& drive) { run(work, drive); };
  ranks.find_cluster = [this](ModelSource& model) {
    server_->expect_workers();
    comm_->broadcast_text(std::string(kFind), 0);
    try {
      return server_of_rank_->find_cluster(model);
    } catch (...) {
      end_.fail(std::current_exception());
    }
  };
  ranks.together = [this](ModelSource& model, const std::string& order) {
    server_->expect_workers();
    comm_->broadcast_text(std::string(kTogether), 0);
    comm_->broadcast_text(order, 0);
    try {
      server_of_rank_->work_together(model, task_, order);
    } catch (...) {
      end_.fail(std::current_exception());
    }
  };
  int status = kExitInternal;
  try {
    status = lead(ranks);
  } catch (...) {
    status = report_failure(std::current_exception());
  }
  server_->let_workers_go();
  comm_->broadcast_text(std::string(kLeave), 0);
  return finish(status);
}

int ProcessRank::lead_alone(const Lead& lead) {
  int status = kExitInternal;
  try {
    status = run_alone(config_, end_, lead, task_);
  } catch (...) {
    status = report_failure(std::current_exception());
  }
  return finish(status);
}

// The main thread is rank 0's step thread; `drive` runs on one of its own.
void ProcessRank::run(const JobWork& work, const Drive& drive) {
  server_->expect_workers();
  comm_->broadcast_text(std::string(kServe), 0);
  RankLinks links;
  links.hosts = hosts_.hostnames;
  links.instruction_sets = checked_in_.instruction_sets;
  links.link = [this](Rank rank) { return server_->link(rank); };
  links.statuses = [this] { return server_->statuses(); };
  links.name_hangs = true;
  std::promise<JobPlan> planned;
  std::exception_ptr refusal;
  std::jthread coordinator([&] {
    JobPlan plan;
    try {
      plan = planned.get_future().get();
    } catch (...) {
      refusal = std::current_exception();
      return;
    }
    try {
      drive_ranks(plan, work.workload, links, end_, drive);
    } catch (...) {
      end_.fail(std::current_exception());
    }
  });
  try {
    server_of_rank_->serve(
        *work.model, *link_,
        {.make_plan = [&](const ClusterSpec& found) { return plan_job(config_, work, found); },
         .planned = [&](const JobPlan& plan) { planned.set_value(plan); },
         .refused = [&](std::exception_ptr why) { planned.set_exception(why); }});
  } catch (...) {
    end_.fail(std::current_exception());
  }
  coordinator.join();
  if (refusal) std::rethrow_exception(refusal);
}

int ProcessRank::serve() {
  hand_on_stop_signals();  // rank 0 hears of them with the next heartbeat, and decides
  try {
    ModelSource* const model = checked_in_.model.get();
    for (;;) {
      const std::string order = comm_->broadcast_text("", 0);
      if (order == kLeave) return finish(kExitDone);
      if (order == kFind) {
        server_of_rank_->find_cluster(*model);
      } else if (order == kTogether) {
        server_of_rank_->work_together(*model, task_, comm_->broadcast_text("", 0));
      } else {
        server_of_rank_->serve(*model, *link_, {});
      }
    }
  } catch (...) {
    const Verdict why = verdict_of(std::current_exception(), rank());
    comm_->abort(why.code, why.message);
    // Rank 0 may wait for this rank's answer: it is the cause, and not that its connection closes.
    link_->answer(StepFailed{.code = why.code, .message = why.message, .ends_job = true});
    LONGHAUL_LOG(kError, kRun, "event=rank_failed reason=\"{}\"", why.message);
    std::this_thread::sleep_for(std::chrono::seconds(2));  // rank 0 tells people and leaves first
    end_.leave(exit_status_of(why.code));
  }
}

}  // namespace

int run_on_processes(const JobConfig& config, const OpenModel& open_model, const Lead& lead,
                     const Task& task) {
  try {
    tell_interfaces(config.interfaces);
    StartWatch watch(config.start_timeout);
    ProcessRank rank(config, task);
    watch.over();
    if (rank.size() == 1) {
      if (config.verify_weights && open_model) verify_if_asked(config, open_model().get());
      return rank.lead_alone(lead);
    }
    if (const auto status = rank.check_in(open_model)) return *status;
    return rank.rank() == 0 ? rank.lead(lead) : rank.serve();
  } catch (...) {
    // The start failed on this rank; the others wait for it in vain. One that only lost others
    // leaves after them, so that the status of the cause becomes the job's.
    if (is_loss(std::current_exception())) std::this_thread::sleep_for(std::chrono::seconds(1));
    MpiEnvironment::exit_now(report_failure(std::current_exception(), config.after_loss));
  }
}

}  // namespace longhaul
