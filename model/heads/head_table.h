// The policies of all KV heads of a model: one table for a run, made by a function named after a
// method, from the parameters that the method publishes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/head_profile.h"
#include "model/heads/head_policy.h"
#include "model/model_spec.h"

namespace longhaul {

class HeadTable {
 public:
  HeadTable() = default;  // of no heads
  // All heads alike. Throws kInvalidArgument for a policy that makes no sense.
  HeadTable(std::int64_t n_layers, std::int64_t n_kv_heads, const HeadPolicy& policy = {});

  std::int64_t n_layers() const { return n_layers_; }
  std::int64_t n_kv_heads() const { return n_kv_heads_; }
  const HeadPolicy& at(LayerId layer, KvHeadId kv_head) const {
    return policies_[index(layer, kv_head)];
  }
  KeyWindow window(LayerId layer, KvHeadId kv_head) const { return window_of(at(layer, kv_head)); }
  // Throws kInvalidArgument for a policy that makes no sense.
  void set(LayerId layer, KvHeadId kv_head, const HeadPolicy& policy);

  std::int64_t count(HeadKind kind) const;
  // Heads of which some tokens are chosen to stay (KeepBudget).
  std::int64_t count_chosen() const;
  // Heads that read some pages of what they keep (ReadTopPages).
  std::int64_t count_paged() const;
  // Whether some heads choose tokens or pages by where a prompt ended, or while an answer grows:
  // then an answer's caches are not those of a prompt of the same tokens.
  bool chooses_in_answers() const;
  // Whether some heads choose tokens when a document is whole.
  bool cuts_documents() const;
  // Whether heads ask what kinds of tokens a text has (model/token_class.h).
  bool needs_token_classes() const;
  // Whether heads merge tokens (DMC): all of a table that can be run, or none.
  bool merges_tokens() const;
  // Whether heads keep a key for what their windows have left behind (Rest).
  bool leaves_rest() const;
  // Whether a sequence can take back its newest tokens: no head has dropped others for their sake,
  // or keeps bounds or sums that hang on them.
  bool can_take_back() const;
  // The different windows, without the unlimited one, in order of appearance.
  std::vector<KeyWindow> windows() const;
  bool operator==(const HeadTable&) const = default;

 private:
  std::size_t index(LayerId layer, KvHeadId kv_head) const {
    return static_cast<std::size_t>(layer.value * n_kv_heads_ + kv_head.value);
  }
  std::int64_t n_layers_ = 0;
  std::int64_t n_kv_heads_ = 0;
  std::vector<HeadPolicy> policies_;  // [n_layers, n_kv_heads], published order
};

// Every function below gives the heads of layers where the model itself has a window that window
// (SeeModelWindow), whatever the method says, and lets those of a model that merges tokens do that
// (ModelSpec::token_merging): windows besides are refused. All throw kInvalidArgument, for
// parameters that make no sense or are of another model's shape, too. Local, pure.

// Every head sees every token.
HeadTable dense_heads(const ModelSpec& spec);

// Every head sees `sink` first and `recent` last tokens, at positions in the cache (StreamingLLM,
// Xiao et al. 2023, arXiv 2309.17453; its code's recent_size is one less than `recent`) or at their
// own. With sink = 0 a sliding window.
HeadTable streaming_heads(const ModelSpec& spec, const SeeSinkRecent& see);

// Retrieval heads see every token, streaming heads the roles' window (DuoAttention, Xiao et al.
// 2024, arXiv 2410.10819). `roles` come from a profile and a ratio (choose_roles).
HeadTable duo_attention_heads(const ModelSpec& spec, const HeadRoles& roles);

// Throws kUnsupported naming the head and what no worker can do yet; kInvalidArgument for heads
// that do not go together, and for a replica of several ranks with why_not_on_ring.
enum class RunsOn : std::uint8_t { kOneRank, kRing };
void require_runnable(const HeadTable& heads, RunsOn where);

// Why ranks cannot share a document under these heads although one rank can read it: each rank of a
// ring gets one set of window blocks, so a layer's windows must be equal. Nullopt where they can.
std::optional<std::string> why_not_on_ring(const HeadTable& heads);

// Throws kInvalidArgument naming the head whose pages (ReadTopPages) are no whole part of a block.
void require_whole_pages(const HeadTable& heads, std::int64_t block_size);

// Throws kInvalidArgument naming the head of which tokens would have to move, merge or be read one
// by one although these types quantise groups of tokens.
void require_storable(const HeadTable& heads, KvType k_type, KvType v_type);

// Throws kInvalidArgument unless the table has the model's layers and KV heads, and heads merge
// tokens if and only if the model was made for that.
void require_fits(const HeadTable& heads, const ModelSpec& spec);

// For people: how many heads see every token, and which windows the others have.
std::string describe_briefly(const HeadTable& heads);
// The same and the count of retrieval heads of each layer.
std::string describe(const HeadTable& heads);

}  // namespace longhaul
