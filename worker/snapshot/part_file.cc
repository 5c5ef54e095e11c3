// One rank's file: rows of K and V of each head piece, and their positions; on the rank that
// answers also the last hidden row.
#include <fmt/format.h>

#include <map>

#include "base/device/device_memory.h"
#include "base/direct_file.h"
#include "base/direct_output.h"
#include "base/error.h"
#include "base/file.h"
#include "base/sync_file.h"
#include "kernels/kv_close.h"
#include "worker/snapshot/block_rows.h"
#include "worker/snapshot/cache_files.h"
#include "worker/snapshot/chunk_table.h"
#include "worker/snapshot/file_layout.h"
#include "worker/snapshot/free_space.h"
#include "worker/snapshot/hdf5_file.h"
#include "worker/snapshot/in_parallel.h"
#include "worker/snapshot/open_rows.h"
#include "worker/snapshot/row_chunks.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// The blocks of heads as the host can read them: themselves, or copies of a GPU's.
class BlocksOnHost {
 public:
  BlocksOnHost(const SavedSequence& saved, std::span<const HeadPiece> pieces) {
    const std::size_t block_bytes = saved.shape.bytes();
    const std::size_t open_bytes = open_block_shape(saved.shape).bytes();
    std::size_t n_bytes = 0;
    for (const HeadPiece& piece : pieces) {
      blocks_.emplace_back(piece.blocks.begin(), piece.blocks.end());
      open_.push_back(piece.open);
      n_bytes += piece.blocks.size() * block_bytes + (piece.open.n_tokens > 0 ? open_bytes : 0);
    }
    if (saved.stream.device() == Device::kCpu) return;
    memory_.resize(n_bytes);
    std::vector<HostCopy> copies;
    std::size_t at = 0;
    const auto bring = [&](KvBlockRef& block, std::size_t n) {
      copies.push_back({std::span(memory_).subspan(at, n), block.data});
      block.data = memory_.data() + at;
      at += n;
    };
    for (std::vector<KvBlockRef>& blocks : blocks_)
      for (KvBlockRef& block : blocks) bring(block, block_bytes);
    for (KvBlockRef& block : open_)
      if (block.n_tokens > 0) bring(block, open_bytes);
    copy_to_host(saved.stream, copies);
  }
  std::span<const KvBlockRef> blocks(std::size_t piece) const { return blocks_[piece]; }
  const KvBlockRef& open(std::size_t piece) const { return open_[piece]; }

 private:
  std::vector<std::vector<KvBlockRef>> blocks_;  // of each piece
  std::vector<KvBlockRef> open_;                 // the same
  std::vector<std::byte> memory_;
};

// A head's rows and the chunks that they are written in.
struct HeadRows {
  const HeadPiece* piece = nullptr;
  KvBlockRef open = {};
  std::vector<BlockRun> runs;
  struct Set {
    RowSet set;
    std::vector<RowChunk> chunks;
  };
  std::vector<Set> sets;
};

class PartWriter {
 public:
  PartWriter(const SavedSequence& saved, Hdf5File& file) : saved_(saved), file_(file) {}

  // HDF5 gives one chunk after the other its place; threads make them meanwhile and write them
  // there.
  void write(std::span<const HeadPiece> pieces) {
    const BlocksOnHost on_host(saved_, pieces);
    std::vector<HeadRows> heads;
    for (std::size_t i = 0; i < pieces.size(); ++i)
      heads.push_back(rows_of(pieces[i], on_host.blocks(i), on_host.open(i)));
    try {
      write_heads(heads);
    } catch (...) {
      file_.abandon();
      throw;
    }
  }

  void finish() const { write_chunk_table(file_, chunks_); }
  const std::vector<SavedChunk>& chunks() const { return chunks_; }

  void write_last_hidden(std::span<const float> row) {
    const auto n = static_cast<std::int64_t>(row.size());
    const Hdf5Id dataset = file_.make_rows({.name = kLastHidden,
                                            .type = H5T_IEEE_F32LE,
                                            .n_rows = n,
                                            .n_columns = 0,
                                            .chunk_rows = n});
    file_.write_attribute(dataset, "DIMENSION_LABELS", std::vector<std::string>{"dim"});
    file_.write_attribute(dataset, "units", std::string("1"));
    file_.write_attribute(dataset, "long_name",
                          std::string("the last token's state after the model's last layer, before "
                                      "the norm and the output head that make its logits"));
    file_.write_rows(dataset, {0, n}, row.data());
  }

 private:
  struct Place {
    const HeadRows* head = nullptr;
    const HeadRows::Set* set = nullptr;
    const RowChunk* rows = nullptr;
  };

