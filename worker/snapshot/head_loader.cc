#include "worker/snapshot/head_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "worker/snapshot/block_rows.h"
#include "worker/snapshot/convert_rows.h"
#include "worker/snapshot/file_layout.h"

namespace longhaul {
namespace {

// Keys or values of one piece.
class SideReader {
 public:
  SideReader(const Hdf5File& file, const std::string& head, const KvBlockShape& stored, KvSide side)
      : file_(file), stored_(stored), side_(side) {
    for (const RowPart part : row_parts(kv_type_of(stored, side))) {
      const std::string name = head + "/" + dataset_name(side, part);
      datasets_.push_back({.part = part, .name = name, .id = file.open_dataset(name)});
    }
  }
  std::int64_t chunk_rows() const { return file_.chunk_rows(datasets_.front().id); }
  void check_shape(std::int64_t n_rows) const {
    for (const Dataset& dataset : datasets_) {
      std::vector<std::int64_t> wanted = {n_rows / row_tokens(stored_, side_, dataset.part)};
      if (const std::int64_t n = row_columns(stored_, side_, dataset.part); n > 0)
        wanted.push_back(n);
      if (file_.shape(dataset.id) != wanted) {
        throw Error(ErrorCode::kCorruptData,
                    fmt::format("{} of {} has another shape than its head's positions",
                                dataset.name, file_.path()));
      }
    }
  }
  // Neighbouring tokens whose rows are read together.
  std::int64_t group() const { return quantises_groups(kv_type_of(stored_, side_)) ? kKvGroup : 1; }
  // Of tokens that are whole groups.
  CacheRows read(Extent tokens) const {
    CacheRows read;
    for (const Dataset& dataset : datasets_) {
      std::vector<std::byte>& to = dataset.part == RowPart::kValues   ? read.values
                                   : dataset.part == RowPart::kScales ? read.scales
                                                                      : read.minima;
      const std::int64_t n = row_tokens(stored_, side_, dataset.part);
      const Extent rows{tokens.begin / n, tokens.end / n};
      to.resize(static_cast<std::size_t>(rows.size()) * row_bytes(stored_, side_, dataset.part));
      const Hdf5Id type = file_type(kv_type_of(stored_, side_), dataset.part);
      file_.read_rows(dataset.id, dataset.name, type, rows, to.data());
    }
    return read;
  }

 private:
  struct Dataset {
    RowPart part;
    std::string name;
    Hdf5Id id;
  };
  const Hdf5File& file_;
  const KvBlockShape& stored_;
  KvSide side_;
  std::vector<Dataset> datasets_;
};

// Puts rows [first, ...) of one side, of the blocks' type, where they belong.
void put(const CacheRows& read, std::int64_t first, std::span<const RowsToBlock> taken,
         const KvBlockShape& shape, KvSide side) {
  for (const RowPart part : row_parts(kv_type_of(shape, side))) {
    const std::vector<std::byte>& from = part == RowPart::kValues   ? read.values
                                         : part == RowPart::kScales ? read.scales
                                                                    : read.minima;
    for (const RowsToBlock& rows : taken) {
      const std::int64_t row = (rows.rows.begin - first) / row_tokens(shape, side, part);
      fill_block_rows(
          {.shape = shape,
           .side = side,
           .part = part,
           .rows = from.data() + static_cast<std::size_t>(row) * row_bytes(shape, side, part),
           .slots = rows.slots,
           .block = rows.block});
    }
  }
}

std::vector<float> floats_of(const CacheRows& rows) {
  std::vector<float> floats(rows.values.size() / sizeof(float));
  std::memcpy(floats.data(), rows.values.data(), rows.values.size());
  return floats;
}

// `k` and `v`: [positions of the runs, head_dim].
void append_rows(const std::vector<Extent>& runs, const std::vector<float>& k,
                 const std::vector<float>& v, std::int64_t head_dim, std::vector<SavedRow>& rows) {
  std::ptrdiff_t at = 0;
  for (const Extent& run : runs) {
    for (std::int64_t position = run.begin; position < run.end; ++position) {
      const std::ptrdiff_t end = at + head_dim;
      rows.push_back({.position = position,
                      .k = {k.begin() + at, k.begin() + end},
                      .v = {v.begin() + at, v.begin() + end}});
      at = end;
    }
  }
}

CacheRows rows_of_floats(const std::vector<float>& floats) {
  const auto bytes = std::as_bytes(std::span(floats));
  return {.values = {bytes.begin(), bytes.end()}, .scales = {}, .minima = {}};
}

}  // namespace

HeadLoader::HeadLoader(const SavedHeader& header) : HeadLoader(header, header.parts) {
  may_lack_rows_ = false;
}

HeadLoader::HeadLoader(const SavedHeader& header, std::span<const WrittenFile> parts)
    : header_(header), may_lack_rows_(true) {
  const Hdf5Lock lock;
  reader_ = std::make_unique<PartReader>(PartsOf{.folder = header.folder(),
                                                 .content_id = header.content_id,
                                                 .n_tokens = header.n_tokens,
                                                 .parts = parts});
}

SavedHead HeadLoader::head(LayerId layer, KvHeadId kv_head) {
  return may_lack_rows_ ? reader_->read_what_is_there(layer, kv_head)
                        : reader_->read(layer, kv_head);
}

std::vector<Extent> HeadLoader::runs(LayerId layer, KvHeadId kv_head) {
  const Hdf5Lock lock;
  return head(layer, kv_head).runs();
}

HeadLoader::~HeadLoader() {
  const Hdf5Lock lock;
  reader_.reset();
}

void HeadLoader::fill(LayerId layer, KvHeadId kv_head, const KvBlockShape& shape,
                      std::span<const BlockToFill> blocks) {
  const KvBlockShape stored = header_.block_shape();
  std::optional<Hdf5Lock> lock(std::in_place);
  const SavedHead head = this->head(layer, kv_head);
  for (const PartPiece& piece : head.pieces) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const SideReader reader(reader_->file_of(piece), head_path(layer, kv_head), stored, side);
      reader.check_shape(piece.n_rows);
      const std::int64_t group = reader.group();
      const std::int64_t chunk = ceil_div(reader.chunk_rows(), group) * group;
      for (std::int64_t first = 0; first < piece.n_rows; first += chunk) {
        const std::vector<RowsToBlock> taken =
            rows_to_blocks(piece.runs, {first, std::min(first + chunk, piece.n_rows)}, blocks);
        if (taken.empty()) continue;
        const Extent rows{taken.front().rows.begin / group * group,
                          ceil_div(taken.back().rows.end, group) * group};
        CacheRows read = reader.read(rows);
        lock.reset();
        const RowConversion conversion{side, kv_type_of(stored, side), kv_type_of(shape, side)};
        put(convert_rows(std::move(read), conversion, rows.size(), stored.head_dim), rows.begin,
            taken, shape, side);
        lock.emplace();
      }
    }
  }
  lock.reset();
  if (stored.quantises_groups() && !shape.quantises_groups())
    fill_newest(layer, kv_head, shape, blocks);
}

