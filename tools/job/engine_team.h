// The coordinator of a job: an engine for each replica, all of which take their requests from one
// feed and tell one progress.
#pragma once
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "cluster/wire/link.h"
#include "coordinator/engine.h"

namespace longhaul {

// Everything referred to must outlive run_engines.
struct EngineTeam {
  std::vector<EngineConfig> configs;  // [replica]
  std::vector<Link*> links;           // [replica]
  const Tokenizer* tokenizer = nullptr;
  GroupFeed* feed = nullptr;
  Progress* progress = nullptr;
  // Called one at a time, under `writing`; with several replicas on their threads.
  EngineCallbacks callbacks;
  std::mutex* writing = nullptr;
  // Called on the thread of one of several replicas that failed: its requests would be left, so it
  // must not return.
  std::function<void(std::exception_ptr)> fail;
};

struct TeamResult {
  bool complete = true;             // nothing is left to do
  std::vector<RankReport> reports;  // of all ranks of the replicas, one replica after the other
};

// Blocks until all groups are done or a stop was asked for. A lone replica's engine runs on the
// calling thread, and what it throws comes through.
TeamResult run_engines(const EngineTeam& team);

// What the ranks behind the link did and held so far. Throws what they failed with.
std::vector<RankReport> ask_for_reports(Link& link);

}  // namespace longhaul