  HeadRows rows_of(const HeadPiece& piece, std::span<const KvBlockRef> blocks,
                   const KvBlockRef& open) const {
    HeadRows head{.piece = &piece, .open = open, .runs = piece.runs(blocks), .sets = {}};
    if (head.runs.empty()) return head;
    for (const RowSet& set : row_sets(saved_.shape)) {
      const std::size_t n_bytes = row_bytes(saved_.shape, set.side, set.part);
      const std::int64_t n_tokens = row_tokens(saved_.shape, set.side, set.part);
      const std::int64_t n_rows = n_tokens_in(head.runs) / n_tokens;
      head.sets.push_back({set, row_chunks(head.runs, n_tokens, chunk_rows(n_bytes, n_rows))});
    }
    return head;
  }

  void begin_head(const HeadRows& head) {
    const HeadPiece& piece = *head.piece;
    const std::string path = head_path(piece.layer, piece.kv_head);
    const Hdf5Id group = file_.make_group(path);
    file_.write_attribute(group, "role", std::string(role_name(piece.kind)));
    file_.write_attribute(group, "sink", piece.window.sink);
    file_.write_attribute(group, "recent",
                          piece.is_chosen               ? kKeepsChosen
                          : piece.n_slots               ? kKeepsSlots
                          : piece.window.is_unlimited() ? kKeepsAll
                                                        : piece.window.recent);
    if (piece.n_slots) file_.write_attribute(group, "n_slots", *piece.n_slots);
    if (!head.runs.empty()) write_positions(path, head.runs);
    if (!piece.seen_by.empty()) write_seen_by(file_, path, piece.seen_by);
    if (!piece.attention.empty()) write_attention(file_, path, piece);
    write_recipe(file_, group, piece.recipe);
    if (piece.gone.n > 0) write_gone(file_, path, piece.gone);
    if (head.open.n_tokens > 0) {
      write_open_rows(file_, open_path(piece.layer, piece.kv_head), saved_.shape, head.open);
    }
  }

  void write_heads(std::span<const HeadRows> heads) {
    std::vector<Place> places;  // of all chunks, in the order of the file
    std::int64_t n_bytes = file_.n_bytes();
    for (const HeadRows& head : heads) {
      for (const HeadRows::Set& set : head.sets) {
        for (const RowChunk& rows : set.chunks) {
          places.push_back({&head, &set, &rows});
          n_bytes += bytes_on_disk(set, rows);
        }
      }
    }
    // Threads find what they are allowed to work on where it is: nothing moves from here on.
    const std::size_t n_before = chunks_.size();
    chunks_.resize(n_before + places.size());
    const std::span<SavedChunk> chunks = std::span(chunks_).subspan(n_before);
    DirectOutput out(file_.path());
    out.reserve(n_bytes);
    PieceThreads threads([&](std::int64_t i, Piece& bytes) {
      const auto at = static_cast<std::size_t>(i);
      write_chunk(places[at], chunks[at], bytes, out);
    });
    std::size_t n_reserved = 0;
    for (const HeadRows& head : heads) {
      begin_head(head);
      for (const HeadRows::Set& set : head.sets) {
        reserve_set(head, set, chunks.subspan(n_reserved, set.chunks.size()));
        n_reserved += set.chunks.size();
      }
      threads.allow(static_cast<std::int64_t>(n_reserved));
    }
    threads.finish();
    out.finish();
  }

  // With the checksum, and up to where the next one may begin.
  std::int64_t bytes_on_disk(const HeadRows::Set& set, const RowChunk& rows) const {
    constexpr std::size_t kSector = DirectFile::kSectorBytes;
    const std::size_t n_bytes = chunk_bytes(saved_.shape, set.set, rows);
    return static_cast<std::int64_t>((n_bytes + kSector - 1) / kSector * kSector);
  }

  void write_chunk(const Place& place, SavedChunk& chunk, Piece& bytes, DirectOutput& out) const {
    make_chunk(saved_.shape, place.set->set, place.head->runs, *place.rows, bytes);
    chunk.tag = tag_of(bytes);
    out.write(chunk.offset, bytes);
  }

