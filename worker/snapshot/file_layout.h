// Names and attributes that parts and masters share (docs/kv_files.md). Private to this folder.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "worker/snapshot/block_rows.h"
#include "worker/snapshot/cache_files.h"
#include "worker/snapshot/hdf5_file.h"

namespace longhaul {

inline constexpr const char* kLastHidden = "/last_hidden";
// "recent" of a head that keeps every token, or those that a method chose when the document was
// whole.
inline constexpr std::int64_t kKeepsAll = -1;
inline constexpr std::int64_t kKeepsChosen = -2;
// Every slot that tokens were merged into.
inline constexpr std::int64_t kKeepsSlots = -3;

std::string head_path(LayerId layer, KvHeadId kv_head);  // "/layers/00/kv_heads/00"
std::string queries_path(LayerId layer);                 // "/layers/00/queries"
std::string merging_path(LayerId layer);                 // "/layers/00/merging"
std::string open_path(LayerId layer, KvHeadId kv_head);  // "/layers/00/kv_heads/00/open"
std::string dataset_name(KvSide side, RowPart part);     // "k", "v", "k_scale", "v_minimum"
// The type of a row's elements in files.
Hdf5Id file_type(KvType type, RowPart part);
// Rows of a chunk: at most about 1 MiB, the size of HDF5's cache of a data set, and so many that
// the last chunk, which is stored whole, is nearly full.
std::int64_t chunk_rows(std::size_t row_bytes, std::int64_t n_rows);

// Root attributes: what the file is, model and format of the caches, the caller's facts.
void describe_file(const Hdf5File& file, const SavedSequence& saved, std::string_view format);
// Attributes of a data set of keys or values, or of their scales or minima: axes, unit, type,
// rotation.
void describe_rows(const Hdf5File& file, hid_t dataset, const KvBlockShape& shape, KvSide side,
                   RowPart part);
void write_position_rows(const Hdf5File& file, const std::string& name,
                         std::span<const std::int64_t> positions);
// Which query heads see each row of a head, bit g those of the KV head's query head g.
void write_seen_by(const Hdf5File& file, const std::string& head, std::span<const SeenBy> rows);
// What a method needs to go on: the newest queries of a layer, what each token of a head got of
// attention, and sums of what has left its window.
void write_queries(const Hdf5File& file, const SavedQueries& queries);
void write_merging(const Hdf5File& file, const SavedMerging& merging);
void write_attention(const Hdf5File& file, const std::string& head, const HeadPiece& piece);
// The recipe that a head goes by: attributes of its group, and none where it has none.
void write_recipe(const Hdf5File& file, hid_t head, const std::optional<Recipe>& recipe);
// Throws kCorruptData for a name that is no recipe's.
std::optional<Recipe> read_recipe(const Hdf5File& file, hid_t head);
void write_gone(const Hdf5File& file, const std::string& head, const GoneSums& gone);

}  // namespace longhaul
