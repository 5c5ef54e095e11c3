// Ranks as the processes that mpirun or srun started. Every process' main thread is a worker's step
// thread and owns MPI; on rank 0 the coordinator runs on threads of its own. All ranks, rank 0's
// worker too, hold a control connection to rank 0, whose address and secret travel over MPI.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <optional>
#include <span>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "cluster/comm/host_info.h"
#include "cluster/comm/mpi_environment.h"
#include "tools/environment.h"
#include "tools/exit_status.h"
#include "tools/launch.h"
#include "tools/rank_duties.h"
#include "tools/stop_signal.h"
#include "tools/weights_flag.h"

namespace longhaul {
namespace {

constexpr auto kConnectDeadline = std::chrono::seconds(30);
constexpr std::string_view kGo = "go";

// Where the coordinator listens, as bytes that are broadcast.
struct ControlPoint {
  std::array<char, 64> address{};  // ends with 0
  std::uint16_t port = 0;
  Secret secret{};
};

// This node's first network interface that is up and not the loopback.
std::string first_interface_address() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw_errno("cannot list", "network interfaces");
  std::string found;
  for (const ifaddrs* at = all; at != nullptr && found.empty(); at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    if ((at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0) continue;
    sockaddr_in address{};
    std::memcpy(&address, at->ifa_addr, sizeof address);
    std::array<char, INET_ADDRSTRLEN> text{};
    if (::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size()) != nullptr)
      found = text.data();
  }
  ::freeifaddrs(all);
  if (found.empty()) {
    throw Error(ErrorCode::kIo,
                "rank 0's node has no network interface for the control connections of the other "
                "nodes; --control-address names one");
  }
  return found;
}

ControlTimes control_times(const RunOptions& options) {
  ControlTimes times;
  times.dead_after =
      std::chrono::milliseconds(static_cast<std::int64_t>(options.dead_after_seconds * 1e3));
  times.heartbeat_period = std::min(times.heartbeat_period, times.dead_after / 5);
  return times;
}

class ProcessRank {
 public:
  explicit ProcessRank(const RunOptions& options)
      : options_(options), environment_(nullptr, nullptr) {
    CommunicatorConfig config;
    config.kind = CommunicatorKind::kMpi;
    config.default_deadline = transfer_deadline(options);
    comm_ = make_communicator(config);
    hosts_ = host_info(*comm_);
    set_log_rank(fmt::format("{}:{}", hosts_.hostname, comm_->rank()));
    if (comm_->size() > 1) connect();
  }

  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }

  // Rank 0.
  int coordinate(const std::function<int(const Launch&)>& run);
  // The other ranks: until rank 0 says that it is over.
  int serve();

 private:
  void connect();
  void on_lost(LostCoordinator how, const std::string& reason);
  bool start(const JobStart& job);
  int finish(int status);

  // The server outlives MPI_Finalize, and so the other ranks' connections.
  const RunOptions& options_;
  JobEnd end_;
  PhaseBoard board_;
  std::atomic<bool> served_ = false;  // from then on a closed connection is no loss
  bool started_ = false;              // the other ranks have been told to go
  MpiEnvironment environment_;
  std::unique_ptr<Communicator> comm_;
  HostInfo hosts_;
  std::unique_ptr<ControlServer> server_;  // on rank 0
  std::unique_ptr<WorkerLink> link_;
};

