// What the parts of a saved sequence hold, head by head, read from the parts themselves. Private to
// this folder.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "worker/kv/observed_queries.h"
#include "worker/snapshot/cache_files.h"
#include "worker/snapshot/chunk_table.h"
#include "worker/snapshot/hdf5_file.h"

namespace longhaul {

// A part's rows of one head.
struct PartPiece {
  std::string file;  // name of the part
  std::int64_t n_rows = 0;
  std::vector<Extent> runs;  // positions of its rows, in order
};

// The newest tokens of one head (open_rows.h), which one part has.
struct OpenPiece {
  std::string file;
  Extent positions;
};
struct OpenRows {
  Extent positions;
  std::vector<float> k;  // [positions, head_dim], after RoPE
  std::vector<float> v;
};

// One head, over all parts.
struct SavedHead {
  LayerId layer;
  KvHeadId kv_head;
  std::string role;
  std::int64_t sink = 0;
  std::int64_t recent = 0;        // kKeepsAll: every token; kKeepsChosen: those of the pieces
  std::vector<PartPiece> pieces;  // by first position
  std::vector<OpenPiece> open = {};
  std::optional<Recipe> recipe = std::nullopt;
  std::int64_t n_slots = 0;  // that kKeepsSlots keeps: positions are slots then

  std::vector<Extent> runs() const;  // of all rows, in the order of the pieces
  std::int64_t n_rows() const;
};

// The first stretch of positions that a head of `n_tokens` keeps and `sorted` runs do not have all
// of; empty where they have them all. Pure.
Extent first_lacking(const std::vector<Extent>& sorted, std::int64_t sink, std::int64_t recent,
                     std::int64_t n_tokens);

// Local, pure. Throws kInternal unless the head's runs and what is open hold each position at most
// once, all below n_tokens, and all that the head keeps.
void check_head(const SavedHead& head, std::int64_t n_tokens);

// The parts of one sequence.
struct PartsOf {
  std::filesystem::path folder;
  std::string content_id;
  std::int64_t n_tokens = 0;
  std::span<const WrittenFile> parts;
};

// Heads that keep every token have rows in parts of all generations, the others in those of the
// newest one: its parts hold all that they keep.
class PartReader {
 public:
  // Opens all parts. Throws kIo for one that cannot be read here, kCorruptData for one of another
  // sequence.
  explicit PartReader(const PartsOf& of);
  // Checked. Throws kInternal when no part holds it.
  SavedHead read(LayerId layer, KvHeadId kv_head);
  // What these parts have of it, which others may have more of.
  SavedHead read_what_is_there(LayerId layer, KvHeadId kv_head);
  const Hdf5File& file_of(const PartPiece& piece) const;
  // Of a head in the part of a piece, or of all heads in part number i: `file` is the part's
  // number.
  std::vector<SavedChunk> chunks_of(const PartPiece& piece, LayerId layer, KvHeadId kv_head) const;
  const std::vector<SavedChunk>& chunks_of_part(std::size_t i) const { return parts_[i].chunks; }
  // Which query heads see each row of a piece; none: all see all.
  std::vector<SeenBy> seen_by(const PartPiece& piece, LayerId layer, KvHeadId kv_head) const;
  // What a method needs to go on, of the newest parts: a layer's newest queries, none where there
  // are none; what each token of a head got of attention, by position; and what has left its
  // window.
  ObservedQueries::Rows queries(LayerId layer) const;
  enum class AttentionOf { kAllQueries, kLocalQueries };
  std::map<std::int64_t, double> attention(LayerId layer, KvHeadId kv_head, AttentionOf of) const;
  GoneSums gone(LayerId layer, KvHeadId kv_head) const;
  // Whether there is any of that for the head.
  bool has_state(LayerId layer, KvHeadId kv_head) const;
  OpenRows open_rows(LayerId layer, KvHeadId kv_head) const;  // none where there are none
  // What later tokens of a layer may merge with; of none where no head merges.
  SavedMerging merging(LayerId layer) const;
  // The part that has a layer's queries or its merging; empty when there is none.
  std::string part_with(const std::string& path) const;
  // The part with the last hidden row; null when there is none.
  const Hdf5File* last_hidden_file() const;
  std::string last_hidden_part() const;  // its name; empty when there is none

 private:
  struct Part {
    std::string name;
    Hdf5File file;
    bool is_newest = true;  // of the generations
    std::vector<SavedChunk> chunks;
    std::map<std::uint64_t, std::vector<Extent>> runs;  // by the data set's place in the file
  };
  const std::vector<Extent>& runs_of(Part& part, const std::string& dataset);
  Extent open_positions(const Hdf5File& file, const std::string& path) const;

  std::int64_t n_tokens_;
  std::vector<Part> parts_;
};

}  // namespace longhaul
