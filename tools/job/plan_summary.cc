#include "tools/job/plan_summary.h"

#include <fmt/format.h>

#include <string_view>

#include "base/sizes.h"
#include "partition/explain.h"
#include "partition/memory_model.h"
#include "partition/plan_json.h"
#include "tools/job/engine_config.h"
#include "tools/job/plan_job.h"

namespace longhaul {
namespace {

std::string plural(std::size_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

}  // namespace

std::string summary(const JobPlan& job, const ModelSpec& spec, const Workload& workload,
                    const std::vector<double>& kv_scales) {
  const Plan& plan = *job.plan;
  const auto bytes = memory_of(plan, spec, *job.cluster, as_planned(workload, plan));
  std::string text = fmt::format(
      "  plan {}: {} of {}, {}; documents of up to {} tokens in chunks of {}\n", plan_hash(plan),
      plural(plan.replicas.size(), "replica"), plural(plan.replicas.front().stages.size(), "stage"),
      plural(job.cluster->ranks.size(), "rank"), workload.document_tokens, plan.chunk_len);
  text += explain_links(*job.cluster);
  constexpr std::size_t kMostLines = 32;
  std::size_t n_lines = 0;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    for (const Stage& stage : plan.replicas[r].stages) {
      for (const RingPos i : stage.ring.ids()) {
        if (++n_lines > kMostLines) continue;
        const Rank rank = stage.ring[i];
        const RankBytes& mine = bytes[rank];
        const std::int64_t kv_limit = kv_limit_bytes(mine, kv_scales[r]);
        const std::string replica = plan.replicas.size() > 1 ? fmt::format("replica {}, ", r) : "";
        text += fmt::format(
            "  rank {} on {}: {}layers {}-{}, {:.3g}% of the tokens; weights {}, KV up to {}, free "
            "{}\n",
            rank.value, job.cluster->rank(rank).host, replica, stage.layers.begin,
            stage.layers.end - 1,
            100 * static_cast<double>(stage.token_share[i]) /
                static_cast<double>(Stage::kTokenShareTotal),
            format_byte_size(mine.weights), format_byte_size(kv_limit),
            format_byte_size(mine.free() + mine.kv_retrieval + mine.kv_streaming - kv_limit));
      }
    }
  }
  if (n_lines > kMostLines)
    text += fmt::format("  and {} more; --verbose shows them all\n", n_lines - kMostLines);
  if (const std::size_t n_ranks = job.cluster->ranks.size(); n_lines < n_ranks)
    text += fmt::format(
        "  {} nothing to do in this plan\n",
        n_ranks - n_lines == 1 ? "1 rank has" : fmt::format("{} ranks have", n_ranks - n_lines));
  return text;
}

}  // namespace longhaul
