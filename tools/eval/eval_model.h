// What evaluations work with: a model whose texts can be read and written, and how its ranks
// are to hold it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/model_folder.h"
#include "model/tokenizer/tokenizer.h"
#include "partition/workload.h"
#include "tools/job/job_config.h"
#include "tools/job/model_source.h"

namespace longhaul {

// What the ranks of a replica must have room for besides the weights.
struct EvalLengths {
  std::int64_t document_tokens = 0;  // of the longest document
  std::int64_t tail_tokens = 0;      // that a fork of it adds, or a text without a document has
  std::int64_t n_sequences = 1;      // forks or texts at a time
};

// Immutable once opened, but for the weights that its source reads.
class EvalModel {
 public:
  // Reads configuration and tokenizer; the weights are read by the ranks, through source().
  EvalModel(std::shared_ptr<const ModelFolder> folder, const JobConfig& config);

  const ModelFolder& folder() const { return *folder_; }
  const ModelSpec& spec() const { return folder_->config().spec; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  ModelSource& source() const { return *source_; }
  // What stands in front of every text, such as <s>.
  const std::vector<std::int32_t>& start() const { return start_; }
  bool is_end(std::int32_t token) const;
  // Text alone, without what stands in front of it.
  std::vector<std::int32_t> encode(std::string_view text, bool parse_special = false) const;
  Workload workload(const EvalLengths& lengths, std::int64_t n_ranks) const;
  // "MODEL (llama, 4 layers of 4 KV heads, weights bf16)", and what else than a CPU computes
  std::string description() const;
  Json settings(std::int64_t n_ranks) const;

 private:
  JobConfig config_;
  std::shared_ptr<const ModelFolder> folder_;
  Tokenizer tokenizer_;
  std::shared_ptr<ModelSource> source_;
  std::vector<std::int32_t> start_;
  std::vector<std::int32_t> ends_;
};

// How pictures name the model that was given: org/name, or the last part of a folder's path.
std::string model_name(std::string_view given);

}  // namespace longhaul
