#include "tools/job/alone_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>

#include "base/error.h"
#include "base/sizes.h"
#include "coordinator/kv_budget.h"
#include "partition/make_plan.h"
#include "partition/memory_model.h"
#include "partition/nearest_fit.h"
#include "tools/job/memory_probe.h"
#include "tools/job/plan_job.h"

namespace longhaul {
namespace {

PlanRequest request_of_one_rank(const RunSession& session, const Workload& workload,
                                std::int64_t memory_bytes) {
  PlanRequest request;
  request.spec = session.spec();
  request.heads = session.heads.table;
  request.cluster = equal_cluster(1, std::max<std::int64_t>(1, memory_bytes));
  request.cluster.headroom = 0;
  request.workload = workload;
  request.workload.n_sequences = 1;
  // Answers without an end, of heads that forget: what they keep does not grow any more.
  constexpr std::int64_t kMost = Workload::kMaxTokens / 2;
  request.workload.document_tokens = std::min(request.workload.document_tokens, kMost);
  request.workload.tail_tokens = std::min(request.workload.tail_tokens, kMost);
  request.options.profile = session.heads.profile;
  return request;
}

RankBytes bytes_of(const PlanRequest& request) {
  PlanRequest roomy = request;
  roomy.cluster = equal_cluster(1, std::int64_t{1} << 50);
  roomy.cluster.headroom = 0;
  const PlanResult result = make_plan(roomy);
  return memory_of(std::get<Plan>(result), roomy.spec, roomy.cluster, roomy.workload)[Rank{0}];
}

[[noreturn]] void refuse(const PlanRequest& request, const RankBytes& bytes,
                         std::int64_t free_bytes) {
  std::string text = fmt::format(
      "a document of {} tokens does not fit: KV caches take {}, buffers {}{}, the process itself "
      "{}; {} are free",
      request.workload.document_tokens, format_byte_size(bytes.kv_retrieval + bytes.kv_streaming),
      format_byte_size(bytes.activations),
      bytes.weights > 0 ? fmt::format(", weights {}", format_byte_size(bytes.weights)) : "",
      format_byte_size(kProcessBytes), format_byte_size(free_bytes));
  const auto changes = changes_that_fit(request);
  if (!changes.empty()) text += "\nAny one of these makes it fit:";
  for (const std::string& change : changes) text += "\n  - " + change;
  throw Error(ErrorCode::kOutOfMemory, text);
}

}  // namespace

RankBytes bytes_of_one_rank(const RunSession& session, const Workload& workload) {
  PlanRequest request = request_of_one_rank(session, workload, 1);
  request.workload.n_sequences = workload.n_sequences;
  return bytes_of(request);
}

AloneLimits limits_of_one_rank(const RunSession& session, const JobConfig& config,
                               const Workload& workload, std::int64_t free_bytes) {
  AloneLimits limits{.chunk_len = workload.chunk_len, .kv_bytes = KvBudget::kNoLimit};
  if (config.device != DeviceChoice::kCpu) return limits;
  PlanRequest request = request_of_one_rank(session, workload, free_bytes);
  RankBytes bytes = bytes_of(request);
  const std::int64_t mapped = makes_weights(config, *session.model) ? 0 : bytes.weights;
  const std::int64_t usable = free_bytes - kProcessBytes;
  request.cluster = equal_cluster(1, std::max<std::int64_t>(1, usable + mapped));
  request.cluster.headroom = 0;
  if (!config.chunk_len) request.workload.chunk_len = chunk_len_that_fits(request);
  bytes = bytes_of(request);
  bytes.weights -= mapped;
  const std::int64_t kv = bytes.kv_retrieval + bytes.kv_streaming;
  const std::int64_t rest = usable - bytes.weights - bytes.activations;
  // A user's own limit is told about where requests fail by it.
  if (rest < kv &&
      !(config.kv_limit_bytes && static_cast<std::int64_t>(*config.kv_limit_bytes) <= rest)) {
    refuse(request, bytes, free_bytes);
  }
  limits.chunk_len = request.workload.chunk_len;
  limits.kv_bytes = static_cast<std::size_t>(std::max<std::int64_t>(rest, 0));
  return limits;
}

}  // namespace longhaul
