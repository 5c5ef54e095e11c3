// The control plane between processes: one TCP connection per worker to the coordinator,
// authenticated, with heartbeats that say what each rank is doing. It carries no tensors. A rank
// that dies, stops or hangs is named, with its host and its last phase.
//
// Threads: each end has a control thread of its own that needs nothing but the clock and the
// socket, so heartbeats go on while the step thread computes or hangs. The public functions belong
// to one other thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cluster/wire/auth.h"
#include "cluster/wire/link.h"
#include "cluster/wire/phase.h"
#include "cluster/wire/report_board.h"

namespace longhaul {

struct ControlTimes {
  std::chrono::milliseconds heartbeat_period{1000};
  std::chrono::milliseconds dead_after{30000};      // silence that means dead
  std::chrono::milliseconds handshake_limit{3000};  // from connection to proof
};

// Of `waited`, a wait for one heartbeat_period as the clock measured it: how long this process did
// not run itself (stopped, suspended with its machine). That time is nobody's silence. Pure.
std::chrono::nanoseconds time_held_up(const ControlTimes& times, std::chrono::nanoseconds waited);

// What the coordinator knows of one rank.
struct WorkerStatus {
  Rank rank;
  std::string host;
  bool connected = false;
  PhaseReport phase;                      // as last told
  std::int64_t silent_ms = 0;             // since it was last heard of
  std::optional<RankReport> report = {};  // what it did and holds, as last told
};
// "rank 3 on node17: step 812, layer 12: waiting for rank 2 since 41 s"
std::string to_text(const WorkerStatus& status);
// Whom to blame when a step does not end: ranks that others wait for and that do not wait
// themselves, else all that are busy.
std::vector<Rank> suspects(const std::vector<WorkerStatus>& statuses);
// "a step did not end before its deadline; rank 3 on node17: ...; raise --step-timeout ..."
std::string describe_hang(const std::vector<WorkerStatus>& statuses);

// The coordinator's side. It listens until all workers are there, and takes only so many
// connections at a time that have not proved themselves: the oldest give way.
class ControlServer {
 public:
  struct Config {
    std::string bind_address = "127.0.0.1";
    std::uint16_t port = 0;  // 0: any free one
    Secret secret{};
    std::int64_t n_workers = 0;
    ControlTimes times;
    const PhaseBoard* board =
        nullptr;  // of the coordinator's own rank: workers are told what it does
    // Called on the control thread when somebody asked a worker to stop the job. May be empty.
    std::function<void()> on_stop = {};
    // Called once, on the control thread, when the first worker is lost; the links then throw the
    // same message. For a process whose other threads may be stuck in a transfer. May be empty.
    std::function<void(const std::string& reason)> on_failure;
    // Called once, as the control thread's last act, when that cannot go on, as without memory: the
    // workers will soon miss the coordinator. The links then throw kPeerFailed. May be empty.
    std::function<void(std::exception_ptr why)> on_broken = {};
  };
  explicit ControlServer(const Config& config);  // listens; throws kIo
  ~ControlServer();  // tells the workers that it is gone, ends its thread
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  std::uint16_t port() const;
  // Blocks until all workers have connected and proved themselves; throws kTimeout naming the ranks
  // that are missing.
  void wait_for_workers(Deadline deadline);
  // The link to one worker; the server must outlive it. A worker that was told to shut down may get
  // a new link for new work; throws kPeerFailed when it is gone. Once any worker has failed, every
  // link's calls throw kPeerFailed with the message that names that worker; at its deadline receive
  // throws kTimeout naming the suspects. A worker may go once it has answered Shutdown; one that
  // goes or falls silent before is lost like any other.
  std::unique_ptr<Link> link(Rank rank);
  std::vector<WorkerStatus> statuses() const;
  // Tells every worker to leave at once.
  void abort_workers();
  // From now on workers that go are no failure: they have been told to, in another way than by
  // Shutdown. Nor is it one for them that the coordinator goes, in whatever order they end.
  void let_workers_go();
  // There is more work for workers that were told to shut down: from now on they are missed again.
  // Throws kPeerFailed when one has gone meanwhile.
  void expect_workers();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A worker's side.
enum class LostCoordinator {
  kGone,     // its process ended, stopped or cannot be reached
  kAborted,  // it told this worker to leave, and tells people why
};
struct ControlClientConfig {
  std::string address;  // of the coordinator
  std::uint16_t port = 0;
  Secret secret{};
  Rank rank;
  std::string host;  // this one's name, for messages
  ControlTimes times;
  const PhaseBoard* board = nullptr;  // must outlive the link; nullptr: heartbeats say "starting"
  ReportBoard* reports = nullptr;     // likewise, of what this rank did and holds; may be null
  // Asked with every heartbeat: true tells the coordinator, once, to stop the job. May be empty.
  std::function<bool()> stop_requested = {};
  // Called once, on the control thread, when the coordinator is gone, silent for times.dead_after,
  // or says abort: the step thread may be stuck in a transfer then.
  std::function<void(LostCoordinator how, const std::string& reason)> on_lost;
  // Likewise, when the coordinator has let this worker go and is gone: no loss.
  std::function<void()> on_left = {};
  // As ControlServer::Config's; the link then ends.
  std::function<void(std::exception_ptr why)> on_broken = {};
};
// Connects and authenticates; throws kTimeout, kIo or kPeerFailed (the other side does not know the
// secret).
std::unique_ptr<WorkerLink> connect_to_coordinator(ControlClientConfig config, Deadline deadline);

}  // namespace longhaul
