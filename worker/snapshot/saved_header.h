// What a saved sequence's master says of it: enough to decide whether a run can go on from it, and
// to check its files before they are used.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/kv_type.h"
#include "kernels/kv_block.h"
#include "worker/snapshot/cache_files.h"

namespace longhaul {

// What is written. Version 2 has no table of chunks; it is read, and written anew where it is gone
// on from.
inline constexpr std::int64_t kCacheFileVersion = 3;
inline constexpr std::int64_t kOldestCacheFileVersion = 2;

struct SavedHeader {
  std::int64_t version = 0;
  std::filesystem::path master;
  std::string producer;
  std::string created_utc;
  std::string content_id;
  std::string model_id;
  std::string model_sha256;
  std::string tokenizer_sha256;
  std::string settings;       // JSON: model, cache types, roles of the heads
  std::string tokens_sha256;  // of int32, little-endian
  std::string model_type;
  double rope_theta = 0.0;
  KvType k_type = KvType::kF32;
  KvType v_type = KvType::kF32;
  std::int64_t n_layers = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t n_tokens = 0;
  std::int64_t block_size = 0;
  std::int64_t generation = 0;
  // Methods have chosen, at the document's end, which of its tokens stay: no text that goes on from
  // it is what a run would have made that read the whole of it.
  bool is_cut = false;
  // What methods go on with is there: sums and queries that stand for the last token.
  bool has_method_state = false;
  std::vector<std::int32_t> first_tokens;  // up to 64: enough to tell most documents apart
  std::vector<WrittenFile> parts;

  std::filesystem::path folder() const { return master.parent_path(); }
  std::string name() const { return master.stem().string(); }
  std::int64_t n_bytes() const;  // of master and parts
  KvBlockShape block_shape() const {
    return {.block_size = block_size, .head_dim = head_dim, .k_type = k_type, .v_type = v_type};
  }
};

// As tokens_sha256.
std::string sha256_of_tokens(std::span<const std::int32_t> tokens);

// The master that a file is a part of, by its name; nullopt for one that is no part.
std::optional<std::filesystem::path> master_of_part(const std::filesystem::path& file);

// The masters in a folder, by name; none where there is no folder. Throws kInvalidArgument for a
// folder that may not be read, or is none, and kIo.
std::vector<std::filesystem::path> saved_masters(const std::filesystem::path& folder);

// Checks the whole master (not its parts). Throws kCorruptData naming the file and what is wrong,
// kUnsupported for another format version, by number; kIo.
SavedHeader read_saved_header(const std::filesystem::path& master);
std::vector<std::int32_t> read_saved_tokens(const SavedHeader& header);

// Throw kCorruptData naming the part that is missing, too short or not what was written.
void check_part_size(const SavedHeader& header, const WrittenFile& part);  // opens no file
void check_part(const SavedHeader& header, const WrittenFile& part);

// What the master says that a head keeps.
struct SavedRole {
  std::string name;  // "retrieval", "streaming", "window"
  std::int64_t sink = 0;
  std::int64_t recent = -1;  // -1: every token; -2: those that a method chose; -3: merged ones
  bool is_chosen() const { return recent == -2; }
  // Whether tokens were merged into slots: what is said of positions is of slots then, from 0 on.
  bool has_slots() const { return recent == -3; }
  std::int64_t n_slots = 0;  // then; two heads of one role may have other numbers of them
  bool operator==(const SavedRole& other) const {
    return name == other.name && sink == other.sink && recent == other.recent;
  }
};
std::vector<SavedRole> read_saved_roles(const SavedHeader& header);  // [n_layers, n_kv_heads]
// What a head goes by since the document was whole (FastGen); none of other heads.
std::optional<Recipe> read_saved_recipe(const SavedHeader& header, LayerId layer, KvHeadId kv_head);
// The positions that a head keeps, ascending.
std::vector<std::int64_t> read_saved_positions(const SavedHeader& header, LayerId layer,
                                               KvHeadId kv_head);
// The query heads that see each of them (kernels/kv_block.h); none: all see all.
std::vector<SeenBy> read_saved_seen_by(const SavedHeader& header, LayerId layer, KvHeadId kv_head);

// Whether every head keeps every token, and no method has more: then the caches of any beginning of
// the tokens are there too. Heads with windows keep what stands before the document's end only.
bool keeps_beginnings(const SavedHeader& header);
// Of such a document the longest beginning of at most n_tokens: all of them, but with types that
// quantise groups of tokens only whole blocks, and what ends in the newest one, which is open.
std::int64_t longest_beginning(const SavedHeader& header, std::int64_t n_tokens);

// What a head keeps: a row for each token, as floats.
struct SavedRow {
  std::int64_t position = 0;
  SeenBy seen_by = kSeenByAll;
  std::vector<float> k;  // [head_dim], after RoPE
  std::vector<float> v;  // [head_dim]
};
struct SavedRows {
  SavedRole role;
  std::vector<SavedRow> rows;  // by position
};
// All rows of one head; slow and large, for tools. Throws kCorruptData and kInternal for rows that
// are damaged, missing, or there twice.
SavedRows read_saved_head(const SavedHeader& header, LayerId layer, KvHeadId kv_head);

}  // namespace longhaul
