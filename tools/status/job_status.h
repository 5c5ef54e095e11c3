// What the status page, `longhaul top` and metrics show of a job, as one value; and the board that
// the job's threads write what they know to, where it is read from at any moment.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cluster/wire/control_plane.h"
#include "coordinator/progress.h"
#include "coordinator/run_figures.h"
#include "partition/memory_model.h"

namespace longhaul {

// What the plan says of a rank.
struct RankPlanned {
  std::string host = {};
  RankBytes bytes = {};             // all zero: nothing was planned
  std::int64_t kv_limit_bytes = 0;  // that its caches are kept below
};

struct RankNow {
  WorkerStatus status = {};
  RankPlanned planned = {};
  double sent_bytes_per_second = 0;  // over the last seconds
};

struct FailedNote {
  std::string custom_id;
  std::string code;
  std::string message;
};

struct JobStatus {
  std::string version = {};
  std::string model = {};
  std::string state = {};    // "starting", "running", "ended"
  std::string plan = {};     // its hash; empty: one rank alone
  double seconds = 0;        // since the start
  double link_gb_per_s = 0;  // between two ranks, as the plan has it; 0: not known
  RunFigures run = {};
  std::vector<std::string> documents = {};  // names, of run.documents
  std::vector<RankNow> ranks = {};
  std::vector<FailedNote> failures = {};  // the newest last
  Durations writes = {};                  // of a line of results, synced
};

// Thread-safe. What it was given a pointer to is looked at while it reads, until it is taken back.
class StatusBoard {
 public:
  explicit StatusBoard(std::string model) : model_(std::move(model)) {}

  void enter(std::string_view state);
  void set_documents(std::vector<std::string> names);  // [group of requests]
  void watch(const Progress* progress);                // null: what was seen last stays
  // `statuses` is called by whoever reads; null: what was seen last stays.
  void watch_ranks(std::function<std::vector<WorkerStatus>()> statuses);
  void set_plan(std::string hash, std::vector<RankPlanned> ranks, double link_gb_per_s);
  void add_failure(FailedNote failure);
  void add_write(double seconds);

  JobStatus read();

 private:
  // How fast bytes leave a rank: between two looks that are seconds apart.
  struct Sent {
    Clock::time_point at;
    std::int64_t n_bytes = 0;
  };
  struct Speed {
    Sent older;
    Sent newer;
    double bytes_per_second = 0;
  };
  void look_locked();
  double speed_locked(std::int64_t rank, std::int64_t n_bytes);

  const std::string model_;
  const Stopwatch watch_;
  std::mutex mutex_;  // guards what follows
  std::string state_ = "starting";
  std::vector<std::string> documents_;
  const Progress* progress_ = nullptr;
  RunFigures run_;
  std::function<std::vector<WorkerStatus>()> statuses_;
  std::vector<WorkerStatus> ranks_;
  std::vector<RankPlanned> planned_;
  std::string plan_;
  double link_gb_per_s_ = 0;
  std::map<std::int64_t, Speed> speeds_;
  std::vector<FailedNote> failures_;
  Durations writes_;
};

// Of all kinds of traffic.
std::int64_t sent_bytes(const RankReport& report);
std::int64_t kv_bytes(const RankReport& report);

}  // namespace longhaul
