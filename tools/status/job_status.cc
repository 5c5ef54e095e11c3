#include "tools/status/job_status.h"

#include <utility>

#include "build_info.h"

namespace longhaul {
namespace {

constexpr std::size_t kMostFailures = 50;
constexpr auto kSpeedOver = std::chrono::seconds(5);

}  // namespace

std::int64_t sent_bytes(const RankReport& report) {
  std::int64_t sum = 0;
  for (const auto& kind : report.sent_bytes) sum += kind.value;
  return sum;
}

std::int64_t kv_bytes(const RankReport& report) {
  return report.kv_retrieval_bytes + report.kv_streaming_bytes;
}

void StatusBoard::enter(std::string_view state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

void StatusBoard::set_documents(std::vector<std::string> names) {
  const std::lock_guard lock(mutex_);
  documents_ = std::move(names);
}

void StatusBoard::watch(const Progress* progress) {
  const std::lock_guard lock(mutex_);
  look_locked();
  progress_ = progress;
}

void StatusBoard::watch_ranks(std::function<std::vector<WorkerStatus>()> statuses) {
  const std::lock_guard lock(mutex_);
  look_locked();
  statuses_ = std::move(statuses);
}

void StatusBoard::set_plan(std::string hash, std::vector<RankPlanned> ranks, double link_gb_per_s) {
  const std::lock_guard lock(mutex_);
  plan_ = std::move(hash);
  planned_ = std::move(ranks);
  link_gb_per_s_ = link_gb_per_s;
}

void StatusBoard::add_failure(FailedNote failure) {
  const std::lock_guard lock(mutex_);
  if (failures_.size() == kMostFailures) failures_.erase(failures_.begin());
  failures_.push_back(std::move(failure));
}

void StatusBoard::add_write(double seconds) {
  const std::lock_guard lock(mutex_);
  writes_.add(seconds);
}

void StatusBoard::look_locked() {
  if (progress_ != nullptr) run_ = progress_->figures();
  if (statuses_) ranks_ = statuses_();
}

double StatusBoard::speed_locked(std::int64_t rank, std::int64_t n_bytes) {
  const Clock::time_point now = Clock::now();
  const auto [found, is_new] = speeds_.try_emplace(rank);
  Speed& speed = found->second;
  if (is_new) speed.older = speed.newer = {now, n_bytes};
  if (now - speed.newer.at >= kSpeedOver) {
    speed.older = speed.newer;
    speed.newer = {now, n_bytes};
  }
  const double seconds = std::chrono::duration<double>(now - speed.older.at).count();
  if (seconds >= 1)
    speed.bytes_per_second = static_cast<double>(n_bytes - speed.older.n_bytes) / seconds;
  return speed.bytes_per_second;
}

JobStatus StatusBoard::read() {
  const std::lock_guard lock(mutex_);
  look_locked();
  JobStatus status{.version = std::string(build_info::kVersion),
                   .model = model_,
                   .state = state_,
                   .plan = plan_,
                   .seconds = watch_.seconds(),
                   .link_gb_per_s = link_gb_per_s_,
                   .run = run_,
                   .documents = {},
                   .ranks = {},
                   .failures = failures_,
                   .writes = writes_};
  for (const RunFigures::Document& document : run_.documents) {
    status.documents.push_back(document.group < documents_.size() ? documents_[document.group]
                                                                  : std::string());
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    RankNow& rank = status.ranks.emplace_back();
    rank.status = ranks_[r];
    if (r < planned_.size()) rank.planned = planned_[r];
    if (ranks_[r].report) {
      rank.sent_bytes_per_second =
          speed_locked(ranks_[r].rank.value, sent_bytes(*ranks_[r].report));
    }
  }
  return status;
}

}  // namespace longhaul
