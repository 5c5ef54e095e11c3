// The whole model once more, in double precision and written to be read: the oracle for the
// engine's logits. No cache, no chunks, no blocks and no code shared with worker or kernels; only
// the model's files are read by the same code (which the stored logits of another implementation
// check).
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "model/head_profile.h"
#include "model/model_folder.h"

namespace longhaul::test {

// Which keys a query sees: j <= p and (j < sink or p - j < recent). The default is plain causal
// attention. With a slide > 1 the keys of a buffer of sink + recent slots, which forgets so many
// tokens behind the sink each time before a token comes that it has no slot for.
struct KeyMask {
  std::int64_t sink = 0;
  std::int64_t recent = ModelSpec::kNoWindow;
  // Whether keys and query take their numbers in the list of keys that are seen as positions
  // (StreamingLLM: what is not seen is evicted, and the cache is rotated anew), not those in the
  // text.
  bool counts_kept_keys = false;
  std::int64_t slide = 1;
  // Queries from this position on see of the keys before it only those kept, ascending.
  std::int64_t n_cut = ModelSpec::kNoWindow;
  std::vector<std::int64_t> kept = {};
  // [gqa_group] the same of each query head by itself; empty: alike.
  std::vector<std::vector<std::int64_t>> kept_apart = {};
  // Queries from this position on read only n_pages pages of page_tokens tokens: the last one and
  // those whose bound of the product with the query head is highest, of equal ones the earlier.
  std::int64_t pages_from = ModelSpec::kNoWindow;
  std::int64_t page_tokens = 1;
  std::int64_t n_pages = 1;
  // Gets the smallest difference of bounds between a page that is read and one that is not, as a
  // share of the former.
  double* page_margin = nullptr;
  // Keys that no later query sees. May grow while a text is read: all heads' queries at a position
  // are asked before those at the next.
  const std::set<std::int64_t>* forgotten = nullptr;
  // Keys and values of so many bits as KIVI has them (Liu et al. 2024, arXiv 2402.02750): a query
  // meets those of its own `residual` tokens, [r n, r (n + 1)) around its position, as they are,
  // and all before them quantised in groups of 32, keys channel by channel, values token by token.
  // 0: nothing is quantised.
  int kivi_bits = 0;
  std::int64_t residual = 64;
  // Of the keys that have left the window, one that stands for all: their mean, and that of their
  // values, as often as they are (Tang et al. 2024, arXiv 2407.15891, section 3.3).
  bool adds_mean_of_gone = false;
  // `head` counts in the group.
  bool sees(std::int64_t query, std::int64_t key, std::int64_t head = 0) const;
};

// The masks [n_layers, n_kv_heads] that `roles` ask for. A layer with a window of its own
// (ModelSpec::attention_window) uses that for all heads, whatever their roles.
std::vector<KeyMask> key_masks(const ModelSpec& spec, const HeadRoles& roles);
// The same with a key for what is gone where roles have a window.
std::vector<KeyMask> compensated_masks(const ModelSpec& spec, const HeadRoles& roles);

// Weights are read and widened once; every call computes everything anew, in O(n_tokens^2).
class ReferenceModel {
 public:
  explicit ReferenceModel(const ModelFolder& folder);
  // What enters a product with bf16 weights: as it is, or rounded to bf16 as the engine's kernels
  // do (kernels/linear.h). Or weights of int8 or int4, whatever the files have: matrices and what
  // enters their products are quantised (kernels/int8_weights.h, int4_weights.h), the embedding is
  // rounded to bf16. All else stays double.
  enum class Inputs { kExact, kRoundedToBf16, kInt8, kInt4 };
  ReferenceModel(const ModelFolder& folder, Inputs inputs);
  // As if config.json had said `spec`: shows that a wrong setting is seen.
  ReferenceModel(const ModelFolder& folder, const ModelSpec& spec);

  const ModelSpec& spec() const { return spec_; }
  // Logits after each token of the text, [n_tokens, vocab_size].
  std::vector<double> logits(std::span<const std::int32_t> tokens) const;  // all heads see all
  std::vector<double> logits(std::span<const std::int32_t> tokens,
                             std::span<const KeyMask> masks) const;  // [n_layers, n_kv_heads]
  // The same, telling the softmax weights of every query, by layer and query head.
  struct Attention {
    std::int64_t layer = 0;
    std::int64_t head = 0;
    std::int64_t query = 0;
    std::span<const std::int64_t> keys;  // positions
    std::span<const double> weights;     // of each
    std::span<const double> own_key;     // [head_dim] of the query's position, after RoPE
  };
  using OnAttention = std::function<void(const Attention&)>;
  std::vector<double> logits(std::span<const std::int32_t> tokens, std::span<const KeyMask> masks,
                             const OnAttention& on_attention) const;

