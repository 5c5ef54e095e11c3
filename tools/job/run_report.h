// What every rank did and held, at the end of a run: a table for people, and JSON. Pure.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "cluster/wire/step.h"
#include "partition/memory_model.h"

namespace longhaul {

struct RankOutcome {
  std::string host;
  RankReport report;
  RankBytes planned;                // all zero when there was no plan
  std::int64_t kv_limit_bytes = 0;  // the most that the budget lets this rank's KV caches be
};

enum class ReportForm {
  kShort,  // what fits 80 columns
  kLong,   // where the time went, and what was sent, too
};
std::string report_table(const std::vector<RankOutcome>& ranks,
                         ReportForm form = ReportForm::kShort);
Json report_json(const std::vector<RankOutcome>& ranks);

}  // namespace longhaul
