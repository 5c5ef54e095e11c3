// What every rank did and held, at the end of a run: a table for people, and JSON. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "cluster/wire/step.h"
#include "model/heads/head_table.h"
#include "partition/memory_model.h"
#include "partition/workload.h"

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

// Methods as people write them; empty where none was named.
struct MethodNames {
  std::string main;             // --policy or --full-heads
  std::string streaming_heads;  // --streaming-heads
};
// The caches of the heads under one method, of all ranks together.
struct KvOfMethod {
  std::string method = {};  // for people
  std::int64_t n_heads = 0;
  std::int64_t measured_bytes = 0;    // the most in use at the end of any step
  std::int64_t predicted_bytes = 0;   // what plans count for the job's requests
  std::int64_t everything_bytes = 0;  // the same if these heads kept every token
};
// Heads that see every token, those that see a window, and where there are both all together.
struct KvReportArgs {
  const HeadTable& heads;
  MethodNames names;
  Workload workload;
  KvFormat kv;
  RankBytes predicted;  // of all ranks together
  const std::vector<RankOutcome>& ranks;
};
std::vector<KvOfMethod> kv_of_methods(const KvReportArgs& args);
std::string kv_table(const std::vector<KvOfMethod>& methods);

}  // namespace longhaul
