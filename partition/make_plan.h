// Makes plans. Rules, in this order:
//   1. As few replicas as make sense: a document is spread over more ranks only where doubling them
//      makes the work on it at least `min_gain` times faster; every replica must fit.
//   2. Of the numbers of stages (above 8, in steps) and lengths of chunks that fit, those with
//      which the cost model predicts the least time (partition/plan_search.h); every rank of a
//      stage holds its weights whole.
//   3. Ranks go to stages by host and speed, layers to stages by speed as far as memory allows.
//   4. Tokens of a chunk by speed; homes of blocks by memory; decode slices even out what is left.
// Deterministic and pure: the same values give the same plan, on every machine that rounds doubles
// the same way.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "model/head_profile.h"
#include "model/heads/head_table.h"
#include "model/model_spec.h"
#include "partition/cluster_spec.h"
#include "partition/decode_slices.h"
#include "partition/memory_model.h"
#include "partition/plan.h"
#include "partition/workload.h"

namespace longhaul {

struct PlanOptions {
  std::optional<std::int64_t> n_stages;    // none: the planner's choice
  std::optional<std::int64_t> n_replicas;  // none: the planner's choice
  std::vector<std::int64_t> chunk_lens;    // to choose from; none: the workload's
  double min_gain = 1.25;                  // rule 1
  DecodeBalance balance = DecodeBalance::kTotalBytes;
  std::string model;                   // Plan::model; empty: dimensions_fingerprint(spec)
  std::optional<HeadProfile> profile;  // lets a refusal say which retrieval ratio would fit
};

// Everything a plan depends on.
struct PlanRequest {
  ModelSpec spec;
  HeadTable heads;
  ClusterSpec cluster;
  Workload workload;
  PlanOptions options;
};

// The workload does not fit the cluster: where the bytes would go in the least bad arrangement, and
// changes each of which alone makes it fit, the mildest first.
struct NotFitting {
  IndexedVector<Rank, RankBytes> bytes;
  std::int64_t missing_bytes = 0;  // sum of what ranks lack; 0 when only fragments are left
  std::vector<std::string>
      changes;  // "documents of up to 262144 tokens", "12 more ranks like the last one"
};

using PlanResult = std::variant<Plan, NotFitting>;

// Throws kInvalidArgument when the request itself makes no sense (heads of another shape or that
// ranks cannot share, more stages than layers or ranks, ...), kUnsupported for heads that cannot be
// run at all.
PlanResult make_plan(const PlanRequest& request);

// Lengths of chunks to choose from where nobody said one: the workload's, halved down to 1024
// tokens and doubled up to 256 K or the text's own length. Ascending.
std::vector<std::int64_t> usual_chunk_lens(const Workload& workload);

// Whether make_plan would succeed with the workload's own chunks; much cheaper.
bool plan_fits(const PlanRequest& request);

}  // namespace longhaul
