// The model that a benchmark runs: a folder's, or random weights of a shape, with its heads' roles.
#pragma once
#include <memory>
#include <string>

#include "model/head_profile.h"
#include "tools/bench/bench_flags.h"
#include "tools/bench/model_work.h"
#include "worker/worker.h"

namespace longhaul::bench {

// Immutable once made.
class BenchModel {
 public:
  // Reads or makes the weights, which takes seconds for billions. Throws kOutOfMemory when random
  // ones would not fit the memory that is free now, and what reading of models throws.
  explicit BenchModel(const BenchFlags& flags);

  WorkerConfig worker_config(int n_threads) const;
  ModelWorkArgs work_args() const;
  // All but cpu, isa, n_threads and clock.
  ModelFacts facts() const;
  const DeviceId& device() const { return device_; }

 private:
  BenchFlags flags_;
  DeviceId device_;
  std::string name_;
  std::int64_t n_layers_of_model_ = 0;
  std::shared_ptr<const Weights> weights_;
  HeadRoles roles_;
  DType weight_dtype_ = DType::kF32;
  KvType k_type_ = KvType::kF32;
  KvType v_type_ = KvType::kF32;
};

// Roles of the heads of the first spec.n_layers layers of a model that has n_layers_of_model.
HeadRoles bench_roles(const BenchFlags& flags, const ModelSpec& spec,
                      std::int64_t n_layers_of_model);

}  // namespace longhaul::bench