// Collective over all ranks.
void ProcessRank::connect() {
  const ControlTimes times = control_times(options_);
  ControlPoint point;
  if (rank() == 0) {
    std::string address = options_.control_address;
    if (address.empty()) address = hosts_.n_hosts == 1 ? "127.0.0.1" : first_interface_address();
    require(address.size() < point.address.size(), "--control-address is no address");
    std::memcpy(point.address.data(), address.data(), address.size());
    point.secret = random_secret();
    ControlServer::Config config;
    config.bind_address = address;
    config.secret = point.secret;
    config.n_workers = size();
    config.times = times;
    // On a thread of its own: the control thread has aborts to send.
    config.on_failure = [this](const std::string& reason) {
      std::thread([this, reason] { end_.fail(reason); }).detach();
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
  client.rank = rank();
  client.host = hosts_.hostname;
  client.times = times;
  client.board = &board_;
  client.on_lost = [this](LostCoordinator how, const std::string& reason) { on_lost(how, reason); };
  link_ = connect_to_coordinator(std::move(client), deadline_in(kConnectDeadline));
  if (server_) server_->wait_for_workers(deadline_in(kConnectDeadline));
}

// On the control thread; the step thread may be stuck.
void ProcessRank::on_lost(LostCoordinator how, const std::string& reason) {
  if (served_) return;
  constexpr int kSpeakers = 4;  // ranks that tell people; the others would say the same
  if (how == LostCoordinator::kGone && rank() < kSpeakers) {
    end_.fail(fmt::format("rank {} on {} has lost the coordinator, rank 0 on {}: {}", rank(),
                          hosts_.hostname, hosts_.hostnames.front(), reason));
  }
  // Rank 0 tells people and leaves first, so that its exit status becomes the job's.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  end_.leave(kExitStopped);
}

int ProcessRank::finish(int status) {
  served_ = true;
  link_.reset();
  comm_.reset();
  return environment_.finish(status);
}

int ProcessRank::coordinate(const std::function<int(const Launch&)>& run) {
  Launch launch;
  launch.n_ranks = size();
  if (size() > 1) launch.start = [this](const JobStart& job) { return start(job); };
  int status = kExitInternal;
  try {
    status = run(launch);
  } catch (...) {
    status = report_failure(std::current_exception(), /*of_ranks=*/false);
  }
  if (!started_) {
    if (server_) server_->let_workers_go();
    comm_->broadcast_text("leave", 0);
  }
  return finish(status);
}

bool ProcessRank::start(const JobStart& job) {
  comm_->broadcast_text(std::string(kGo), 0);
  started_ = true;
  RankLinks links;
  links.hosts = hosts_.hostnames;
  links.link = [this](Rank rank) { return server_->link(rank); };
  std::promise<JobPlan> planned;
  std::exception_ptr refusal;
  bool complete = false;
  std::jthread coordinator([&] {
    JobPlan plan;
    try {
      plan = planned.get_future().get();
    } catch (...) {
      refusal = std::current_exception();
      return;
    }
    try {
      complete = job.coordinate(plan, links, end_);
    } catch (...) {
      end_.fail(std::current_exception());
    }
  });
  const auto make_plan = [&](const ClusterSpec& found) {
    try {
      return job.make_plan(found);
    } catch (...) {
      server_->let_workers_go();  // as soon as they hear of it
      throw;
    }
  };
  WeightsShelf shelf(*job.model, asked_weights(options_.weights));
  try {
    serve_rank(*comm_, {.options = &options_,
                        .model = job.model,
                        .shelf = &shelf,
                        .board = &board_,
                        .link = link_.get(),
                        .make_plan = make_plan,
                        .planned = [&](const JobPlan& plan) { planned.set_value(plan); },
                        .refused = [&](std::exception_ptr why) { planned.set_exception(why); }});
  } catch (...) {
    end_.fail(std::current_exception());
  }
  coordinator.join();
  if (refusal) std::rethrow_exception(refusal);
  return complete;
}

int ProcessRank::serve() {
  ignore_stop_signals();  // rank 0 decides when to stop
  try {
    if (comm_->broadcast_text("", 0) == kGo) {
      const ModelFolder model(find_model_folder(options_.model, hub_cache()));
      WeightsShelf shelf(model, asked_weights(options_.weights));
      serve_rank(*comm_, {.options = &options_,
                          .model = &model,
                          .shelf = &shelf,
                          .board = &board_,
                          .link = link_.get(),
                          .make_plan = {},
                          .planned = {},
                          .refused = {}});
    }
    return finish(kExitDone);
  } catch (const Error& error) {
    comm_->abort(error.code(), error.what());
    LONGHAUL_LOG(kError, kRun, "event=rank_failed reason=\"{}\"", error.what());
    std::this_thread::sleep_for(std::chrono::seconds(2));  // rank 0 tells people and leaves first
    end_.leave(exit_status_of(error.code()));
  }
}

}  // namespace

int run_under_mpi(const RunOptions& options, const std::function<int(const Launch&)>& run) {
  try {
    ProcessRank job(options);
    return job.rank() == 0 ? job.coordinate(run) : job.serve();
  } catch (...) {
    // The start failed on this rank; the others wait for it in vain.
    MpiEnvironment::exit_now(report_failure(std::current_exception(), /*of_ranks=*/true));
  }
}

}  // namespace longhaul
