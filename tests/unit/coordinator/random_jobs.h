// Random work for schedulers: documents with jobs, and with parts that several jobs share.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "coordinator/scheduler.h"
#include "tests/support/random.h"

namespace longhaul::test {

using Ids = std::vector<std::int32_t>;

// Calls visit(the documents before the job, the job) for each job, those of parts included.
template <typename Visit>
void for_jobs(const std::vector<JobGroup>& groups, const Visit& visit,
              const std::vector<Ids>& before = {}) {
  for (const JobGroup& group : groups) {
    std::vector<Ids> documents = before;
    documents.push_back(group.document);
    for (const Job& job : group.jobs) visit(documents, job);
    for_jobs(group.parts, visit, documents);
  }
}

inline Ids random_ids(Random& random, std::int64_t n) {
  return random_tokens(random, n, /*vocab_size=*/1000);
}

inline std::vector<Job> random_jobs(Random& random, std::int64_t n_jobs, std::int64_t& n_requests) {
  std::vector<Job> jobs(static_cast<std::size_t>(n_jobs));
  for (Job& job : jobs) {
    job.request = RequestId{n_requests++};
    job.prompt = random_ids(random, random.chance(0.2) ? random.integer(1, 50) : 3);
    job.max_tokens = random.integer(0, 9);
    if (random.chance(0.2)) job.score_logprobs = 2;
  }
  return jobs;
}

// With parts of its own, so many times one within the other.
inline JobGroup random_part(Random& random, std::int64_t& n_requests, int depth) {
  JobGroup part{random_ids(random, random.integer(1, 30)), {}};
  for (std::int64_t n = depth > 0 && random.chance(0.4) ? random.integer(1, 3) : 0; n > 0; --n)
    part.parts.push_back(random_part(random, n_requests, depth - 1));
  const std::int64_t fewest = part.parts.empty() ? 1 : 0;
  part.jobs = random_jobs(random, random.integer(fewest, 5), n_requests);
  return part;
}

inline std::vector<JobGroup> random_groups(Random& random) {
  std::vector<JobGroup> groups;
  std::int64_t n_requests = 0;
  const std::int64_t n_groups = random.integer(1, 6);
  for (std::int64_t g = 0; g < n_groups; ++g) {
    JobGroup group;
    if (random.chance(0.7)) group.document = random_ids(random, random.integer(1, 60));
    for (std::int64_t n = random.chance(0.4) ? random.integer(1, 3) : 0; n > 0; --n)
      group.parts.push_back(random_part(random, n_requests, /*depth=*/2));
    const std::int64_t fewest = group.parts.empty() ? 1 : 0;
    group.jobs = random_jobs(random, random.integer(fewest, 7), n_requests);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace longhaul::test
