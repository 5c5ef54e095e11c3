// The parts of a worker with one sequence, whose caches can be filled without computing what is in
// them: decoding far into a document is measured in seconds instead of minutes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tools/bench/model_work.h"
#include "worker/attention/own_blocks.h"
#include "worker/logits_reader.h"
#include "worker/transformer.h"

namespace longhaul::bench {

HeadTable every_other_streaming(const ModelSpec& spec);
std::vector<std::int32_t> some_tokens(std::int64_t n, std::int64_t vocab_size);

struct FilledModelConfig {
  ModelSpec spec;
  HeadTable heads;
  DType weights = DType::kBf16;
  KvBlockShape blocks;
  std::int64_t chunk_len = 0;
  std::optional<std::size_t> cache_limit_bytes = std::nullopt;  // none: the GPU's memory
};

// On GPU 0. Used by one thread.
class FilledModel {
 public:
  explicit FilledModel(const FilledModelConfig& config);

  // Appends n tokens, at most a chunk, with the keys and values of the first chunk's last layer.
  // False where there is no memory for them in all caches, which can then not be used any more.
  bool append(std::int64_t n);
  // One token as the worker decodes it; waits for what comes after it.
  void decode();
  // The same but for reading what comes after it: all that the host does to queue a token, as one
  // step.
  void queue_decode();
  // As attention to the longest history takes it.
  void reserve_scratch();

  std::int64_t n_tokens() const { return n_tokens_; }
  std::int64_t n_free_at_first() const { return n_free_; }
  const HeadTable& heads() const { return layout_.heads(); }
  const cuda::Stream& stream() const { return stream_; }
  ModelWorkArgs work_args() const;

 private:
  TensorView<const float, 2> forward(const std::vector<std::int32_t>& tokens);

  cuda::Stream stream_;
  std::int64_t n_free_;
  Weights weights_;
  DType weight_type_;
  CacheLayout layout_;
  BlockPool pool_;
  LayerCompute compute_;
  Transformer transformer_;
  OwnBlocks own_blocks_;
  LogitsReader reader_;
  SequenceCache cache_;
  std::int64_t n_tokens_ = 0;
};

}  // namespace longhaul::bench
