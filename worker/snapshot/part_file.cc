// One rank's file: rows of K and V of each head piece, and their positions; on the rank that
// answers also the last hidden row.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/device/device_memory.h"
#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"
#include "worker/snapshot/block_rows.h"
#include "worker/snapshot/cache_files.h"
#include "worker/snapshot/file_layout.h"
#include "worker/snapshot/free_space.h"
#include "worker/snapshot/hdf5_file.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// Fills whole chunks from blocks and writes each with one call.
void write_rows(const Hdf5File& file, const SavedSequence& saved, const HeadPiece& piece,
                std::span<const BlockRun> runs, KvSide side, RowPart part) {
  const KvBlockShape& shape = saved.shape;
  const Hdf5Id type = file_type(kv_type_of(shape, side), part);
  const std::size_t n_bytes = row_bytes(shape, side, part);
  const std::int64_t n_tokens = n_tokens_in(runs);
  const std::int64_t chunk = chunk_rows(n_bytes, n_tokens);
  const Hdf5Id dataset = file.make_rows(
      {.name = head_path(piece.layer, piece.kv_head) + "/" + dataset_name(side, part),
       .type = type,
       .n_rows = n_tokens,
       .n_columns = part == RowPart::kValues ? row_elements(shape, side, part) : 0,
       .chunk_rows = chunk});
  describe_rows(file, dataset, saved, side, part);
  std::vector<std::byte> rows(static_cast<std::size_t>(std::min(chunk, n_tokens)) * n_bytes);
  std::int64_t n_written = 0;
  std::int64_t n_filled = 0;
  for (const BlockRun& run : runs) {
    for (std::int64_t slot = run.slots.begin; slot < run.slots.end;) {
      const std::int64_t n = std::min(run.slots.end - slot, chunk - n_filled);
      copy_block_rows({.shape = shape,
                       .side = side,
                       .part = part,
                       .block = run.block,
                       .slots = {slot, slot + n},
                       .to = rows.data() + static_cast<std::size_t>(n_filled) * n_bytes});
      slot += n;
      n_filled += n;
      if (n_filled < chunk && n_written + n_filled < n_tokens) continue;
      file.write_rows(dataset, {n_written, n_written + n_filled}, rows.data());
      n_written += n_filled;
      n_filled = 0;
    }
  }
}

// The blocks of one head as the host can read them: themselves, or copies of a GPU's.
class BlocksOnHost {
 public:
  BlocksOnHost(const SavedSequence& saved, std::span<const KvBlockRef> blocks)
      : blocks_(blocks.begin(), blocks.end()) {
    if (saved.stream.device() == Device::kCpu) return;
    const std::size_t n_bytes = saved.shape.bytes();
    memory_.resize(blocks.size() * n_bytes);
    std::vector<HostCopy> copies;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      copies.push_back({std::span(memory_).subspan(i * n_bytes, n_bytes), blocks[i].data});
      blocks_[i].data = memory_.data() + i * n_bytes;
    }
    copy_to_host(saved.stream, copies);
  }
  std::span<const KvBlockRef> blocks() const { return blocks_; }

 private:
  std::vector<KvBlockRef> blocks_;
  std::vector<std::byte> memory_;
};

class PartWriter {
 public:
  PartWriter(const SavedSequence& saved, Hdf5File& file) : saved_(saved), file_(file) {}

  void write(const HeadPiece& piece) {
    const BlocksOnHost on_host(saved_, piece.blocks);
    const std::vector<BlockRun> runs = block_runs(on_host.blocks(), piece.without);
    const std::string path = head_path(piece.layer, piece.kv_head);
    const Hdf5Id group = file_.make_group(path);
    file_.write_attribute(group, "role", std::string(role_name(piece.kind)));
    file_.write_attribute(group, "sink", piece.window.sink);
    file_.write_attribute(group, "recent",
                          piece.window.is_unlimited() ? kKeepsAll : piece.window.recent);
    if (runs.empty()) return;
    write_positions(path, runs);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      for (const RowPart part : row_parts(kv_type_of(saved_.shape, side)))
        write_rows(file_, saved_, piece, runs, side, part);
    }
  }

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
  std::map<std::vector<std::int64_t>, std::string> positions_;  // runs' edges -> where they stand
};

std::size_t estimated_bytes(const SavedSequence& saved, std::span<const HeadPiece> pieces) {
  std::size_t n_bytes = std::size_t{1} << 20;
  for (const HeadPiece& piece : pieces) {
    const auto token_bytes = saved.shape.bytes() / static_cast<std::size_t>(saved.shape.block_size);
    n_bytes += static_cast<std::size_t>(n_tokens_in(block_runs(piece.blocks, piece.without))) *
               token_bytes;
  }
  return n_bytes;
}

void write_part(const SavedSequence& saved, std::int64_t part, std::span<const HeadPiece> pieces,
                std::span<const float> last_hidden) {
  const Hdf5Lock lock;
  Hdf5File file = Hdf5File::create(partial_path(saved.part_path(part)));
  describe_file(file, saved, "longhaul-kv-part");
  file.write_attribute(file.id(), "part", part);
  file.write_attribute(file.id(), "master", saved.master_path().filename().string());
  PartWriter writer(saved, file);
  for (const HeadPiece& piece : pieces) writer.write(piece);
  if (!last_hidden.empty()) writer.write_last_hidden(last_hidden);
  file.close();
}

}  // namespace

WrittenFile write_part_file(const SavedSequence& saved, std::int64_t part,
                            std::span<const HeadPiece> pieces, std::span<const float> last_hidden) {
  const fs::path path = saved.part_path(part);
  require_space(saved.folder, estimated_bytes(saved, pieces));
  try {
    write_part(saved, part, pieces, last_hidden);
    publish_file(path);
    return {.name = path.filename().string(),
            .n_bytes = static_cast<std::int64_t>(fs::file_size(path)),
            .sha256 = file_sha256(path)};
  } catch (...) {
    std::error_code ignored;
    fs::remove(partial_path(path), ignored);
    fs::remove(path, ignored);
    throw;
  }
}

}  // namespace longhaul
