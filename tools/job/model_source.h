// Where the ranks of a job get their weights from: a model's folder, or whatever else can make
// layers of one. Every process of a job has its own, of the same model.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/dtype.h"
#include "base/file_wait.h"
#include "base/ids.h"
#include "base/json.h"
#include "model/model_folder.h"
#include "model/token_class.h"
#include "tools/job/job_config.h"
#include "worker/weights.h"

namespace longhaul {

// Keeps what it has read: ranks of one process, and one run after the other, share the weights of
// the same layers on the same device. Thread-safe.
class ModelSource {
 public:
  using Load = std::function<Weights(Extent layers, const DeviceId&)>;
  // `weight_dtype`: of the matrices, in memory. `load` is called by one thread at a time.
  // `folder` is the one that they come from, if any.
  ModelSource(ModelSpec spec, DType weight_dtype, Load load,
              std::shared_ptr<const ModelFolder> folder = nullptr);

  const ModelSpec& spec() const { return spec_; }
  DType weight_dtype() const { return weight_dtype_; }
  const ModelFolder* folder() const { return folder_.get(); }  // null: they come from elsewhere
  std::string name() const;                                    // for people: the folder
  // How it is read now: until weights were, no work is under way that a stop must let end.
  FileUse use() const { return has_read_ ? FileUse::kReadingAtWork : FileUse::kReadingBeforeWork; }
  // An object; equal in every process of a job that has the same model. Reads samples of the files.
  // Of weights that come from no folder, the dimensions alone.
  Json fingerprint() const;
  // Blocks while they are read; throws what `load` throws.
  std::shared_ptr<const Weights> layers(Extent layers, const DeviceId& device);
  std::shared_ptr<const Weights> all_layers(const DeviceId& device);
  // What kinds of tokens its tokenizer has; of weights that come from no folder none is special.
  // Read the first time.
  std::shared_ptr<const TokenClasses> token_classes();

 private:
  ModelSpec spec_;
  DType weight_dtype_;
  Load load_;
  std::shared_ptr<const ModelFolder> folder_;
  std::atomic<bool> has_read_ = false;  // some layers
  std::mutex mutex_;                    // guards shelf_; held while reading
  std::map<std::pair<Extent, std::string>, std::shared_ptr<const Weights>> shelf_;  // by device
  std::shared_ptr<const TokenClasses> token_classes_;
};

// A folder's weights, in the form that the job wants. Throws kInvalidArgument if they are not fp8
// and it wants their inputs to be.
std::shared_ptr<ModelSource> source_of(std::shared_ptr<const ModelFolder> folder,
                                       const JobConfig& job);

// As the matrices will be in memory: asked for, or of the files if they are there, or as
// config.json says.
DType weights_in_memory(std::optional<DType> asked, const ModelFolder& folder);
// Whether a process has the matrices for itself, because its files have another type or it was told
// to copy them; else they are used where the files are mapped.
bool makes_weights(const JobConfig& job, const ModelFolder& folder);

}  // namespace longhaul
