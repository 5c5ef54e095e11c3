#include "cluster/wire/report_board.h"

#include <utility>

namespace longhaul {

void ReportBoard::put(RankReport report) {
  const std::lock_guard lock(mutex_);
  newest_ = std::move(report);
  is_wanted_.store(false, std::memory_order_relaxed);
}

std::optional<RankReport> ReportBoard::newest() {
  const std::lock_guard lock(mutex_);
  is_wanted_.store(true, std::memory_order_relaxed);
  return newest_;
}

}  // namespace longhaul
