#include "tools/doctor/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "cluster/comm/communicator.h"
#include "cluster/comm/host_info.h"
#include "cluster/comm/interfaces.h"
#include "cluster/comm/mpi_environment.h"
#include "cluster/comm/reach.h"
#include "tools/doctor/judge.h"
#include "tools/doctor/links.h"
#include "tools/job/exit_status.h"
#include "tools/job/rank_place.h"
#include "tools/job/start_watch.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using Print = std::function<void(const std::vector<Finding>&)>;

constexpr std::size_t kMaxFactsBytes = 1 << 20;

int status_of(const std::vector<Finding>& findings) {
  return worst_of(findings) == Health::kFail ? kExitEnvironment : kExitDone;
}

RankFacts examine(const DoctorConfig& config, int rank) {
  RankFacts facts = facts_of_this_rank();
  try_scratch(config.scratch, rank, facts);
  if (!config.open_model) return facts;
  try {
    facts.model = config.open_model();
  } catch (const std::exception& error) {
    facts.model_error = error.what();
  }
  return facts;
}

// Rank 0 leaves a file in the folder, which the others look for.
class Token {
 public:
  Token(Communicator& comm, const std::string& folder) : comm_(comm) {
    path_ = fs::path(folder) /
            comm.broadcast_text(fmt::format(".longhaul-doctor-{}-{}", hostname(), ::getpid()), 0);
    if (comm.rank() == 0) std::ofstream(path_) << "doctor\n";
    comm.barrier();
  }
  ~Token() {
    std::error_code ignored;
    if (comm_.rank() == 0) fs::remove(path_, ignored);
  }
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;
  bool is_seen() const {
    std::error_code ignored;
    return fs::exists(path_, ignored);
  }

 private:
  Communicator& comm_;
  fs::path path_;
};

// Collective. On rank 0 those of all ranks.
std::vector<RankFacts> gather(Communicator& comm, const RankFacts& mine) {
  const std::string text = to_text(to_json(mine));
  std::vector<RankFacts> all;
  for (const std::vector<std::byte>& part :
       comm.all_gather_varying(std::as_bytes(std::span(text)))) {
    const std::string_view json(reinterpret_cast<const char*>(part.data()), part.size());
    if (comm.rank() == 0)
      all.push_back(facts_from(parse_json(json, "a rank's facts", {.max_bytes = kMaxFactsBytes})));
  }
  return all;
}

void append(std::vector<Finding>& findings, const std::vector<Finding>& more) {
  findings.insert(findings.end(), more.begin(), more.end());
}

// The others examine themselves and say nothing; rank 0 says it for all.
[[noreturn]] void end_unreached(const DoctorConfig& config, const Reach& reach,
                                const Print& print) {
  if (!reach.places.empty()) {
    std::vector<Finding> findings = {
        {Health::kFail, "reach", explain_reach(reach), "no job can start", ""}};
    append(findings, judge({examine(config, 0)}));
    print(findings);
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(3));  // rank 0 tells people and leaves first
  }
  MpiEnvironment::exit_now(kExitEnvironment);
}

int examine_ranks(const DoctorConfig& config, const RankPlace& mine, const Print& print) {
  CommunicatorConfig comm_config;
  comm_config.kind = CommunicatorKind::kMpi;
  const std::unique_ptr<Communicator> comm = make_communicator(comm_config);
  RankFacts facts = examine(config, comm->rank());
  {
    const Token token(*comm, config.scratch);
    facts.sees_scratch_of_0 = token.is_seen();
    comm->barrier();
  }
  const HostInfo hosts = host_info(*comm);
  std::vector<RankPlace> places;
  for (const std::string& host : hosts.hostnames) places.push_back({host, {}});
  const std::vector<RankFacts> all = gather(*comm, facts);
  const std::vector<LinkFact> links = measure_links(*comm, first_ranks_of(places));
  int status = kExitDone;
  if (comm->rank() == 0) {
    std::vector<Finding> findings;
    if (comm->size() > 1)
      findings.push_back({Health::kPass, "reach",
                          fmt::format("{} hosts reach each other; {} uses {}", hosts.n_hosts,
                                      mine.host, to_text(mine.interfaces)),
                          "", ""});
    append(findings, judge_links(links, hosts.hostnames));
    append(findings, judge(all));
    print(findings);
    status = status_of(findings);
  }
  comm->broadcast(std::as_writable_bytes(std::span(&status, 1)), 0);
  return status;
}

}  // namespace

int run_doctor(const DoctorConfig& config, const Print& print) {
  if (!started_by_mpi_launcher()) {
    RankFacts facts = examine(config, 0);
    facts.sees_scratch_of_0 = true;
    const std::vector<Finding> findings = judge({facts});
    print(findings);
    return status_of(findings);
  }
  tell_interfaces(config.job.interfaces);
  StartWatch watch(config.job.start_timeout);
  MpiEnvironment environment(nullptr, nullptr,
                             std::chrono::ceil<std::chrono::seconds>(config.job.start_timeout * 2));
  const RankPlace mine = place_of_this_rank(config.job.interfaces);
  const Reach reach = find_reach(mine, greeting_limit(config.job));
  if (!reach.complete()) end_unreached(config, reach, print);
  watch.over();
  return environment.finish(examine_ranks(config, mine, print));
}

}  // namespace longhaul