  void reserve_set(const HeadRows& head, const HeadRows::Set& set, std::span<SavedChunk> chunks) {
    const auto [side, part] = set.set;
    const Hdf5Id dataset = file_.make_rows(
        {.name = head_path(head.piece->layer, head.piece->kv_head) + "/" + dataset_name(side, part),
         .type = file_type(kv_type_of(saved_.shape, side), part),
         .n_rows = set.chunks.back().rows.end,
         .n_columns = row_columns(saved_.shape, side, part),
         .chunk_rows = set.chunks.front().chunk_rows});
    describe_rows(file_, dataset, saved_.shape, side, part);
    for (std::size_t i = 0; i < set.chunks.size(); ++i) {
      const RowChunk& rows = set.chunks[i];
      const auto n_bytes = static_cast<std::int64_t>(chunk_bytes(saved_.shape, set.set, rows));
      chunks[i] = {.layer = head.piece->layer,
                   .kv_head = head.piece->kv_head,
                   .set = set.set,
                   .rows = rows.rows,
                   .offset = file_.reserve_chunk(dataset, rows.rows.begin, n_bytes),
                   .n_bytes = n_bytes};
    }
  }

  // Heads that hold the same positions share one data set.
  void write_positions(const std::string& path, std::span<const BlockRun> runs) {
    std::vector<std::int64_t> edges;
    for (const Extent& run : position_runs(runs)) edges.insert(edges.end(), {run.begin, run.end});
    const std::string name = path + "/positions";
    const auto [known, is_first] = positions_.try_emplace(std::move(edges), name);
    if (is_first) {
      std::vector<std::int64_t> positions;
      for (const BlockRun& run : runs) {
        for (std::int64_t i = run.positions().begin; i < run.positions().end; ++i)
          positions.push_back(i);
      }
      write_position_rows(file_, name, positions);
    } else {
      file_.check(H5Lcreate_hard(file_.id(), known->second.c_str(), file_.id(), name.c_str(),
                                 H5P_DEFAULT, H5P_DEFAULT),
                  "cannot write");
    }
  }

  const SavedSequence& saved_;
  Hdf5File& file_;
  std::vector<SavedChunk> chunks_;
  std::map<std::vector<std::int64_t>, std::string> positions_;  // runs' edges -> where they stand
};

std::size_t estimated_bytes(const SavedSequence& saved, std::span<const HeadPiece> pieces) {
  std::size_t n_bytes = std::size_t{1} << 20;
  for (const HeadPiece& piece : pieces) {
    const auto token_bytes = saved.shape.bytes() / static_cast<std::size_t>(saved.shape.block_size);
    n_bytes += static_cast<std::size_t>(n_tokens_in(piece.runs(piece.blocks))) * token_bytes;
    n_bytes += 16 * piece.attention.size() + piece.local_attention.size_bytes();
    n_bytes += 16 * piece.gone.k.size();
    n_bytes += sizeof(SeenBy) * piece.seen_by.size();
    n_bytes +=
        static_cast<std::size_t>(2 * piece.open.n_tokens * saved.shape.head_dim) * sizeof(float);
  }
  return n_bytes;
}

// Gives where the chunks are in the file.
std::vector<SavedChunk> write_part(const SavedSequence& saved, std::int64_t part,
                                   std::span<const HeadPiece> pieces, const PartRest& rest) {
  const Hdf5Lock lock;
  Hdf5File file = Hdf5File::create(partial_path(saved.part_path(part)));
  describe_file(file, saved, "longhaul-kv-part");
  file.write_attribute(file.id(), "part", part);
  file.write_attribute(file.id(), "master", saved.master_path().filename().string());
  std::vector<SavedChunk> chunks;
  {
    PartWriter writer(saved, file);
    // A GPU's blocks are copied to the host head by head, so that few are there at a time.
    const std::size_t at_once = saved.stream.device() == Device::kCpu ? pieces.size() : 1;
    for (std::size_t i = 0; i < pieces.size(); i += at_once)
      writer.write(pieces.subspan(i, at_once));
    if (!rest.last_hidden.empty()) writer.write_last_hidden(rest.last_hidden);
    for (const SavedQueries& queries : rest.queries) write_queries(file, queries);
    for (const SavedMerging& merging : rest.merging) write_merging(file, merging);
    writer.finish();
    chunks = writer.chunks();
  }
  file.close();
  return chunks;
}

}  // namespace

WrittenFile write_part_file(const SavedSequence& saved, std::int64_t part,
                            std::span<const HeadPiece> pieces, const PartRest& rest) {
  const fs::path path = saved.part_path(part);
  require_space(saved.folder, estimated_bytes(saved, pieces));
  try {
    const std::vector<SavedChunk> chunks = write_part(saved, part, pieces, rest);
    const fs::path partial = partial_path(path);
    WrittenFile written{.name = path.filename().string(),
                        .n_bytes = static_cast<std::int64_t>(fs::file_size(partial)),
                        .sha256_between = sha256_between(partial, bytes_of(chunks, 0))};
    rename_partial(path);
    return written;
  } catch (...) {
    std::error_code ignored;
    fs::remove(partial_path(path), ignored);
    fs::remove(path, ignored);
    throw;
  }
}

}  // namespace longhaul
