#include "worker/snapshot/saved_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "worker/snapshot/file_layout.h"

namespace longhaul {
namespace {

class IndexReader {
 public:
  explicit IndexReader(const SavedHeader& header)
      : header_(header), file_(Hdf5File::open(header.master)) {}

  SavedIndex read() {
    SavedIndex index{.chunks = read_chunk_table(file_), .heads = {}};
    std::map<std::pair<LayerId, KvHeadId>, std::vector<FileRows>> rows;
    for (const SavedChunk& chunk : index.chunks) {
      require_sane(chunk.file < static_cast<std::int64_t>(header_.parts.size()));
      const bool is_key = chunk.set == RowSet{KvSide::kKeys, RowPart::kValues};
      if (!chunk.is_used || !is_key) continue;
      std::vector<FileRows>& of_head = rows[{chunk.layer, chunk.kv_head}];
      if (of_head.empty() || of_head.back().file != chunk.file)
        of_head.push_back({.file = chunk.file});
      of_head.back().n_rows += chunk.rows.size();
    }
    for (const auto& [head, of_head] : rows)
      index.heads[head] = pieces_of(head.first, head.second, of_head);
    return index;
  }

 private:
  struct FileRows {
    std::int64_t file = 0;
    std::int64_t n_rows = 0;
    auto operator<=>(const FileRows&) const = default;
  };

  void require_sane(bool ok) const {
    if (ok) return;
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: its tables do not fit one another", header_.master.string()));
  }

  // Heads with the same rows share the data set of their positions, which is read once.
  const std::vector<SavedIndex::PieceRuns>& pieces_of(LayerId layer, KvHeadId kv_head,
                                                      const std::vector<FileRows>& of_head) {
    const Hdf5Id dataset = file_.open_dataset(head_path(layer, kv_head) + "/positions");
    H5O_info_t info{};
    file_.check(H5Oget_info2(dataset, &info, H5O_INFO_BASIC), "cannot read");
    const auto [known, is_new] = known_.try_emplace({info.addr, of_head});
    if (is_new) known->second = pieces(positions_in(dataset), of_head);
    return known->second;
  }

  std::vector<std::int64_t> positions_in(const Hdf5Id& dataset) const {
    std::vector<std::int64_t> positions(static_cast<std::size_t>(file_.shape(dataset).at(0)));
    file_.check(H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, positions.data()),
                "cannot read");
    return positions;
  }

  std::vector<SavedIndex::PieceRuns> pieces(const std::vector<std::int64_t>& positions,
                                            const std::vector<FileRows>& of_head) const {
    std::vector<SavedIndex::PieceRuns> found;
    std::size_t at = 0;
    for (const FileRows& rows : of_head) {
      const auto n_rows = static_cast<std::size_t>(rows.n_rows);
      require_sane(at + n_rows <= positions.size());
      SavedIndex::PieceRuns piece{.file = rows.file, .runs = {}};
      for (const std::size_t end = at + n_rows; at < end; ++at) {
        const std::int64_t position = positions[at];
        if (!piece.runs.empty() && piece.runs.back().end == position) {
          ++piece.runs.back().end;
        } else {
          piece.runs.push_back({position, position + 1});
        }
      }
      found.push_back(std::move(piece));
    }
    require_sane(at == positions.size());
    return found;
  }

  const SavedHeader& header_;
  Hdf5File file_;
  // By the place of the positions in the file.
  std::map<std::pair<std::uint64_t, std::vector<FileRows>>, std::vector<SavedIndex::PieceRuns>>
      known_;
};

}  // namespace

const SavedIndex::PieceRuns* SavedIndex::piece(const SavedChunk& chunk) const {
  const auto head = heads.find({chunk.layer, chunk.kv_head});
  if (head == heads.end() || !chunk.is_used) return nullptr;
  const auto piece =
      std::find_if(head->second.begin(), head->second.end(),
                   [&](const PieceRuns& candidate) { return candidate.file == chunk.file; });
  return piece == head->second.end() ? nullptr : &*piece;
}

SavedIndex read_saved_index(const SavedHeader& header) {
  const Hdf5Lock lock;
  return IndexReader(header).read();
}

}  // namespace longhaul
