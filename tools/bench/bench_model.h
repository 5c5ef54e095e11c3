// The model that a benchmark runs: a folder's, or random weights of a shape, with its heads' roles.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/device/device_memory.h"
#include "model/head_profile.h"
#include "model/heads/head_table.h"
#include "partition/workload.h"
#include "tools/bench/bench_flags.h"
#include "tools/bench/model_work.h"
#include "tools/job/model_source.h"

namespace longhaul::bench {

// Immutable once made, but for the weights that its source reads or makes.
class BenchModel {
 public:
  // Reads what the flags name, but no weights. Throws what reading of models throws.
  BenchModel(const BenchFlags& flags, const std::filesystem::path& hub_cache);

  const ModelSpec& spec() const { return source_->spec(); }
  const HeadTable& heads() const { return heads_; }
  // Every rank's weights: seconds for billions. Throws kOutOfMemory on a rank whose memory has no
  // room for random ones that stand beside the probes'.
  const std::shared_ptr<ModelSource>& source() const { return source_; }
  // What ranks must have room for to run the tests.
  Workload workload(std::span<const ModelTest> tests, std::int64_t n_ranks) const;
  ModelWorkArgs work_args() const;
  // All but cpu, isa, ranks, threads, chunks and clock.
  ModelFacts facts() const;

 private:
  Workload formats() const;  // without lengths

  BenchFlags flags_;
  DeviceId device_;  // of the first rank
  std::string name_;
  std::int64_t n_layers_of_model_ = 0;
  std::shared_ptr<ModelSource> source_;
  HeadRoles roles_;
  HeadTable heads_;  // as the roles say
};

}  // namespace longhaul::bench
