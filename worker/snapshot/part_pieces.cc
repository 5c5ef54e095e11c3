#include "worker/snapshot/part_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "model/heads/kept_blocks.h"
#include "worker/snapshot/file_layout.h"

namespace longhaul {
namespace {

void append_run(std::vector<Extent>& runs, Extent run) {
  if (!runs.empty() && runs.back().end == run.begin) {
    runs.back().end = run.end;
  } else {
    runs.push_back(run);
  }
}

// `sorted` runs hold every position of `wanted`.
bool covers(const std::vector<Extent>& sorted, Extent wanted) {
  for (const Extent& run : sorted) {
    if (run.begin > wanted.begin) break;
    wanted.begin = std::max(wanted.begin, run.end);
  }
  return wanted.begin >= wanted.end;
}

std::vector<std::int64_t> positions_in(const Hdf5File& file, const std::string& name) {
  const Hdf5Id dataset = file.open_dataset(name);
  std::vector<std::int64_t> positions(static_cast<std::size_t>(file.shape(dataset).at(0)));
  file.check(H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, positions.data()),
             "cannot read");
  return positions;
}

std::vector<double> doubles_in(const Hdf5File& file, const std::string& name) {
  const Hdf5Id dataset = file.open_dataset(name);
  const std::int64_t n = file.shape(dataset).at(0);
  std::vector<double> values(static_cast<std::size_t>(n));
  file.read_rows(dataset, name, H5T_IEEE_F64LE, {0, n}, values.data());
  return values;
}

}  // namespace

Extent first_lacking(const std::vector<Extent>& sorted, std::int64_t sink, std::int64_t recent,
                     std::int64_t n_tokens) {
  std::vector<Extent> kept = {{0, n_tokens}};
  if (recent != kKeepsAll) {
    const Extent hidden = hidden_positions({sink, recent}, n_tokens);
    kept = {{0, std::min(hidden.begin, n_tokens)}, {hidden.end, n_tokens}};
  }
  for (const Extent& wanted : kept) {
    if (!wanted.empty() && !covers(sorted, wanted)) return wanted;
  }
  return {};
}

std::vector<Extent> SavedHead::runs() const {
  std::vector<Extent> all;
  for (const PartPiece& piece : pieces) {
    for (const Extent& run : piece.runs) append_run(all, run);
  }
  return all;
}

std::int64_t SavedHead::n_rows() const {
  std::int64_t n = 0;
  for (const PartPiece& piece : pieces) n += piece.n_rows;
  return n;
}

void check_head(const SavedHead& head, std::int64_t n_tokens) {
  const auto fail = [&](std::string_view what) {
    throw Error(ErrorCode::kInternal,
                fmt::format("saved caches: layer {}, KV head {} ({}): {}", head.layer.value,
                            head.kv_head.value, head.role, what));
  };
  std::vector<Extent> sorted = head.runs();
  for (const OpenPiece& piece : head.open) sorted.push_back(piece.positions);
  std::sort(sorted.begin(), sorted.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].begin < sorted[i - 1].end)
      fail(fmt::format("position {} is there twice", sorted[i].begin));
  }
  if (head.role.empty()) fail("no rank holds it");
  const bool has_slots = head.recent == kKeepsSlots;
  const std::int64_t n = has_slots ? head.n_slots : n_tokens;
  if (!sorted.empty() && (sorted.front().begin < 0 || sorted.back().end > n))
    fail(fmt::format("positions up to {} in a sequence of {}", sorted.back().end, n));
  if (head.recent == kKeepsChosen) return;
  const Extent lacks = first_lacking(sorted, head.sink, has_slots ? kKeepsAll : head.recent, n);
  if (!lacks.empty()) {
    fail(fmt::format("the ranks together lack some of the positions [{}, {}) that it keeps",
                     lacks.begin, lacks.end));
  }
}

PartReader::PartReader(const PartsOf& of) : n_tokens_(of.n_tokens) {
  for (const WrittenFile& part : of.parts) {
    const std::filesystem::path path = of.folder / part.name;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      throw Error(ErrorCode::kIo,
                  fmt::format("{} was written by another rank and is not here; the folder must lie "
                              "on a file system that all ranks share",
                              path.string()));
    }
    Hdf5File file = Hdf5File::open(path);
    const bool is_newest = file.read_number(file.id(), "seq_len") == of.n_tokens;
    if (is_newest && file.read_text(file.id(), "content_id") != of.content_id) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{} holds the caches of another sequence", path.string()));
    }
    std::vector<SavedChunk> chunks = read_chunk_table(file);
    for (SavedChunk& chunk : chunks) chunk.file = static_cast<std::int64_t>(parts_.size());
    parts_.push_back({.name = part.name,
                      .file = std::move(file),
                      .is_newest = is_newest,
                      .chunks = std::move(chunks),
                      .runs = {}});
  }
}

