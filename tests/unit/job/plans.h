// Plans and clusters that the tests of the job share.
#pragma once
#include <memory>
#include <utility>
#include <variant>

#include "base/error.h"
#include "partition/make_plan.h"
#include "tests/unit/partition/models.h"
#include "tools/job/job.h"

namespace longhaul::test {

// A source of weights that nobody reads: for what plans alone.
inline ModelSource spec_alone(const ModelSpec& spec) {
  return {spec, DType::kBf16, [](Extent, const DeviceId&) -> Weights {
            throw Error(ErrorCode::kInternal, "nobody reads these weights");
          }};
}

inline PlanRequest plan_request(const ModelSpec& spec, ClusterSpec cluster) {
  PlanRequest request;
  request.spec = spec;
  request.heads = dense_heads(spec);
  request.cluster = std::move(cluster);
  request.workload.document_tokens = 5000;
  return request;
}

inline JobPlan job_plan(const PlanRequest& request) {
  return {std::make_shared<const Plan>(std::get<Plan>(make_plan(request))),
          std::make_shared<const ClusterSpec>(request.cluster)};
}

}  // namespace longhaul::test
