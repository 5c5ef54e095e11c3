#include "tools/job/rank_server.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/event_log.h"
#include "base/file_wait.h"
#include "cluster/comm/host_info.h"
#include "kernels/cpu/threads.h"
#include "partition/plan_json.h"
#include "partition/standing.h"
#include "tools/job/or_abort.h"
#include "tools/job/step_events.h"
#include "worker/worker.h"

namespace longhaul {
namespace {

// Collective over comm. Rank 0's plan, or nullopt when it could not make one.
std::optional<JobPlan> learn_plan(Communicator& comm, const PlanMaker& maker,
                                  const ClusterSpec& found) {
  constexpr std::string_view kRefused = "refused";
  JobPlan plan;
  std::string order;
  std::exception_ptr refusal;
  if (comm.rank() == 0) {
    try {
      plan = maker.make_plan(found);
      order = encode_order(plan);
    } catch (...) {
      refusal = std::current_exception();
      order = kRefused;
    }
  }
  order = comm.broadcast_text(std::move(order), 0);
  if (order == kRefused) {
    if (refusal) maker.refused(refusal);
    return std::nullopt;
  }
  if (comm.rank() != 0) return decode_order(order);
  maker.planned(plan);
  return plan;
}

// A rank without a part in the plan: it only waits for the end.
void serve_idle(WorkerLink& link) {
  while (const auto command = link.next()) {
    link.answer(StepDone{});
    if (std::holds_alternative<Shutdown>(*command)) return;
  }
}

ArenaBytes arena_of(const JobPlan& job, Rank rank) {
  const auto number = static_cast<std::size_t>(rank.value);
  return number < job.arenas.size() ? job.arenas[number] : ArenaBytes{};
}

// trace.json -> trace.3.json
std::filesystem::path trace_path(const std::filesystem::path& path, int rank) {
  return path.parent_path() /
         fmt::format("{}.{}{}", path.stem().string(), rank, path.extension().string());
}

}  // namespace

const ClusterSpec& RankServer::find_cluster(const ModelSource& model) {
  or_abort(comm_, [&] { probed(model); });
  return probed_->cluster;
}

void RankServer::work_together(ModelSource& model, const Task& task, const std::string& order) {
  or_abort(comm_, [&] {
    set_kernel_threads(probed(model).n_threads);
    task(comm_, model, order);
  });
}

void RankServer::serve(ModelSource& model, WorkerLink& link, const PlanMaker& maker) {
  or_abort(comm_, [&] { serve_plan(model, link, maker); });
}

const ProbedCluster& RankServer::probed(const ModelSource& model) {
  if (probed_) return *probed_;
  const int local_rank = host_info(comm_).local_rank;
  agree_on(comm_, [&] { device_ = chosen_device(config_.device, local_rank); });
  probed_ = probe_cluster(comm_, {.measure_speed = config_.cluster.empty(),
                                  .weight_dtype = model.weight_dtype(),
                                  .n_threads = config_.n_threads,
                                  .gpu = device_.kind == Device::kCuda ? device_.ordinal : -1});
  return *probed_;
}

void RankServer::serve_plan(ModelSource& model, WorkerLink& link, const PlanMaker& maker) {
  const ProbedCluster& found = probed(model);
  const auto job = learn_plan(comm_, maker, found.cluster);
  if (!job) return;
  const Plan& plan = *job->plan;
  const auto standing = standing_of(plan, Rank{comm_.job_rank()});
  const auto replica =
      comm_.split(standing ? static_cast<int>(standing->replica) : -1, comm_.rank());
  board_.enter(Activity::kLoading);
  const Stopwatch loading;
  WorkerConfig worker;
  {
    // Of the process that speaks for all: it waits for the other ranks' files as well.
    const FileWait wait(model.use(), model.name());
    agree_on(comm_, [&] {
      if (standing) {
        if (!config_.trace.empty())
          require_replaceable(trace_path(config_.trace, comm_.job_rank()));
        worker.weights = model.layers(standing->stage_of(plan).layers, device_);
        if (plan.heads.needs_token_classes()) worker.token_classes = model.token_classes();
      }
      board_.enter(Activity::kIdle);
    });
  }
  log_event("weights_read",
            {{"plan", plan_hash(plan)},
             {"replica", standing ? static_cast<std::int64_t>(standing->replica) : -1},
             {"seconds", loading.seconds()}},
            comm_.job_rank());
  if (!standing) return serve_idle(link);
  worker.device = device_;
  worker.n_threads = job->n_threads > 0 ? job->n_threads : found.n_threads;
  worker.shares_cores = !config_.draft_model.empty();
  worker.board = &board_;
  worker.reports = reports_;
  worker.place = RingPlace{
      .plan = job->plan,
      .cluster = job->cluster,
      .replica = standing->replica,
      .comm = replica.get(),
      .history = config_.history,
      .transport = job->cluster->has_gpus() ? config_.gpu_transfers : GpuTransport::kStaged,
      .arena = arena_of(*job, Rank{comm_.job_rank()})};
  serve_worker(worker, link);
}

void RankServer::serve_worker(const WorkerConfig& config, WorkerLink& link) const {
  WorkerConfig worker_config = config;
  Trace trace;
  if (!config_.trace.empty()) {
    worker_config.trace = &trace;
    worker_config.at_shutdown = [&] {
      const int rank = comm_.job_rank();
      trace.write(trace_path(config_.trace, rank), Rank{rank});
    };
  }
  Worker worker(worker_config);
  if (keeps_events() && reports_ != nullptr) {
    StepEvents events(link, *reports_, comm_.job_rank());
    worker.serve(events);
  } else {
    worker.serve(link);
  }
}

}  // namespace longhaul
