// Whether a rank's threads are spread over several NUMA nodes, each of which reads the others'
// memory more slowly, and what to do about it. Longhaul's answer to NUMA is one rank per node: a
// rank's caches and buffers then lie where the threads that touch them first run.
#pragma once
#include <sched.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace longhaul {

// Numbers of the NUMA nodes that have any of these cores, ascending, as `nodes_folder` describes
// them (node0/cpulist, node1/cpulist, ...). Empty where the folder does not say.
std::vector<int> numa_nodes_of(
    const cpu_set_t& cores, const std::filesystem::path& nodes_folder = "/sys/devices/system/node");

// A sentence for the user when a rank with so many threads has cores of several nodes.
std::optional<std::string> numa_advice(const std::vector<int>& nodes, int n_threads);

}  // namespace longhaul
