#include "cluster/wire/report_board.h"

#include <utility>

namespace longhaul {

void ReportBoard::put(RankReport report) {
  put_at_ = Clock::now();
  const std::lock_guard lock(mutex_);
  newest_ = std::move(report);
  is_asked_for_.store(false, std::memory_order_relaxed);
}

std::optional<RankReport> ReportBoard::newest() {
  const std::lock_guard lock(mutex_);
  is_asked_for_.store(true, std::memory_order_relaxed);
  return newest_;
}

}  // namespace longhaul
