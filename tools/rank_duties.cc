#include "tools/rank_duties.h"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "cluster/comm/host_info.h"
#include "tools/device_flag.h"
#include "tools/weights_flag.h"
#include "worker/worker.h"

namespace longhaul {
namespace {

// Where a rank stands in the plan; nullopt for one that has no part in it.
struct Post {
  std::int64_t replica = 0;
  Extent layers;
};

std::optional<Post> post_of(const Plan& plan, Rank rank) {
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    for (const Stage& stage : plan.replicas[r].stages) {
      if (stage.ring_position(rank)) return Post{static_cast<std::int64_t>(r), stage.layers};
    }
  }
  return std::nullopt;
}

HistoryChoice history_choice(const RunOptions& options) {
  if (options.history == "keys") return HistoryChoice::kKeysTravel;
  if (options.history == "queries") return HistoryChoice::kQueriesTravel;
  return HistoryChoice::kByCost;
}

// Collective over comm. Rank 0's plan, or nullopt when it could not make one.
std::optional<JobPlan> learn_plan(Communicator& comm, const RankDuties& duties,
                                  const ClusterSpec& found) {
  constexpr std::string_view kRefused = "refused";
  JobPlan plan;
  std::string order;
  std::exception_ptr refusal;
  if (comm.rank() == 0) {
    try {
      plan = duties.make_plan(found);
      order = encode_order(plan);
    } catch (...) {
      refusal = std::current_exception();
      order = kRefused;
    }
  }
  order = comm.broadcast_text(std::move(order), 0);
  if (order == kRefused) {
    if (refusal) duties.refused(refusal);
    return std::nullopt;
  }
  if (comm.rank() != 0) return decode_order(order);
  duties.planned(plan);
  return plan;
}

// A rank without a part in the plan: it only waits for the end.
void serve_idle(WorkerLink& link) {
  while (const auto command = link.next()) {
    link.answer(StepDone{});
    if (std::holds_alternative<Shutdown>(*command)) return;
  }
}

// trace.json -> trace.3.json
std::filesystem::path trace_path(const std::filesystem::path& path, int rank) {
  return path.parent_path() /
         fmt::format("{}.{}{}", path.stem().string(), rank, path.extension().string());
}

Served serve(Communicator& comm, const RankDuties& duties) {
  const RunOptions& options = *duties.options;
  DeviceId device;
  const int local_rank = host_info(comm).local_rank;
  agree_on(comm, [&] { device = chosen_device(options.device, local_rank); });
  const ProbedCluster probed =
      probe_cluster(comm, {.measure_speed = options.cluster.empty(),
                           .weight_dtype = weights_in_memory(options.weights, *duties.model),
                           .n_threads = options.n_threads,
                           .gpu = device.kind == Device::kCuda ? device.ordinal : -1});
  const auto job = learn_plan(comm, duties, probed.cluster);
  if (!job) return Served::kRefused;
  const Plan& plan = *job->plan;
  const auto post = post_of(plan, Rank{comm.job_rank()});
  const auto ring = comm.split(post ? static_cast<int>(post->replica) : -1, comm.rank());
  duties.board->enter(Activity::kLoading);
  WorkerConfig config;
  agree_on(comm, [&] {
    if (!post) return;
    config.device = device;
    config.weights = duties.shelf->layers(post->layers, device);
    config.k_type = plan.kv.k_type;
    config.v_type = plan.kv.v_type;
  });
  duties.board->enter(Activity::kIdle);
  if (!post) {
    serve_idle(*duties.link);
    return Served::kToTheEnd;
  }
  config.roles = plan.roles;
  config.block_size = plan.kv.block_size;
  config.n_threads = probed.n_threads;
  config.board = duties.board;
  config.place = RingPlace{.plan = job->plan,
                           .cluster = job->cluster,
                           .replica = post->replica,
                           .comm = ring.get(),
                           .history = history_choice(options),
                           .uses_nccl = job->cluster != nullptr && job->cluster->has_gpus()};
  Trace trace;
  if (!options.trace.empty()) config.trace = &trace;
  Worker worker(config);
  worker.serve(*duties.link);
  if (!options.trace.empty()) {
    trace.write(trace_path(options.trace, comm.job_rank()), comm.job_rank());
  }
  return Served::kToTheEnd;
}

}  // namespace

std::shared_ptr<const Weights> WeightsShelf::layers(Extent layers, const DeviceId& device) {
  const std::lock_guard lock(mutex_);
  auto& weights = shelf_[{layers, name_of(device)}];
  if (!weights) {
    weights = std::make_shared<const Weights>(Weights::load(*model_, layers, dtype_, device));
  }
  return weights;
}

std::chrono::milliseconds transfer_deadline(const RunOptions& options) {
  const double seconds = options.step_timeout_seconds + options.dead_after_seconds + 10;
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

Served serve_rank(Communicator& comm, const RankDuties& duties) {
  try {
    return serve(comm, duties);
  } catch (...) {
    const Verdict verdict = verdict_of(std::current_exception(), comm.job_rank());
    comm.abort(verdict.code, verdict.message);
    throw;
  }
}

}  // namespace longhaul