  // Of a model that merges tokens (DMC), which all of the above do as well: what its caches hold
  // after the text.
  struct Merged {
    std::vector<std::int64_t> n_slots;  // [n_layers, n_kv_heads]
    double margin = 1e9;                // how near any decision was to the other one
  };
  std::vector<double> logits(std::span<const std::int32_t> tokens, Merged& merged) const;

 private:
  // A matrix [n_rows, n_columns]: activations have a row for each token.
  struct Matrix {
    std::int64_t n_rows = 0;
    std::int64_t n_columns = 0;
    std::vector<double> values;
    Matrix() = default;
    Matrix(std::int64_t rows, std::int64_t columns)
        : n_rows(rows), n_columns(columns), values(static_cast<std::size_t>(rows * columns)) {}
    double* row(std::int64_t i) { return values.data() + i * n_columns; }
    const double* row(std::int64_t i) const { return values.data() + i * n_columns; }
  };
  // out = x W^T + bias. Kept transposed, [n_in, n_out], so that the inner loop runs over outputs.
  struct Linear {
    Matrix transposed;
    std::vector<double> bias;  // empty: none
    bool has_bf16_weight = false;
    std::int64_t group = 0;  // of inputs that are quantised together; 0: they are not
  };
  struct Layer {
    std::vector<double> attention_norm;  // [d_model]
    std::vector<double> ffn_norm;        // [d_model]
    std::vector<double> q_norm;          // [head_dim], empty without QK norm
    std::vector<double> k_norm;          // [head_dim]
    std::vector<double> sink_logits;     // [n_heads], empty without
    Linear q, k, v, o;
    Linear gate, up, down;
  };

  static std::vector<double> read(const ModelFolder& folder, const std::string& name,
                                  const std::vector<std::int64_t>& shape);
  static Linear read_linear(const ModelFolder& folder, const std::string& name, std::int64_t n_out,
                            std::int64_t n_in, bool has_bias);
  Layer read_layer(const ModelFolder& folder, std::int64_t index) const;

  void quantise(Linear& linear, std::int64_t group) const;
  void make_integers();
  Matrix apply(const Linear& linear, const Matrix& x) const;
  void normalize(std::span<double> x, std::span<const double> weight) const;  // RMSNorm, in place
  Matrix normalized(const Matrix& x, std::span<const double> weight) const;
  void normalize_heads(Matrix& x, std::span<const double> norm) const;  // QK norm, if any
  void rotate(double* head, std::int64_t position) const;               // RoPE
  Matrix rotated(Matrix x) const;
  // One query over a head's keys; adds to out[head_dim]. Both are rotated already, unless the mask
  // counts kept keys.
  struct HeadView {
    const double* k;
    const double* v;
    const double* quantised_k;  // null where nothing is
    const double* quantised_v;
    std::int64_t stride;  // from one token's vector to the next one's
    const KeyMask& mask;
    std::int64_t layer;
    std::int64_t head;
    std::optional<double> sink_logit;
    const OnAttention& on_attention;
    const double* key(std::int64_t query, std::int64_t position) const {
      return (is_quantised(query, position) ? quantised_k : k) + position * stride;
    }
    const double* value(std::int64_t query, std::int64_t position) const {
      return (is_quantised(query, position) ? quantised_v : v) + position * stride;
    }
    bool is_quantised(std::int64_t query, std::int64_t position) const {
      return mask.kivi_bits > 0 && position < query / mask.residual * mask.residual;
    }
  };
  Matrix kivi_keys(Matrix keys, int bits) const;
  Matrix kivi_values(Matrix values, int bits) const;
  std::vector<std::int64_t> in_chosen_pages(const HeadView& head, std::span<const double> q,
                                            std::span<const std::int64_t> keys) const;
  struct MeanOfGone {
    std::int64_t n = 0;
    std::vector<double> k = {};
    std::vector<double> v = {};
  };
  MeanOfGone mean_of_gone(const HeadView& head, std::int64_t position,
                          std::span<const std::int64_t> seen) const;
  void attend(const HeadView& head, std::span<const double> q, std::int64_t position,
              double* out) const;
  Matrix attention(std::int64_t number, const Matrix& x, std::span<const KeyMask> masks,
                   const OnAttention& on_attention, Merged* merged) const;
  Matrix merged_attention(const Layer& layer, Matrix q, Matrix k, const Matrix& v,
                          Merged* merged) const;
  std::vector<double> logits(std::span<const std::int32_t> tokens, std::span<const KeyMask> masks,
                             const OnAttention& on_attention, Merged* merged) const;
  Matrix feed_forward(const Layer& layer, const Matrix& x) const;

  ModelSpec spec_;
  Inputs inputs_ = Inputs::kExact;
  std::vector<double> inverse_frequencies_;  // [head_dim / 2]
  double rope_scale_ = 1.0;                  // multiplies cos and sin
  Matrix embedding_;                         // [vocab_size, d_model]
  std::vector<Layer> layers_;
  std::vector<double> final_norm_;  // [d_model]
  Linear head_;                     // to vocab_size
};

}  // namespace longhaul::test
