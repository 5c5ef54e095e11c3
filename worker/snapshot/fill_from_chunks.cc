#include "worker/snapshot/fill_from_chunks.h"

#include <fmt/format.h>

#include <array>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/direct_file.h"
#include "base/error.h"
#include "base/sha256.h"
#include "worker/snapshot/file_layout.h"
#include "worker/snapshot/file_stretches.h"
#include "worker/snapshot/in_parallel.h"
#include "worker/snapshot/pages_to_fill.h"

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

// Hashes what lies between a file's chunks in its order, while threads read here and there.
class BetweenHash {
 public:
  // Of the file's stretch `i`, from 0; each once.
  void add(std::int64_t i, std::vector<std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace(i, std::move(bytes));
    for (auto first = waiting_.begin(); first != waiting_.end() && first->first == n_added_;
         first = waiting_.erase(first), ++n_added_) {
      const std::vector<std::byte>& here = first->second;
      hash_.add({reinterpret_cast<const char*>(here.data()), here.size()});
    }
  }
  std::string finish() { return hash_.finish(); }

 private:
  std::mutex mutex_;  // guards what follows
  Sha256 hash_;
  std::map<std::int64_t, std::vector<std::byte>> waiting_;
  std::int64_t n_added_ = 0;
};

PagesToFill pages_of(const FillFromChunksArgs& args) {
  std::vector<std::byte*> blocks;
  for (const auto& [head, of_head] : args.blocks) {
    for (const BlockToFill& block : of_head) blocks.push_back(block.data);
  }
  return {std::move(blocks), args.shape.bytes()};
}

class ChunkReader {
 public:
  explicit ChunkReader(FillFromChunksArgs args) : args_(std::move(args)), pages_(pages_of(args_)) {
    std::vector<std::vector<const SavedChunk*>> of_file(args_.header.parts.size());
    for (const SavedChunk& chunk : args_.index.chunks) {
      const auto file = static_cast<std::size_t>(chunk.file);
      if (args_.checks(file) || !rows_of(chunk).empty()) of_file[file].push_back(&chunk);
    }
    for (std::size_t i = 0; i < of_file.size(); ++i) {
      File& file = files_.emplace_back();
      const WrittenFile& part = args_.header.parts[i];
      const std::optional<std::int64_t> whole =
          args_.checks(i) ? std::optional(part.n_bytes) : std::nullopt;
      for (FileStretch& stretch : file_stretches(std::move(of_file[i]), whole))
        places_.push_back({i, file.n_stretches++, std::move(stretch)});
      if (file.n_stretches > 0) file.bytes.emplace(args_.header.folder() / part.name);
    }
  }

  void read() {
    const auto n_places = static_cast<std::int64_t>(places_.size());
    in_parallel(
        n_places,
        [this](std::int64_t i, Piece& room) {
          read_stretch(places_[static_cast<std::size_t>(i)], room);
        },
        n_checking_threads(n_places));
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (args_.checks(i) && files_[i].between.finish() != args_.header.parts[i].sha256_between)
        fail(args_.header, static_cast<std::int64_t>(i), "what lies between its chunks");
    }
  }

 private:
  struct File {
    std::optional<DirectFile> bytes;  // where something is to be read
    std::int64_t n_stretches = 0;
    BetweenHash between;
  };
  struct Place {
    std::size_t file = 0;
    std::int64_t number = 0;  // of the file's stretches
    FileStretch stretch;
  };

  std::vector<RowsToBlock> rows_of(const SavedChunk& chunk) const {
    const auto blocks = args_.blocks.find({chunk.layer, chunk.kv_head});
    const SavedIndex::PieceRuns* piece = args_.index.piece(chunk);
    if (blocks == args_.blocks.end() || piece == nullptr) return {};
    const std::int64_t n = tokens_of_row(chunk);
    return rows_to_blocks(piece->runs, {chunk.rows.begin * n, chunk.rows.end * n}, blocks->second);
  }
  std::int64_t tokens_of_row(const SavedChunk& chunk) const {
    return row_tokens(args_.shape, chunk.set.side, chunk.set.part);
  }

  void read_stretch(const Place& place, Piece& room) {
    const FileStretch& stretch = place.stretch;
    const auto n_bytes = static_cast<std::size_t>(stretch.bytes.size());
    room.set_size(DirectFile::room_for(n_bytes));
    File& file = files_[place.file];
    const std::span<const std::byte> bytes = file.bytes->read(stretch.bytes.begin, n_bytes, room);
    const auto part_of = [&](Extent part) {
      return bytes.subspan(static_cast<std::size_t>(part.begin - stretch.bytes.begin),
                           static_cast<std::size_t>(part.size()));
    };
    if (args_.checks(place.file)) {
      std::vector<std::byte> between;
      for (const Extent& gap : stretch.between) {
        const std::span<const std::byte> here = part_of(gap);
        between.insert(between.end(), here.begin(), here.end());
      }
      file.between.add(place.number, std::move(between));
    }
    for (const SavedChunk* chunk : stretch.chunks)
      take_chunk(*chunk, part_of({chunk->offset, chunk->offset + chunk->n_bytes}));
  }

  void take_chunk(const SavedChunk& chunk, std::span<const std::byte> bytes) {
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
      const std::int64_t row = rows.rows.begin / tokens_of_row(chunk) - chunk.rows.begin;
      const std::size_t at = static_cast<std::size_t>(row) * n_row_bytes;
      pages_.take(rows.block);
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
  PagesToFill pages_;
  std::deque<File> files_;     // as /files has them
  std::vector<Place> places_;  // by file and place
  BlockLocks locks_;
};

}  // namespace

void check_chunks(const SavedHeader& header, const WrittenFile& part) {
  const SavedIndex index = read_saved_index(header);
  const KvBlockShape shape = header.block_shape();
  const std::map<std::pair<LayerId, KvHeadId>, std::span<const BlockToFill>> none;
  ChunkReader reader({.header = header,
                      .index = index,
                      .shape = shape,
                      .blocks = none,
                      .checks = [&](std::size_t i) { return header.parts[i].name == part.name; }});
  reader.read();
}

void fill_from_chunks(const FillFromChunksArgs& args) {
  for (const WrittenFile& part : args.header.parts) check_part_size(args.header, part);
  ChunkReader(args).read();
}

}  // namespace longhaul
