// The two files that may describe a job: its cluster and its plan; and how many ranks they ask for.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "partition/cluster_spec.h"
#include "partition/plan.h"
#include "tools/job/job_config.h"

namespace longhaul {

// A TOML file of ranks. Throws kCorruptData for what is none.
ClusterSpec read_cluster(const std::filesystem::path& file);
// A plan as JSON. Throws kCorruptData for what is none.
Plan read_plan(const std::filesystem::path& file);

// The ranks that a plan names: one more than its highest number. Pure.
std::int64_t ranks_of(const Plan& plan);

// Tokens of a cache block in this job: the plan's where a file says it. Reads that file.
std::int64_t block_size_of(const JobConfig& config);

// How many ranks this process holds as threads, where no launcher made processes: as many as were
// asked for, or the cluster file describes, or the plan needs; one where something else was said
// that only plans follow. nullopt: one rank, for which nothing is planned. Reads the files.
std::optional<std::int64_t> thread_ranks(const JobConfig& config);

}  // namespace longhaul