const Hdf5File& PartReader::file_of(const PartPiece& piece) const {
  for (const Part& part : parts_) {
    if (part.name == piece.file) return part.file;
  }
  throw Error(ErrorCode::kInternal, "a piece of no part");
}

std::vector<SeenBy> PartReader::seen_by(const PartPiece& piece, LayerId layer,
                                        KvHeadId kv_head) const {
  const Hdf5File& file = file_of(piece);
  const std::string name = head_path(layer, kv_head) + "/seen_by";
  if (!file.has(name)) return {};
  const Hdf5Id dataset = file.open_dataset(name);
  if (file.shape(dataset) != std::vector{piece.n_rows}) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: {} and its rows differ in length", file.path(), name));
  }
  std::vector<SeenBy> rows(static_cast<std::size_t>(piece.n_rows));
  file.read_rows(dataset, name, H5T_STD_U64LE, {0, piece.n_rows}, rows.data());
  return rows;
}

std::vector<SavedChunk> PartReader::chunks_of(const PartPiece& piece, LayerId layer,
                                              KvHeadId kv_head) const {
  std::vector<SavedChunk> found;
  for (const Part& part : parts_) {
    if (part.name != piece.file) continue;
    std::copy_if(
        part.chunks.begin(), part.chunks.end(), std::back_inserter(found),
        [&](const SavedChunk& chunk) { return chunk.layer == layer && chunk.kv_head == kv_head; });
  }
  return found;
}

const Hdf5File* PartReader::last_hidden_file() const {
  for (const Part& part : parts_) {
    if (part.is_newest && part.file.has(kLastHidden)) return &part.file;
  }
  return nullptr;
}

std::string PartReader::last_hidden_part() const {
  const Hdf5File* file = last_hidden_file();
  return file == nullptr ? "" : std::filesystem::path(file->path()).filename().string();
}

const std::vector<Extent>& PartReader::runs_of(Part& part, const std::string& name) {
  const Hdf5File& file = part.file;
  const Hdf5Id dataset = file.open_dataset(name);
  H5O_info_t info{};
  file.check(H5Oget_info2(dataset, &info, H5O_INFO_BASIC), "cannot read");
  const auto [known, is_new] = part.runs.try_emplace(info.addr);
  if (is_new) {
    for (const std::int64_t position : positions_in(file, name))
      append_run(known->second, {position, position + 1});
  }
  return known->second;
}

bool PartReader::has_state(LayerId layer, KvHeadId kv_head) const {
  const std::string path = head_path(layer, kv_head);
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    return part.is_newest && (part.file.has(path + "/attention") || part.file.has(path + "/gone"));
  });
}

std::string PartReader::part_with(const std::string& path) const {
  for (const Part& part : parts_) {
    if (part.is_newest && part.file.has(path)) return part.name;
  }
  return {};
}

SavedMerging PartReader::merging(LayerId layer) const {
  SavedMerging saved{.layer = layer, .layout = {}, .tokens = {}, .n_slots = {}};
  const std::string path = merging_path(layer);
  for (const Part& part : parts_) {
    if (!part.is_newest || !part.file.has(path)) continue;
    const Hdf5Id slots = part.file.open_dataset(path + "/n_slots");
    const std::int64_t n_kv_heads = part.file.shape(slots).at(0);
    saved.n_slots.resize(static_cast<std::size_t>(n_kv_heads));
    part.file.read_rows(slots, path, H5T_STD_I64LE, {0, n_kv_heads}, saved.n_slots.data());
    saved.layout = {.n_kv_heads = n_kv_heads,
                    .head_dim = part.file.read_number(part.file.id(), "head_dim")};
    const std::int64_t n = part.file.read_number(part.file.open_object(path), "n_tokens");
    if (n == 0) return saved;
    const Hdf5Id tokens = part.file.open_dataset(path + "/tokens");
    if (part.file.shape(tokens) != std::vector{n, saved.layout.row_size()}) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: {} has another shape than its heads", part.file.path(), path));
    }
    saved.tokens.resize(static_cast<std::size_t>(n * saved.layout.row_size()));
    part.file.read_rows(tokens, path, H5T_IEEE_F32LE, {0, n}, saved.tokens.data());
    return saved;
  }
  return saved;
}

ObservedQueries::Rows PartReader::queries(LayerId layer) const {
  ObservedQueries::Rows rows;
  for (const Part& part : parts_) {
    const std::string path = queries_path(layer);
    if (!part.is_newest || !part.file.has(path)) continue;
    rows.positions = positions_in(part.file, path + "/positions");
    const Hdf5Id dataset = part.file.open_dataset(path + "/q");
    const std::vector<std::int64_t> shape = part.file.shape(dataset);
    if (shape.size() != 2 || shape[0] != static_cast<std::int64_t>(rows.positions.size())) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: {} and its positions differ in length", part.file.path(), path));
    }
    rows.q.resize(static_cast<std::size_t>(shape[0] * shape[1]));
    part.file.read_rows(dataset, path + "/q", H5T_IEEE_F32LE, {0, shape[0]}, rows.q.data());
    break;
  }
  return rows;
}

