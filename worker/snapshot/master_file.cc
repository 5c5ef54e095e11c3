// The file that presents all parts as one: tokens, roles, positions, and for each head K and V as
// whole data sets, which are links to a part or stand virtually for pieces of several.
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <ctime>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/sync_file.h"
#include "worker/snapshot/cache_files.h"
#include "worker/snapshot/chunk_table.h"
#include "worker/snapshot/file_layout.h"
#include "worker/snapshot/files_table.h"
#include "worker/snapshot/part_pieces.h"
#include "worker/snapshot/saved_header.h"
#include "worker/snapshot/seal.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

const std::string& content_id(const SavedSequence& saved) {
  for (const auto& fact : saved.facts) {
    if (fact.name == "content_id") return fact.value;
  }
  throw Error(ErrorCode::kInvalidArgument, "saving caches needs a content_id among the facts");
}

class MasterWriter {
 public:
  MasterWriter(const SavedSequence& saved, std::span<const WrittenFile> parts)
      : saved_(saved),
        parts_(parts),
        reader_({.folder = saved.folder,
                 .content_id = content_id(saved),
                 .n_tokens = static_cast<std::int64_t>(saved.tokens.size()),
                 .parts = parts}),
        file_(Hdf5File::create(partial_path(saved.master_path()), kSealBytes)) {}

  void write() {
    describe_file(file_, saved_, "longhaul-kv");
    file_.write_attribute(file_.id(), "created_utc", utc_now());
    file_.write_attribute(file_.id(), "tokens_sha256", sha256_of_tokens(saved_.tokens));
    write_files_table(file_, parts_);
    write_tokens();
    for (const LayerId layer : IdRange<LayerId>(saved_.spec.n_layers)) {
      for (const KvHeadId kv_head : IdRange<KvHeadId>(saved_.spec.n_kv_heads))
        write_head(reader_.read(layer, kv_head));
    }
    write_roles();
    link_last_hidden();
    link_layer_state();
    file_.write_attribute(file_.id(), "is_cut", std::int64_t{saved_.is_cut ? 1 : 0});
    file_.write_attribute(file_.id(), "has_method_state", std::int64_t{has_state_ ? 1 : 0});
    write_chunks();
    file_.write_attribute(file_.id(), "complete", std::int64_t{1});
    file_.close();
  }

 private:
  void write_tokens() {
    constexpr std::int64_t kChunkRows = std::int64_t{1} << 16;
    const auto n = static_cast<std::int64_t>(saved_.tokens.size());
    const Hdf5Id dataset = file_.make_rows({.name = "/tokens",
                                            .type = H5T_STD_I32LE,
                                            .n_rows = n,
                                            .n_columns = 0,
                                            .chunk_rows = kChunkRows});
    file_.write_attribute(dataset, "DIMENSION_LABELS", std::vector<std::string>{"position"});
    file_.write_attribute(dataset, "long_name",
                          std::string("the sequence's token ids, by position"));
    file_.write_rows(dataset, {0, n}, saved_.tokens.data());
  }

  void link_last_hidden() {
    const std::string part = reader_.last_hidden_part();
    if (part.empty()) return;
    file_.check(H5Lcreate_external(part.c_str(), kLastHidden, file_.id(), kLastHidden, H5P_DEFAULT,
                                   H5P_DEFAULT),
                "cannot write");
  }

  void link_layer_state() {
    for (const LayerId layer : IdRange<LayerId>(saved_.spec.n_layers)) {
      for (const std::string& path : {queries_path(layer), merging_path(layer)}) {
        const std::string part = reader_.part_with(path);
        if (part.empty()) continue;
        has_state_ = true;
        file_.check(H5Lcreate_external(part.c_str(), path.c_str(), file_.id(), path.c_str(),
                                       H5P_DEFAULT, H5P_DEFAULT),
                    "cannot write");
      }
    }
  }

