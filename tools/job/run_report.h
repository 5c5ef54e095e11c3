// What every rank did and held, at the end of a run: a table for people, and JSON. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text_columns.h"
#include "cluster/wire/step.h"
#include "model/heads/head_table.h"
#include "partition/memory_model.h"
#include "partition/workload.h"

namespace longhaul {

// What one rank did and held, beside what its plan said.
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
// One line for each rank, in the order given, of the first 64; of more it says where they are. Ends
// with a line break. What is long stands below its rank where a line would be wider than `width`.
std::string report_table(const std::vector<RankOutcome>& ranks,
                         ReportForm form = ReportForm::kShort, std::size_t width = kAnyWidth);
// The same of all ranks, in the order given, in bytes and seconds: what --report writes.
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
struct KvReportArgs {
  const HeadTable& heads;
  MethodNames names;
  Workload workload;
  KvFormat kv;
  RankBytes predicted;  // of all ranks together
  const std::vector<RankOutcome>& ranks;
};
// Heads that see every token, those that see a window, and where there are both all together; only
// those that there are.
std::vector<KvOfMethod> kv_of_methods(const KvReportArgs& args);
// The same as lines for people, under a line of headings. Methods that are too long for lines of
// `width` columns go on in the next.
std::string kv_table(const std::vector<KvOfMethod>& methods, std::size_t width = kAnyWidth);

}  // namespace longhaul
