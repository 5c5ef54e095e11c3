// The files that hold a sequence's caches (docs/kv_files.md): a part for each rank, and the master
// that presents all parts as one. This header is what the rest of the worker knows of HDF5; without
// HDF5, hdf5_absent.cc stands in. Threads of one process may call these functions at the same time
// (HDF5 itself is entered by one at a time).
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/device/device.h"
#include "base/file.h"
#include "base/ids.h"
#include "cluster/wire/step.h"
#include "kernels/compensate.h"
#include "kernels/kv_block.h"
#include "model/heads/head_policy.h"
#include "model/heads/recipe.h"
#include "model/model_spec.h"
#include "worker/kv/merge_state.h"
#include "worker/snapshot/block_rows.h"

namespace longhaul {

struct WrittenFile {
  std::string name;  // within the folder
  std::int64_t n_bytes = 0;
  // Of its bytes outside of the chunks that /chunks names: structure, positions, and its own table
  // of chunks with their checksums, so that it stands for all of the file.
  std::string sha256_between;
  std::string sha256 = {};  // of all its bytes; files of version 2 only
  bool operator==(const WrittenFile&) const = default;
};

// What all files of one sequence have in common. Everything referred to must outlive it.
struct SavedSequence {
  std::filesystem::path folder;
  std::string name;  // of the files, without extension
  const ModelSpec& spec;
  KvBlockShape shape;
  StreamRef stream = StreamRef::cpu();  // whose device has the blocks
  std::span<const std::int32_t> tokens;
  std::span<const Named<std::string>> facts;  // one of them is content_id: equal for equal content
  // Of files that go on from earlier ones of this name: those that hold the beginning, and how
  // often they were gone on from.
  std::span<const WrittenFile> earlier_parts = {};
  std::int64_t generation = 0;
  // Methods have chosen, at the document's end, which of its tokens stay (SequenceCache::is_cut).
  bool is_cut = false;
  // Heads merge tokens: rows are slots, of which the newest may change.
  bool has_slots = false;

  std::filesystem::path master_path() const { return folder / (name + ".h5"); }
  // NAME.part-0003.h5, NAME.part-0003.g2.h5
  std::filesystem::path part_path(std::int64_t part) const;
};

// A head's role as files name it: "retrieval", "streaming", "window" (the model's own).
std::string_view role_name(HeadKind kind);

// What one rank holds of one head.
struct HeadPiece {
  LayerId layer;
  KvHeadId kv_head;
  HeadKind kind = HeadKind::kRetrieval;
  KeyWindow window;
  std::span<const KvBlockRef> blocks;  // ascending
  Extent without = {};                 // positions that are not written
  // Of a head of which a method chose tokens: it keeps these and no others.
  bool is_chosen = false;
  std::vector<TokenPos> positions = {};  // of all slots, where it is chosen or has sums
  // Of chosen slots, the query heads that see each; none: all see all.
  std::vector<SeenBy> seen_by = {};
  // What each slot got of attention, of methods that sum it up; and the part of it from queries in
  // whose local window it was, of those that ask for that.
  std::span<const double> attention = {};
  std::span<const double> local_attention = {};
  std::optional<Recipe> recipe = std::nullopt;  // that the head goes by (FastGen)
  // Of heads that merge tokens: rows are slots, so many on all ranks together.
  std::optional<std::int64_t> n_slots = std::nullopt;
  // What has left the window, of heads that keep a key for it.
  GoneSums gone = {};
  // Of types that quantise groups of tokens: the block, of f32, in which the newest tokens lie
  // open; of no tokens where there is none here.
  KvBlockRef open = {};

  std::vector<BlockRun> runs(std::span<const KvBlockRef> of_blocks) const;  // that are written
};

// The newest queries of a layer, [n, n_heads * head_dim], which methods choose tokens by.
struct SavedQueries {
  LayerId layer;
  std::span<const std::int64_t> positions;  // [n]
  std::span<const float> q;
};

// What a layer's heads that merge tokens go on with (MergeState), on the host.
struct SavedMerging {
  LayerId layer;
  RawLayout layout;
  std::vector<float> tokens;          // the newest: [n_tokens, layout.row_size()]
  std::vector<std::int64_t> n_slots;  // [n_kv_heads]; empty: none

  std::int64_t n_tokens() const {
    return tokens.empty() ? 0 : static_cast<std::int64_t>(tokens.size()) / layout.row_size();
  }
};

// What a rank writes besides the rows of its heads.
struct PartRest {
  std::span<const float> last_hidden = {};  // [d_model], on the rank that answers
  std::vector<SavedQueries> queries = {};   // on one rank of each layer
  std::vector<SavedMerging> merging = {};   // likewise
};

// Writes one rank's part: to a temporary name, renamed. It may not outlast a crash, and nothing may
// name it, before sync_part_file() has returned. Throws kIo with file and remedy; nothing is left
// behind then.
WrittenFile write_part_file(const SavedSequence& saved, std::int64_t part,
                            std::span<const HeadPiece> pieces, const PartRest& rest = {});

void sync_part_file(const SavedSequence& saved, std::int64_t part);

// Writes the master over the earlier parts and these, which are complete and can be read here: to a
// temporary name, synced. Throws kInternal when the parts together lack tokens that a head keeps,
// or hold some twice; these parts are removed when it fails.
void write_master_file(const SavedSequence& saved, std::span<const WrittenFile> parts);
// Gives it its name, in the place of an earlier master, when it and all parts are on the disk: from
// then on, after a crash too, the document is saved. These parts are removed when it gets no name.
void publish_master_file(const SavedSequence& saved, std::span<const WrittenFile> parts);
// Removes a master that has not got its name, and these parts.
void drop_master_file(const SavedSequence& saved, std::span<const WrittenFile> parts);

// True when the master is there with this content_id and all its parts are whole; false when there
// is no master, one of another format version, or one of this content whose parts are damaged.
// Throws kFailedPrecondition when the master holds something else, kCorruptData when it cannot be
// read.
bool is_saved(const SavedSequence& saved);

// NAME.lock, held by whoever writes or removes the files of a name; it may be removed while it is
// held. None: another process holds it. Throws kIo.
std::optional<AppendFile> lock_saved(const std::filesystem::path& folder, const std::string& name);

// Removes master and parts, temporary ones too; what is not there is no error.
void remove_saved(const std::filesystem::path& folder, const std::string& name);
// Removes those parts, temporary ones too, that are not among `used`.
void remove_parts_but(const std::filesystem::path& folder, const std::string& name,
                      std::span<const WrittenFile> used);

}  // namespace longhaul
