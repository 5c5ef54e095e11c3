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
  RankBytes planned;  // all zero when there was no plan
};

std::string report_table(const std::vector<RankOutcome>& ranks);
Json report_json(const std::vector<RankOutcome>& ranks);

}  // namespace longhaul
