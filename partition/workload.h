// What a plan must be able to carry: the longest document, the questions on it, the chunk and the
// form of caches and weights. Everything that fits for this workload fits for smaller ones.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/dtype.h"
#include "base/ids.h"
#include "model/model_spec.h"
#include "partition/kv_format.h"

namespace longhaul {

struct Workload {
  static constexpr std::int64_t kMaxTokens = std::int64_t{1} << 36;

  std::int64_t document_tokens = 131072;  // of the longest document; 0: requests without documents
  std::int64_t tail_tokens = 2048;        // question and answer of one request
  std::int64_t n_sequences = 1;           // requests in flight, each a fork of the document
  std::int64_t chunk_len = 8192;          // tokens of a prefill chunk, over the whole ring
  std::int64_t n_guesses = 0;             // of a decode step for each of them, at most
  KvType k_type = KvType::kBf16;
  KvType v_type = KvType::kBf16;
  std::int64_t block_size = 64;
  std::optional<DType> weight_dtype = std::nullopt;  // as held in memory; none: the model files'

  bool reproducible = false;  // the plan's results have the same bits as on one rank (plan.h)

  // As held in memory: f16 and f64 files are converted to f32 once.
  DType weights(const ModelSpec& spec) const {
    const DType dtype = weight_dtype.value_or(spec.weight_dtype);
    return dtype == DType::kF16 || dtype == DType::kF64 ? DType::kF32 : dtype;
  }
  KvFormat kv(const ModelSpec& spec) const { return {k_type, v_type, block_size, spec.head_dim}; }
  std::int64_t document_blocks() const { return ceil_div(document_tokens, block_size); }
  // Blocks that the tail of one fork can touch, wherever in a block it starts.
  std::int64_t tail_blocks() const {
    return tail_tokens == 0 ? 0 : ceil_div(tail_tokens - 1, block_size) + 1;
  }
  // Tokens of a decode step: with guesses, which take what room there is in kRowsWithGuesses.
  static constexpr std::int64_t kRowsWithGuesses = 64;
  std::int64_t decode_rows() const {
    return std::max(n_sequences, std::min(kRowsWithGuesses, n_sequences * (1 + n_guesses)));
  }
  // Throws kInvalidArgument naming the field.
  void validate() const;
  bool operator==(const Workload&) const = default;
};

}  // namespace longhaul
