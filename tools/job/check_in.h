// When a job of several processes starts: do they all run the same thing? A rank with other
// weights, another program or other flags would compute wrong answers without a word.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "cluster/comm/communicator.h"
#include "cluster/comm/host_info.h"
#include "cluster/wire/phase.h"
#include "tools/job/job.h"
#include "tools/job/job_config.h"

namespace longhaul {

// Version, parts that it was built with, and SHA-256 of this program, as an object.
Json program_identity();

// What must be equal on all ranks, as an object: the program (version, parts that it was built
// with, SHA-256 of the executable), the flags, the model. `model` may be null. Reads samples of the
// model's files. Paths, instruction set, threads and devices are no part of it.
Json job_identity(const JobConfig& config, const ModelSource* model);

struct CheckIn {
  std::shared_ptr<ModelSource> model;         // null where open_model is empty
  std::vector<std::string> instruction_sets;  // [rank] of the CPU kernels; these may differ
};
// Collective over comm, which holds all ranks of the job. Throws on all of them alike: with its own
// code what open_model throws on any rank, "rank 1 on node7: ..."; kFailedPrecondition, naming
// rank, host and what differs, when a rank is not like rank 0. `board`, where given, says that this
// rank loads while it reads the model's files.
CheckIn check_in(Communicator& comm, const HostInfo& hosts, const JobConfig& config,
                 const OpenModel& open_model, PhaseBoard* board = nullptr);

// "rank 1 on node7 does not run the same job as rank 0 on node3: ...", and what to do. Pure.
std::string explain_differences(const HostInfo& hosts, std::size_t rank, const Json& of_rank_0,
                                const Json& of_rank, std::size_t n_more);

// "instruction sets differ: avx512_bf16 on ranks 0-2, baseline on rank 3"; "" when they are all the
// same. Pure.
std::string explain_instruction_sets(const std::vector<std::string>& sets);

}  // namespace longhaul
