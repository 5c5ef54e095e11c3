// How fast the hosts of a job reach each other, and whether their clocks agree: measured when a job
// starts and by the doctor.
#pragma once
#include <utility>
#include <vector>

#include "cluster/comm/communicator.h"
#include "partition/cluster_spec.h"

namespace longhaul {

struct LinkFact {
  int rank_a = 0;  // the lower one
  int rank_b = 0;
  double latency_us = 0;  // one way
  double gb_per_s = 0;    // 10^9 bytes, the slower of both ways
  double b_ahead_s = 0;   // of b's clock before a's
};

// Collective over comm. Between all pairs of these ranks while they are few, else between
// neighbours and opposite ones; no rank in two pairs at a time. A fraction of a second for each
// round of pairs. The same on all ranks, ascending.
std::vector<LinkFact> measure_links(Communicator& comm, const std::vector<int>& ranks);

// --- The pure parts ---

// Pairs of 0 to n - 1: those of a round at the same time.
using LinkRound = std::vector<std::pair<int, int>>;
std::vector<LinkRound> link_rounds(int n);

// The median becomes what links between hosts have; those that are off by more than a quarter of it
// are written down one by one, so that plans stay the same from run to run.
void set_links(const std::vector<LinkFact>& links, ClusterSpec& cluster);

}  // namespace longhaul
