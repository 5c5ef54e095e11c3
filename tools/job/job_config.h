// How a job runs: what computes, what it may hold, how its ranks come together. Made once, from the
// flags (tools/flags); everything below reads values, never words.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/fp8_format.h"
#include "base/json.h"
#include "base/kv_type.h"
#include "cluster/comm/gpu_transport.h"
#include "coordinator/prompt_lookup.h"
#include "partition/decode_slices.h"
#include "partition/workload.h"
#include "tools/job/device_choice.h"
#include "worker/ring/ring_place.h"
#include "worker/weight_files.h"

namespace longhaul {

struct JobConfig {
  // --- What computes ---
  DeviceChoice device = DeviceChoice::kCpu;
  bool reproducible = false;  // the same bits on any ranks, in any chunks and batches
  int n_threads = 0;          // of each rank; 0: OMP_NUM_THREADS, else the host's cores, divided
  // Tokens of a prefill step, over all ranks of a ring. Not given: by predicted time, near
  // default_chunk_len; of one rank alone that.
  std::optional<std::int64_t> chunk_len;
  std::int64_t n_parallel = 8;  // sequences that are answered at the same time
  LookupConfig lookup = {};     // guesses of how answers go on
  // A small model that guesses where lookup finds nothing: a folder, or org/name[@revision]; empty:
  // none.
  std::string draft_model;
  std::int64_t draft_context = 4096;  // tokens that it reads, the newest

  // --- What memory holds ---
  std::optional<DType> weights;  // kF32, kBf16, kI8, kI4 or kF8E4m3; not given: as the files
  // Of products with fp8 weights; kQuantised is for weights of fp8 in blocks of 128 x 128 alone.
  Fp8Inputs fp8_inputs = Fp8Inputs::kAsTheyAre;
  WeightFiles weight_files = WeightFiles::kMapped;
  bool verify_weights = false;      // their files are read whole and compared before they are used
  std::filesystem::path checksums;  // with these; empty: with what is known (weight_check.h)
  std::optional<KvType> k_type;     // of cached keys; not given: what such weights compute
  std::optional<KvType> v_type;     // of cached values; likewise
  // Tokens of a cache block; not given: 64, or with a plan the plan's (plan_files.h).
  std::optional<std::int64_t> block_size;
  std::optional<std::size_t> kv_limit_bytes;  // of all KV caches of a replica; not given: no limit

  // --- Ranks (under mpirun or srun every process is one) ---
  std::optional<std::int64_t> n_ranks;  // as threads of this process; not given: see thread_ranks()
  std::filesystem::path cluster;        // TOML; empty: the ranks find out themselves
  std::filesystem::path plan;           // JSON; empty: made at start
  std::optional<std::int64_t> n_stages;            // of each replica; not given: by predicted time
  std::optional<std::int64_t> n_replicas;          // not given: as many as make sense
  HistoryChoice history = HistoryChoice::kByCost;  // what travels for retrieval heads
  DecodeBalance decode_balance = DecodeBalance::kTotalBytes;
  GpuTransport gpu_transfers = GpuTransport::kNcclWherePossible;  // between GPUs of their own

  // --- Operation ---
  std::chrono::milliseconds step_timeout = std::chrono::hours(24);    // then a step counts as hung
  std::chrono::milliseconds start_timeout = std::chrono::minutes(2);  // until all ranks are there
  std::chrono::milliseconds dead_after = std::chrono::seconds(30);    // silence of a dead rank
  std::string interfaces;  // "ib0,10.1.0.0/16": of MPI, NCCL and control; empty: the hosts' own
  std::string control_address;  // of rank 0's node; empty: 127.0.0.1, or one that all nodes reach
  std::filesystem::path trace;  // of the first chunks, a file for each rank; empty: none
  bool quiet = false;           // what takes long is not announced
  Json flags_given = JsonObject{};  // that all processes of the job must share (given_flags)
  // What people are told after ranks were lost: what is kept, and what to do.
  std::string after_loss = "run the same command again";
};

// Guesses of a step for one answer, at most: those of --draft-max, and those by which reproducible
// runs make again what an earlier run picked of an answer.
std::int64_t most_guesses(const JobConfig& job);

// What a job says of its workload before anything is known of texts: types, those of caches by the
// weights' where none is given, block size, bits, guesses. Lengths are for who calls it to say.
// `weight_dtype` as the matrices are in memory.
Workload formats_of(const JobConfig& job, DType weight_dtype);

// Tokens of a cache block, as the job says, else the default. Where there is a plan, that says it
// instead (plan_files.h).
std::int64_t usual_block_size(const JobConfig& job);

// Tokens of a prefill step when nothing is said: results do not depend on it, speed does.
std::int64_t default_chunk_len(std::int64_t n_ranks, Device device);
// What the job says, else the default of the device that rank 0 would have. Where there is a plan,
// that says it instead (plan_job.h).
std::int64_t usual_chunk_len(const JobConfig& job, std::int64_t n_ranks);

}  // namespace longhaul
