#include "worker/snapshot/chunk_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/disk_file.h"
#include "base/error.h"
#include "base/sha256.h"
#include "worker/snapshot/file_layout.h"

namespace longhaul {
namespace {

constexpr const char* kTable = "/chunks";

struct ChunkRow {
  std::uint32_t file = 0;
  std::uint32_t layer = 0;
  std::uint32_t kv_head = 0;
  std::uint8_t set = 0;
  std::uint8_t is_used = 0;
  std::array<std::uint8_t, 2> unused{};
  std::int64_t first_row = 0;
  std::int64_t n_rows = 0;
  std::int64_t offset = 0;
  std::int64_t n_bytes = 0;
  Tag128 tag{};
};
static_assert(sizeof(ChunkRow) == 64);

constexpr std::array kSets = {
    RowSet{KvSide::kKeys, RowPart::kValues},   RowSet{KvSide::kKeys, RowPart::kScales},
    RowSet{KvSide::kKeys, RowPart::kMinima},   RowSet{KvSide::kValues, RowPart::kValues},
    RowSet{KvSide::kValues, RowPart::kScales}, RowSet{KvSide::kValues, RowPart::kMinima}};

Hdf5Id set_type() {
  Hdf5Id type(H5Tenum_create(H5T_STD_U8LE), H5Tclose);
  for (std::size_t i = 0; i < kSets.size(); ++i) {
    const auto number = static_cast<std::uint8_t>(i);
    H5Tenum_insert(type, dataset_name(kSets[i].side, kSets[i].part).c_str(), &number);
  }
  return type;
}

Hdf5Id row_type() {
  Hdf5Id type(H5Tcreate(H5T_COMPOUND, sizeof(ChunkRow)), H5Tclose);
  const hsize_t n_tag_bytes = sizeof(Tag128);
  const Hdf5Id tag(H5Tarray_create2(H5T_STD_U8LE, 1, &n_tag_bytes), H5Tclose);
  H5Tinsert(type, "file", offsetof(ChunkRow, file), H5T_STD_U32LE);
  H5Tinsert(type, "layer", offsetof(ChunkRow, layer), H5T_STD_U32LE);
  H5Tinsert(type, "kv_head", offsetof(ChunkRow, kv_head), H5T_STD_U32LE);
  H5Tinsert(type, "data_set", offsetof(ChunkRow, set), set_type());
  H5Tinsert(type, "used", offsetof(ChunkRow, is_used), H5T_STD_U8LE);
  H5Tinsert(type, "first_row", offsetof(ChunkRow, first_row), H5T_STD_I64LE);
  H5Tinsert(type, "rows", offsetof(ChunkRow, n_rows), H5T_STD_I64LE);
  H5Tinsert(type, "offset", offsetof(ChunkRow, offset), H5T_STD_I64LE);
  H5Tinsert(type, "bytes", offsetof(ChunkRow, n_bytes), H5T_STD_I64LE);
  H5Tinsert(type, "gmac", offsetof(ChunkRow, tag), tag);
  return type;
}

}  // namespace

void write_chunk_table(const Hdf5File& file, const std::vector<SavedChunk>& chunks) {
  if (chunks.empty()) return;
  std::vector<ChunkRow> rows;
  for (const SavedChunk& chunk : chunks) {
    const auto set = std::find(kSets.begin(), kSets.end(), chunk.set) - kSets.begin();
    rows.push_back({.file = static_cast<std::uint32_t>(chunk.file),
                    .layer = static_cast<std::uint32_t>(chunk.layer.value),
                    .kv_head = static_cast<std::uint32_t>(chunk.kv_head.value),
                    .set = static_cast<std::uint8_t>(set),
                    .is_used = std::uint8_t{chunk.is_used},
                    .first_row = chunk.rows.begin,
                    .n_rows = chunk.rows.size(),
                    .offset = chunk.offset,
                    .n_bytes = chunk.n_bytes,
                    .tag = chunk.tag});
  }
  constexpr std::int64_t kChunkRows = std::int64_t{1} << 14;
  const auto n = static_cast<std::int64_t>(rows.size());
  const Hdf5Id type = row_type();
  const Hdf5Id table = file.make_rows(
      {.name = kTable, .type = type, .n_rows = n, .n_columns = 0, .chunk_rows = kChunkRows});
  file.write_attribute(table, "long_name",
                       std::string("where the chunks of keys and values stand in the files: for "
                                   "readers without HDF5. gmac: AES-128-GCM, key and nonce of "
                                   "zeros, of the chunk's bytes as authenticated data"));
  file.write_rows(table, {0, n}, rows.data());
}

std::vector<SavedChunk> read_chunk_table(const Hdf5File& file) {
  if (!file.has(kTable)) return {};
  const Hdf5Id table = file.open_dataset(kTable);
  std::vector<ChunkRow> rows(static_cast<std::size_t>(file.shape(table).at(0)));
  const Hdf5Id type = row_type();
  file.check(H5Dread(table, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()), "cannot read");
  std::vector<SavedChunk> chunks;
  for (const ChunkRow& row : rows) {
    const bool is_sane = row.set < kSets.size() && row.first_row >= 0 && row.n_rows > 0 &&
                         row.offset >= 0 && row.n_bytes > 0;
    if (!is_sane) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: {} has a row that means nothing", file.path(), kTable));
    }
    chunks.push_back({.file = row.file,
                      .layer = {row.layer},
                      .kv_head = {row.kv_head},
                      .set = kSets[row.set],
                      .rows = {row.first_row, row.first_row + row.n_rows},
                      .offset = row.offset,
                      .n_bytes = row.n_bytes,
                      .tag = row.tag,
                      .is_used = row.is_used != 0});
  }
  return chunks;
}

std::vector<Extent> bytes_of(const std::vector<SavedChunk>& chunks, std::int64_t file) {
  std::vector<Extent> bytes;
  for (const SavedChunk& chunk : chunks) {
    if (chunk.file == file) bytes.push_back({chunk.offset, chunk.offset + chunk.n_bytes});
  }
  return bytes;
}

std::string sha256_between(const std::filesystem::path& path, std::vector<Extent> chunk_bytes) {
  std::sort(chunk_bytes.begin(), chunk_bytes.end());
  const auto n_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
  chunk_bytes.push_back({n_bytes, n_bytes});
  const PositionedFile file(path);
  Sha256 hash;
  std::vector<std::byte> between;
  std::int64_t at = 0;
  for (const Extent& chunk : chunk_bytes) {
    if (chunk.begin > at) {
      between.resize(static_cast<std::size_t>(chunk.begin - at));
      file.read(at, between);
      hash.add({reinterpret_cast<const char*>(between.data()), between.size()});
    }
    at = std::max(at, chunk.end);
  }
  return hash.finish();
}

}  // namespace longhaul