std::map<std::int64_t, double> PartReader::attention(LayerId layer, KvHeadId kv_head,
                                                     AttentionOf of) const {
  std::map<std::int64_t, double> sums;
  const std::string head = head_path(layer, kv_head);
  const std::string path =
      head + (of == AttentionOf::kAllQueries ? "/attention" : "/local_attention");
  for (const Part& part : parts_) {
    if (!part.is_newest || !part.file.has(path)) continue;
    const std::vector<std::int64_t> positions =
        positions_in(part.file, head + "/attention_positions");
    const std::vector<double> values = doubles_in(part.file, path);
    if (values.size() != positions.size()) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: {} and its positions differ in length", part.file.path(), path));
    }
    for (std::size_t i = 0; i < positions.size(); ++i) sums.emplace(positions[i], values[i]);
  }
  return sums;
}

// They are the sequence's last ones.
Extent PartReader::open_positions(const Hdf5File& file, const std::string& path) const {
  const std::int64_t n_open = file.shape(file.open_dataset(path + "/k")).at(0);
  return {n_tokens_ - n_open, n_tokens_};
}

OpenRows PartReader::open_rows(LayerId layer, KvHeadId kv_head) const {
  OpenRows rows;
  const std::string path = open_path(layer, kv_head);
  for (const Part& part : parts_) {
    if (!part.is_newest || !part.file.has(path)) continue;
    rows.positions = open_positions(part.file, path);
    const std::int64_t head_dim = part.file.read_number(part.file.id(), "head_dim");
    const std::int64_t n = rows.positions.size();
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const std::string name = path + "/" + dataset_name(side, RowPart::kValues);
      const Hdf5Id dataset = part.file.open_dataset(name);
      if (part.file.shape(dataset) != std::vector{n, head_dim}) {
        throw Error(ErrorCode::kCorruptData,
                    fmt::format("{} of {} has another shape than its newest tokens", name,
                                part.file.path()));
      }
      std::vector<float>& to = side == KvSide::kKeys ? rows.k : rows.v;
      to.resize(static_cast<std::size_t>(n * head_dim));
      part.file.read_rows(dataset, name, H5T_IEEE_F32LE, {0, n}, to.data());
    }
  }
  return rows;
}

GoneSums PartReader::gone(LayerId layer, KvHeadId kv_head) const {
  GoneSums gone;
  const std::string path = head_path(layer, kv_head) + "/gone";
  for (const Part& part : parts_) {
    if (!part.is_newest || !part.file.has(path)) continue;
    gone.n = part.file.read_number(part.file.open_object(path), "n_tokens");
    gone.k = doubles_in(part.file, path + "/k");
    gone.v = doubles_in(part.file, path + "/v");
  }
  return gone;
}

SavedHead PartReader::read(LayerId layer, KvHeadId kv_head) {
  SavedHead head = read_what_is_there(layer, kv_head);
  check_head(head, n_tokens_);
  return head;
}

SavedHead PartReader::read_what_is_there(LayerId layer, KvHeadId kv_head) {
  SavedHead head{.layer = layer, .kv_head = kv_head, .role = {}, .pieces = {}};
  const std::string path = head_path(layer, kv_head);
  for (Part& part : parts_) {
    if (!part.file.has(path)) continue;
    const Hdf5Id group = part.file.open_object(path);
    if (!part.is_newest && part.file.read_number(group, "recent") != kKeepsAll) continue;
    head.role = part.file.read_text(group, "role");
    head.sink = part.file.read_number(group, "sink");
    head.recent = part.file.read_number(group, "recent");
    head.recipe = read_recipe(part.file, group);
    if (head.recent == kKeepsSlots) head.n_slots = part.file.read_number(group, "n_slots");
    const std::string open = open_path(layer, kv_head);
    if (part.is_newest && part.file.has(open))
      head.open.push_back({.file = part.name, .positions = open_positions(part.file, open)});
    if (!part.file.has(path + "/k")) continue;  // it keeps nothing
    const Hdf5Id keys = part.file.open_dataset(path + "/k");
    head.pieces.push_back({.file = part.name,
                           .n_rows = part.file.shape(keys).at(0),
                           .runs = runs_of(part, path + "/positions")});
  }
  std::sort(head.pieces.begin(), head.pieces.end(), [](const PartPiece& a, const PartPiece& b) {
    return a.runs.front().begin < b.runs.front().begin;
  });
  return head;
}

}  // namespace longhaul
