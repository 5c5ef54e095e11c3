// Settings that the program takes from the environment besides its flags.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/flags/cli_app.h"

namespace longhaul {

// Where downloaded models lie: $HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub.
std::filesystem::path hub_cache();

// When the batch system will end the job, in seconds since 1970 (SLURM_JOB_END_TIME).
std::optional<std::int64_t> job_end_time();

// LONGHAUL_ISA=baseline|avx2|avx512|avx512_vnni|avx512_bf16|amx forces the instruction set of the
// CPU kernels.
void choose_isa();

// Gives every option of `command` environment variables, one for each long name: --ctx-size is
// LONGHAUL_CTX_SIZE. The flag wins, then the first of its names that is set. Only the command that
// runs reads them: another may have a flag of the same name that takes other values.
void name_environment_variables(CLI::App& command);

// After `program` has parsed. "LONGHAUL_CTX_SIEZ: did you mean LONGHAUL_CTX_SIZE?" for each
// variable of the environment that nothing reads and that is nearly the name of one of the
// program's (others may belong to scripts); and what is left out of two variables that differ and
// set one flag.
std::vector<std::string> warnings_about_variables(const CLI::App& program);

// What is wrong with a command line that `program` has parsed, to the end or to an error: flags
// whose values the environment gave are called by their variables, which is what a user has to
// mend.
std::string with_variables_named(const CLI::App& program, std::string text);

}  // namespace longhaul