void HeadLoader::fill_newest(LayerId layer, KvHeadId kv_head, const KvBlockShape& shape,
                             std::span<const BlockToFill> blocks) {
  const OpenRows newest = open_rows(layer, kv_head);
  const std::vector<Extent> runs = {newest.positions};
  const std::int64_t n = newest.positions.size();
  const std::vector<RowsToBlock> taken = rows_to_blocks(runs, {0, n}, blocks);
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    const RowConversion conversion{side, KvType::kF32, kv_type_of(shape, side)};
    const std::vector<float>& from = side == KvSide::kKeys ? newest.k : newest.v;
    put(convert_rows(rows_of_floats(from), conversion, n, shape.head_dim), 0, taken, shape, side);
  }
}

OpenRows HeadLoader::open_rows(LayerId layer, KvHeadId kv_head) {
  const Hdf5Lock lock;
  return reader_->open_rows(layer, kv_head);
}

SavedRows HeadLoader::rows(LayerId layer, KvHeadId kv_head) {
  const KvBlockShape stored = header_.block_shape();
  const Hdf5Lock lock;
  const SavedHead head = this->head(layer, kv_head);
  SavedRows all{.role = {.name = head.role, .sink = head.sink, .recent = head.recent}, .rows = {}};
  for (const PartPiece& piece : head.pieces) {
    const Hdf5File& file = reader_->file_of(piece);
    const SideReader keys(file, head_path(layer, kv_head), stored, KvSide::kKeys);
    const SideReader values(file, head_path(layer, kv_head), stored, KvSide::kValues);
    keys.check_shape(piece.n_rows);
    values.check_shape(piece.n_rows);
    const auto floats = [&](const SideReader& reader, KvSide side) {
      const RowConversion conversion{side, kv_type_of(stored, side), KvType::kF32};
      return floats_of(
          convert_rows(reader.read({0, piece.n_rows}), conversion, piece.n_rows, stored.head_dim));
    };
    const std::size_t n_before = all.rows.size();
    append_rows(piece.runs, floats(keys, KvSide::kKeys), floats(values, KvSide::kValues),
                stored.head_dim, all.rows);
    const std::vector<SeenBy> seen_by = reader_->seen_by(piece, layer, kv_head);
    for (std::size_t i = 0; i < seen_by.size(); ++i) all.rows[n_before + i].seen_by = seen_by[i];
  }
  const OpenRows newest = reader_->open_rows(layer, kv_head);
  append_rows({newest.positions}, newest.k, newest.v, stored.head_dim, all.rows);
  std::sort(all.rows.begin(), all.rows.end(),
            [](const SavedRow& a, const SavedRow& b) { return a.position < b.position; });
  return all;
}

SavedRows read_saved_head(const SavedHeader& header, LayerId layer, KvHeadId kv_head) {
  return HeadLoader(header).rows(layer, kv_head);
}

ObservedQueries::Rows HeadLoader::queries(LayerId layer) {
  const Hdf5Lock lock;
  return reader_->queries(layer);
}

SavedMerging HeadLoader::merging(LayerId layer) {
  const Hdf5Lock lock;
  return reader_->merging(layer);
}

std::map<std::int64_t, double> HeadLoader::attention(LayerId layer, KvHeadId kv_head,
                                                     AttentionOf of) {
  const Hdf5Lock lock;
  return reader_->attention(layer, kv_head, of);
}

GoneSums HeadLoader::gone(LayerId layer, KvHeadId kv_head) {
  const Hdf5Lock lock;
  return reader_->gone(layer, kv_head);
}

std::vector<float> HeadLoader::last_hidden() {
  const Hdf5Lock lock;
  const Hdf5File* file = reader_->last_hidden_file();
  if (file == nullptr) return {};
  const Hdf5Id dataset = file->open_dataset(kLastHidden);
  std::vector<float> row(static_cast<std::size_t>(file->shape(dataset).at(0)));
  file->read_rows(dataset, kLastHidden, H5T_IEEE_F32LE, {0, static_cast<std::int64_t>(row.size())},
                  row.data());
  return row;
}

}  // namespace longhaul
