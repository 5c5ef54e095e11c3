#include "worker/snapshot/fill_from_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <optional>

#include "base/disk_file.h"
#include "base/error.h"
#include "worker/snapshot/file_layout.h"
#include "worker/snapshot/in_order.h"

namespace longhaul {
namespace {

[[noreturn]] void fail(const SavedHeader& header, std::int64_t file, const std::string& what) {
  const auto part = header.folder() / header.parts[static_cast<std::size_t>(file)].name;
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{}, which {} is made of, is damaged: the checksum of {} is wrong",
                          part.string(), header.master.filename().string(), what));
}

// A block may get rows from two chunks at once, and in some layouts tokens share bytes.
class BlockLocks {
 public:
  std::mutex& of(const std::byte* block) {
    return mutexes_[std::hash<const std::byte*>{}(block) / 64 % mutexes_.size()];
  }

 private:
  std::array<std::mutex, 61> mutexes_;
};

class ChunkReader {
 public:
  explicit ChunkReader(FillFromChunksArgs args) : args_(std::move(args)) {
    files_.resize(args_.header.parts.size());
    for (const SavedChunk& chunk : args_.index.chunks) {
      const auto file = static_cast<std::size_t>(chunk.file);
      if (args_.checks(file) || !rows_of(chunk).empty()) chunks_.push_back(&chunk);
    }
    for (const SavedChunk* chunk : chunks_) {
      auto& file = files_[static_cast<std::size_t>(chunk->file)];
      if (!file) file.emplace(args_.header.folder() / part_of(chunk->file).name);
    }
    std::sort(chunks_.begin(), chunks_.end(), [](const SavedChunk* a, const SavedChunk* b) {
      return std::pair(a->file, a->offset) < std::pair(b->file, b->offset);
    });
  }

  // After the chunks, with which the system has read most of it.
  void check_what_lies_between() const {
    for (std::size_t i = 0; i < args_.header.parts.size(); ++i) {
      if (!args_.checks(i)) continue;
      const WrittenFile& part = args_.header.parts[i];
      const auto file = static_cast<std::int64_t>(i);
      const std::string found =
          sha256_between(args_.header.folder() / part.name, bytes_of(args_.index.chunks, file));
      if (found != part.sha256_between) fail(args_.header, file, "what lies between its chunks");
    }
  }

  void read() {
    in_parallel(static_cast<std::int64_t>(chunks_.size()), [this](std::int64_t i, Piece& bytes) {
      read_chunk(*chunks_[static_cast<std::size_t>(i)], bytes);
    });
  }

 private:
  const WrittenFile& part_of(std::int64_t file) const {
    return args_.header.parts[static_cast<std::size_t>(file)];
  }

  std::vector<RowsToBlock> rows_of(const SavedChunk& chunk) const {
    const auto blocks = args_.blocks.find({chunk.layer, chunk.kv_head});
    const SavedIndex::PieceRuns* piece = args_.index.piece(chunk);
    if (blocks == args_.blocks.end() || piece == nullptr) return {};
    return rows_to_blocks(piece->runs, chunk.rows, blocks->second);
  }

  void read_chunk(const SavedChunk& chunk, Piece& bytes) {
    bytes.set_size(static_cast<std::size_t>(chunk.n_bytes));
    files_[static_cast<std::size_t>(chunk.file)]->read(chunk.offset, bytes);
    if (tag_of(bytes) != chunk.tag) {
      fail(args_.header, chunk.file,
           fmt::format("{} rows from {} on of {}/{}", chunk.rows.size(), chunk.rows.begin,
                       head_path(chunk.layer, chunk.kv_head),
                       dataset_name(chunk.set.side, chunk.set.part)));
    }
    const std::size_t n_row_bytes = row_bytes(args_.shape, chunk.set.side, chunk.set.part);
    require(static_cast<std::size_t>(chunk.rows.size()) * n_row_bytes <= bytes.size(),
            "a chunk of saved rows is too short");
    for (const RowsToBlock& rows : rows_of(chunk)) {
      const auto at = static_cast<std::size_t>(rows.rows.begin - chunk.rows.begin) * n_row_bytes;
      const std::lock_guard lock(locks_.of(rows.block));
      fill_block_rows({.shape = args_.shape,
                       .side = chunk.set.side,
                       .part = chunk.set.part,
                       .rows = bytes.data() + at,
                       .slots = rows.slots,
                       .block = rows.block});
    }
  }

  FillFromChunksArgs args_;
  std::deque<std::optional<PositionedFile>> files_;  // those with chunks to be read
  std::vector<const SavedChunk*> chunks_;            // by place
  BlockLocks locks_;
};

}  // namespace

void check_chunks(const SavedHeader& header, const WrittenFile& part) {
  const SavedIndex index = read_saved_index(header);
  const KvBlockShape shape{.block_size = header.block_size,
                           .head_dim = header.head_dim,
                           .k_type = header.k_type,
                           .v_type = header.v_type};
  const std::map<std::pair<LayerId, KvHeadId>, std::span<const BlockToFill>> none;
  ChunkReader reader({.header = header,
                      .index = index,
                      .shape = shape,
                      .blocks = none,
                      .checks = [&](std::size_t i) { return header.parts[i].name == part.name; }});
  reader.read();
  reader.check_what_lies_between();
}

void fill_from_chunks(const FillFromChunksArgs& args) {
  for (const WrittenFile& part : args.header.parts) check_part_size(args.header, part);
  ChunkReader reader(args);
  reader.read();
  reader.check_what_lies_between();
}

}  // namespace longhaul
