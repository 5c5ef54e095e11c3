// What a decoder-only model is, as numbers: dimensions, RoPE, attention variants. Plain data,
// filled from config.json (hf_config.h) or by tests; knows no weights.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace longhaul {

// How inverse frequencies are stretched past the trained length. Names as in Hugging Face's
// rope_scaling.rope_type.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3, kYarn };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  std::int64_t original_max_position = 0;  // llama3, yarn
  double beta_fast = 32.0;                 // yarn
  double beta_slow = 1.0;                  // yarn
  std::optional<double> attention_factor =
      std::nullopt;  // yarn: given outright, else from factor (and mscale, mscale_all_dim)
  std::optional<double> mscale = std::nullopt;          // yarn
  std::optional<double> mscale_all_dim = std::nullopt;  // yarn
  bool truncate = true;  // yarn: round the correction range to whole dimensions
};

// One more key in each head's softmax, whose value is zero: no token, and what a query gives it
// goes nowhere. A logit is not multiplied by 1 / sqrt(head_dim).
enum class SinkLogits : std::uint8_t {
  kNone,
  kZero,  // logit 0: softmax-off-by-one (StreamingLLM, arXiv 2309.17453, section 3.3: "zero sink")
  kLearned,  // each query head has its own (gpt-oss)
};

// What Dynamic Memory Compression was trained with (DMC; Nawrot et al. 2024, arXiv 2403.09636), by
// the names of its published code: dmc_window_size and dmc_init_val. kernels/merge_tokens.h says
// what is computed.
struct TokenMerging {
  std::int64_t window = 12;  // a slot's key and value are means over at most so many tokens
  double init_val = 5.0;     // what the last elements of keys and queries are measured against
  bool operator==(const TokenMerging&) const = default;
};

struct ModelSpec {
  static constexpr std::int64_t kNoWindow = std::numeric_limits<std::int64_t>::max();

  std::string model_type = {};  // "llama", "mistral", "qwen2", "qwen3"
  std::int64_t vocab_size = 0;
  std::int64_t d_model = 0;
  std::int64_t d_ff = 0;
  std::int64_t n_layers = 0;
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_seq_len = 0;  // max_position_embeddings
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm over head_dim of q and k before RoPE (Qwen3)
  SinkLogits sink_logits = SinkLogits::kNone;
  bool tied_embeddings = false;
  // Every head merges tokens (DMC): such a model computes nothing sensible otherwise.
  std::optional<TokenMerging> token_merging = std::nullopt;
  // Per layer: a query at p sees keys with p - j < window (Mistral, Qwen sliding-window layers);
  // kNoWindow = all.
  std::vector<std::int64_t> attention_window = {};
  DType weight_dtype = DType::kF32;  // torch_dtype or fp8: what the files hold, by their own word

  std::int64_t gqa_group() const { return n_heads / n_kv_heads; }
  float sm_scale() const;  // of a query's products with keys: 1 / sqrt(head_dim)
  // Throws kInvalidArgument naming the first dimension that makes no sense (zero, not dividing, odd
  // head_dim, ...).
  void validate() const;
};

}  // namespace longhaul
