// How fast the hosts of a job reach each other, and whether their clocks agree.
#pragma once
#include <string>
#include <vector>

#include "cluster/comm/communicator.h"
#include "tools/doctor/finding.h"

namespace longhaul {

struct LinkFact {
  int rank_a = 0;  // the lower one
  int rank_b = 0;
  double latency_us = 0;  // one way
  double gb_per_s = 0;    // 10^9 bytes, the slower of both ways
  double b_ahead_s = 0;   // of b's clock before a's
};

// Collective over comm. Between all pairs of these ranks while they are few, else between
// neighbours; one pair at a time, a fraction of a second each. The same on all ranks.
std::vector<LinkFact> measure_links(Communicator& comm, const std::vector<int>& ranks);

// Pure. `hosts`: of each rank.
std::vector<Finding> judge_links(const std::vector<LinkFact>& links,
                                 const std::vector<std::string>& hosts);

}  // namespace longhaul
