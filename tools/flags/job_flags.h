// The flags that commands share, a function for each group; each command takes those that mean
// something to it. Values go straight into a JobConfig, as values: nothing below reads words.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tools/flags/cli_app.h"
#include "tools/job/head_settings.h"
#include "tools/job/job_config.h"

namespace longhaul {

// Everything must outlive `app`; `group` is the heading in the help text.

// -m, --model, which is required.
void add_model_flag(CLI::App& app, std::string& model);
// --device.
void add_device_flag(CLI::App& app, JobConfig& job, const std::string& group);
// --device and --threads.
void add_device_flags(CLI::App& app, JobConfig& job, const std::string& group);
// --reproducible.
void add_reproducible_flag(CLI::App& app, JobConfig& job, const std::string& group);
// --chunk-len.
void add_chunk_flag(CLI::App& app, JobConfig& job, const std::string& group);
// --parallel.
void add_parallel_flag(CLI::App& app, JobConfig& job, const std::string& group);
// --draft-max and --prompt-lookup-min.
void add_lookup_flags(CLI::App& app, JobConfig& job, const std::string& group);
// --draft-model and --draft-context, after --draft-max.
void add_draft_model_flags(CLI::App& app, JobConfig& job, const std::string& group);
// --kv-limit.
void add_kv_limit_flag(CLI::App& app, JobConfig& job, const std::string& group);
// --weights, --fp8-activations and --no-mmap.
void add_weights_flag(CLI::App& app, JobConfig& job, const std::string& group);
// --verify-weights and --checksums.
void add_verify_flags(CLI::App& app, JobConfig& job, const std::string& group);
// --cache-type-k and --cache-type-v.
// `as_auto`: whose types "auto" takes, such as "the weights".
void add_cache_type_flags(CLI::App& app, JobConfig& job, const std::string& group,
                          std::string_view as_auto = "the weights");
// These and --block-size.
void add_cache_flags(CLI::App& app, JobConfig& job, const std::string& group);
constexpr const char* kHeadGroup = "Retrieval and streaming heads";
// --head-profile and --retrieval-ratio.
void add_profile_flags(CLI::App& app, HeadSettings& heads, const std::string& group);
// These, --sink, --recent, --policy, --full-heads and --streaming-heads.
void add_head_flags(CLI::App& app, HeadSettings& heads, const std::string& group);

// --cluster.
CLI::Option* add_cluster_flag(CLI::App& app, JobConfig& job, const std::string& group);
// --stages, --replicas and --decode-balance.
std::vector<CLI::Option*> add_layout_flags(CLI::App& app, JobConfig& job, const std::string& group);
// --start-timeout and --interfaces; part of add_rank_flags.
void add_network_flags(CLI::App& app, JobConfig& job, const std::string& group);
// These, --ranks, --plan, --history, and how ranks find and wait for each other.
void add_rank_flags(CLI::App& app, JobConfig& job);
// --step-timeout.
void add_step_timeout_flag(CLI::App& app, JobConfig& job, const std::string& group);

}  // namespace longhaul