  void write_head(const SavedHead& head) {
    const std::string path = head_path(head.layer, head.kv_head);
    const std::vector<Extent> runs = head.runs();
    bool in_order = true;
    for (std::size_t i = 1; i < runs.size(); ++i)
      in_order = in_order && runs[i - 1].begin < runs[i].begin;
    const Hdf5Id group = file_.make_group(path);
    file_.write_attribute(group, "role", head.role);
    file_.write_attribute(group, "sink", head.sink);
    file_.write_attribute(group, "recent", head.recent);
    file_.write_attribute(group, "n_kept", head.n_rows());
    file_.write_attribute(group, "n_parts", static_cast<std::int64_t>(head.pieces.size()));
    file_.write_attribute(group, "in_order", std::int64_t{in_order ? 1 : 0});
    roles_.push_back(role_number(head.role));
    has_state_ = has_state_ || reader_.has_state(head.layer, head.kv_head);
    write_recipe(file_, group, head.recipe);
    link_open_rows(group, head);
    if (head.pieces.empty()) return;
    write_positions(path + "/positions", runs);
    copy_seen_by(head);
    for (const PartPiece& piece : head.pieces) {
      const auto chunks = reader_.chunks_of(piece, head.layer, head.kv_head);
      chunks_.insert(chunks_.end(), chunks.begin(), chunks.end());
    }
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      for (const RowPart part : row_parts(kv_type_of(saved_.shape, side)))
        write_rows(head, side, part);
    }
  }

  // As positions, of all pieces: who reads which tokens a head has does not ask the parts.
  void copy_seen_by(const SavedHead& head) {
    std::vector<SeenBy> rows;
    for (const PartPiece& piece : head.pieces) {
      const std::vector<SeenBy> here = reader_.seen_by(piece, head.layer, head.kv_head);
      rows.insert(rows.end(), here.begin(), here.end());
    }
    if (rows.empty()) return;
    if (static_cast<std::int64_t>(rows.size()) != head.n_rows()) {
      throw Error(
          ErrorCode::kInternal,
          fmt::format("saved caches: layer {}, KV head {}: some ranks do not say which query "
                      "heads see which tokens",
                      head.layer.value, head.kv_head.value));
    }
    write_seen_by(file_, head_path(head.layer, head.kv_head), rows);
  }

  void link_open_rows(hid_t group, const SavedHead& head) {
    if (!saved_.shape.quantises_groups()) return;
    std::int64_t n_open = 0;
    for (const OpenPiece& piece : head.open) n_open += piece.positions.size();
    file_.write_attribute(group, "n_open", n_open);
    if (n_open == 0) return;
    const std::string path = open_path(head.layer, head.kv_head);
    file_.check(H5Lcreate_external(head.open.front().file.c_str(), path.c_str(), file_.id(),
                                   path.c_str(), H5P_DEFAULT, H5P_DEFAULT),
                "cannot write");
  }

  // Those of heads by their pieces, as positions have them; then those that are used no more.
  void write_chunks() {
    std::set<std::pair<std::int64_t, std::int64_t>> used;  // file, offset
    for (const SavedChunk& chunk : chunks_) used.emplace(chunk.file, chunk.offset);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      for (SavedChunk chunk : reader_.chunks_of_part(i)) {
        if (used.contains({chunk.file, chunk.offset})) continue;
        chunk.is_used = false;
        chunks_.push_back(chunk);
      }
    }
    write_chunk_table(file_, chunks_);
  }

  void write_rows(const SavedHead& head, KvSide side, RowPart part) {
    if (head.pieces.size() > 1) return write_virtual(head, side, part);
    const std::string name = head_path(head.layer, head.kv_head) + "/" + dataset_name(side, part);
    file_.check(H5Lcreate_external(head.pieces.front().file.c_str(), name.c_str(), file_.id(),
                                   name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
                "cannot write");
  }

  void write_positions(const std::string& name, const std::vector<Extent>& runs) {
    std::vector<std::int64_t> edges;
    for (const Extent& run : runs) edges.insert(edges.end(), {run.begin, run.end});
    const auto [known, is_first] = positions_.try_emplace(std::move(edges), name);
    if (!is_first) {
      file_.check(H5Lcreate_hard(file_.id(), known->second.c_str(), file_.id(), name.c_str(),
                                 H5P_DEFAULT, H5P_DEFAULT),
                  "cannot write");
      return;
    }
    std::vector<std::int64_t> positions;
    for (const Extent& run : runs) {
      for (std::int64_t position = run.begin; position < run.end; ++position)
        positions.push_back(position);
    }
    write_position_rows(file_, name, positions);
  }

  // One piece after the other. Mapping block by block, which would put the rows in order of
  // position, makes HDF5 1.10 hundreds of times slower to read (docs/kv_files.md).
  void write_virtual(const SavedHead& head, KvSide side, RowPart part) {
    const std::string name = head_path(head.layer, head.kv_head) + "/" + dataset_name(side, part);
    const KvType kv_type = kv_type_of(saved_.shape, side);
    const Hdf5Id type = file_type(kv_type, part);
    const auto n_columns = static_cast<hsize_t>(row_columns(saved_.shape, side, part));
    const int rank = n_columns == 0 ? 1 : 2;
    const std::int64_t n_tokens = row_tokens(saved_.shape, side, part);
    const Hdf5Id space =
        rows_space(rank, static_cast<hsize_t>(head.n_rows() / n_tokens), n_columns);
    const Hdf5Id create(file_.check(H5Pcreate(H5P_DATASET_CREATE), "cannot set up"), H5Pclose);
    set_missing(create, type, kv_type, part);
    file_.check(H5Pset_obj_track_times(create, false), "cannot set up");
    hsize_t first = 0;
    for (const PartPiece& piece : head.pieces) {
      const auto n_rows = static_cast<hsize_t>(piece.n_rows / n_tokens);
      const std::array<hsize_t, 2> start = {first, 0};
      const std::array<hsize_t, 2> count = {n_rows, n_columns};
      file_.check(
          H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
          "cannot set up");
      const Hdf5Id source = rows_space(rank, n_rows, n_columns);
      file_.check(H5Pset_virtual(create, space, piece.file.c_str(), name.c_str(), source),
                  "cannot set up");
      first += n_rows;
    }
    const Hdf5Id dataset(file_.check(H5Dcreate2(file_.id(), name.c_str(), type, space, H5P_DEFAULT,
                                                create, H5P_DEFAULT),
                                     "cannot write"),
                         H5Dclose);
    describe_rows(file_, dataset, saved_.shape, side, part);
  }

  // Rows of a part that is missing read as NaN, never as zeros that look like data; codes read as
  // zeros, whose scales and minima are NaN.
  void set_missing(hid_t create, hid_t type, KvType kv_type, RowPart part) const {
    const std::uint16_t nan_f16 = 0x7e00;
    const std::uint16_t nan_bf16 = 0x7fc0;
    const float nan_f32 = std::numeric_limits<float>::quiet_NaN();
    const std::uint8_t code = 0;
    const void* fill = &code;
    if (part != RowPart::kValues)
      fill = &nan_f16;
    else if (kv_type == KvType::kF32)
      fill = &nan_f32;
    else if (kv_type == KvType::kBf16)
      fill = &nan_bf16;
    file_.check(H5Pset_fill_value(create, type, fill), "cannot set up");
  }

  Hdf5Id rows_space(int rank, hsize_t n_rows, hsize_t n_columns) const {
    const std::array<hsize_t, 2> shape = {n_rows, n_columns};
    return {file_.check(H5Screate_simple(rank, shape.data(), nullptr), "cannot set up"), H5Sclose};
  }

  static std::uint8_t role_number(const std::string& role) {
    for (const HeadKind known : kHeadKinds) {
      if (role_name(known) == role) return static_cast<std::uint8_t>(known);
    }
    throw Error(ErrorCode::kCorruptData, "a part holds a head of the unknown role " + role);
  }

  void write_roles() {
    const Hdf5Id type(file_.check(H5Tenum_create(H5T_STD_U8LE), "cannot set up"), H5Tclose);
    for (const HeadKind kind : kHeadKinds) {
      const auto number = static_cast<std::uint8_t>(kind);
      file_.check(H5Tenum_insert(type, std::string(role_name(kind)).c_str(), &number),
                  "cannot set up");
    }
    const Hdf5Id dataset = file_.make_rows({.name = "/head_roles",
                                            .type = type,
                                            .n_rows = saved_.spec.n_layers,
                                            .n_columns = saved_.spec.n_kv_heads,
                                            .chunk_rows = saved_.spec.n_layers});
    file_.write_attribute(dataset, "DIMENSION_LABELS",
                          std::vector<std::string>{"layer", "kv_head"});
    file_.write_rows(dataset, {0, saved_.spec.n_layers}, roles_.data());
  }

  static constexpr std::array kHeadKinds = {HeadKind::kRetrieval, HeadKind::kStreaming,
                                            HeadKind::kModelWindow};
  const SavedSequence& saved_;
  std::span<const WrittenFile> parts_;
  PartReader reader_;
  Hdf5File file_;
  std::vector<std::uint8_t> roles_;  // [n_layers, n_kv_heads]
  std::vector<SavedChunk> chunks_;
  bool has_state_ = false;  // queries or sums that methods go on with
  std::map<std::vector<std::int64_t>, std::string> positions_;  // runs' edges -> where they stand
};

bool holds_the_same(const SavedSequence& saved) {
  const SavedHeader header = read_saved_header(saved.master_path());
  if (header.content_id != content_id(saved)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} holds other caches; remove it, or save to another folder",
                            saved.master_path().string()));
  }
  try {
    for (const WrittenFile& part : header.parts) check_part(header, part);
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

void write_master_file(const SavedSequence& saved, std::span<const WrittenFile> parts) {
  const fs::path path = partial_path(saved.master_path());
  std::vector<WrittenFile> all(saved.earlier_parts.begin(), saved.earlier_parts.end());
  all.insert(all.end(), parts.begin(), parts.end());
  try {
    {
      const Hdf5Lock lock;
      MasterWriter(saved, all).write();
    }
    seal_file(path);
    sync_file(path);
  } catch (...) {
    drop_master_file(saved, parts);
    throw;
  }
}

bool is_saved(const SavedSequence& saved) {
  std::error_code ignored;
  if (!fs::exists(saved.master_path(), ignored)) return false;
  try {
    return holds_the_same(saved);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported) return false;  // another version: written anew
    if (error.code() != ErrorCode::kCorruptData) throw;
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}; remove it, or save to another folder", error.what()));
  }
}

}  // namespace longhaul
