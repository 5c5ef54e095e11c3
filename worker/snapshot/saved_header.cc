#include "worker/snapshot/saved_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "worker/snapshot/file_layout.h"
#include "worker/snapshot/files_table.h"
#include "worker/snapshot/hdf5_file.h"
#include "worker/snapshot/seal.h"

namespace longhaul {
namespace {

[[noreturn]] void refuse_version(const std::filesystem::path& master, std::int64_t version) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{} has format version {}; this program reads versions {} to {}: save "
                          "the document again with it",
                          master.string(), version, kOldestCacheFileVersion, kCacheFileVersion));
}

KvType read_type(const Hdf5File& file, const std::string& attribute) {
  const std::string name = file.read_text(file.id(), attribute);
  const auto type = kv_type_from(name);
  if (!type) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: {} is \"{}\", which is no cache type",
                                                     file.path(), attribute, name));
  }
  return *type;
}

std::vector<std::int32_t> read_tokens(const Hdf5File& file, std::int64_t n) {
  const Hdf5Id dataset = file.open_dataset("/tokens");
  if (file.shape(dataset) != std::vector{file.read_number(file.id(), "seq_len")}) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: /tokens has not seq_len elements", file.path()));
  }
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  if (n > 0) file.read_rows(dataset, "/tokens", H5T_STD_I32LE, {0, n}, tokens.data());
  return tokens;
}

// All of a vector; empty where there is none.
template <typename T>
std::vector<T> read_column(const Hdf5File& file, const std::string& name, hid_t type) {
  if (!file.has(name)) return {};
  const Hdf5Id dataset = file.open_dataset(name);
  const std::int64_t n = file.shape(dataset).at(0);
  std::vector<T> column(static_cast<std::size_t>(n));
  file.read_rows(dataset, name, type, {0, n}, column.data());
  return column;
}

}  // namespace

SavedHeader read_saved_header(const std::filesystem::path& master) {
  const bool is_sealed = check_seal(master);
  const Hdf5Lock lock;
  const Hdf5File file = Hdf5File::open(master);
  const auto text = [&](const char* name) { return file.read_text(file.id(), name); };
  const auto fact = [&](const char* name) {  // of the run that saved it, if it gave one
    return file.has_attribute(file.id(), name) ? text(name) : std::string();
  };
  const auto number = [&](const char* name) { return file.read_number(file.id(), name); };
  if (text("format") != "longhaul-kv") {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} is no master of saved caches", master.string()));
  }
  const std::int64_t version = number("format_version");
  const bool is_known = kOldestCacheFileVersion <= version && version <= kCacheFileVersion;
  if (!is_known || !is_sealed) refuse_version(master, version);
  SavedHeader header;
  header.version = version;
  header.master = master;
  header.parts = read_files_table(file);
  header.producer = text("producer");
  header.created_utc = text("created_utc");
  header.content_id = text("content_id");
  header.model_id = fact("model_id");
  header.model_sha256 = fact("model_sha256");
  header.tokenizer_sha256 = fact("tokenizer_sha256");
  header.settings = fact("settings");
  header.tokens_sha256 = text("tokens_sha256");
  header.model_type = text("model_type");
  header.rope_theta = file.read_real(file.id(), "rope_theta");
  header.k_type = read_type(file, "k_dtype");
  header.v_type = read_type(file, "v_dtype");
  header.n_layers = number("n_layers");
  header.n_kv_heads = number("n_kv_heads");
  header.head_dim = number("head_dim");
  header.n_tokens = number("seq_len");
  header.block_size = number("block_size");
  header.generation = number("generation");
  const auto flag = [&](const char* name) {  // that older files lack
    return file.has_attribute(file.id(), name) && number(name) != 0;
  };
  header.is_cut = flag("is_cut");
  header.has_method_state = flag("has_method_state");
  header.first_tokens = read_tokens(file, std::min<std::int64_t>(64, header.n_tokens));
  return header;
}

std::vector<SavedRole> read_saved_roles(const SavedHeader& header) {
  const Hdf5Lock lock;
  const Hdf5File file = Hdf5File::open(header.master);
  std::vector<SavedRole> roles;
  for (const LayerId layer : IdRange<LayerId>(header.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(header.n_kv_heads)) {
      const Hdf5Id group = file.open_object(head_path(layer, kv_head));
      roles.push_back({.name = file.read_text(group, "role"),
                       .sink = file.read_number(group, "sink"),
                       .recent = file.read_number(group, "recent")});
      if (roles.back().has_slots()) roles.back().n_slots = file.read_number(group, "n_kept");
    }
  }
  return roles;
}

std::optional<Recipe> read_saved_recipe(const SavedHeader& header, LayerId layer,
                                        KvHeadId kv_head) {
  const Hdf5Lock lock;
  const Hdf5File file = Hdf5File::open(header.master);
  return read_recipe(file, file.open_object(head_path(layer, kv_head)));
}

std::vector<std::int64_t> read_saved_positions(const SavedHeader& header, LayerId layer,
                                               KvHeadId kv_head) {
  const Hdf5Lock lock;
  std::vector<std::int64_t> positions = read_column<std::int64_t>(
      Hdf5File::open(header.master), head_path(layer, kv_head) + "/positions", H5T_STD_I64LE);
  std::sort(positions.begin(), positions.end());
  for (std::int64_t i = n_closed_tokens(header.block_shape(), header.n_tokens); i < header.n_tokens;
       ++i)
    positions.push_back(i);
  return positions;
}

std::vector<SeenBy> read_saved_seen_by(const SavedHeader& header, LayerId layer, KvHeadId kv_head) {
  const Hdf5Lock lock;
  const Hdf5File file = Hdf5File::open(header.master);
  const std::string head = head_path(layer, kv_head);
  const auto rows = read_column<SeenBy>(file, head + "/seen_by", H5T_STD_U64LE);
  const auto positions = read_column<std::int64_t>(file, head + "/positions", H5T_STD_I64LE);
  if (rows.empty()) return {};
  if (rows.size() != positions.size()) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("{}: {}/seen_by and its positions differ in length", file.path(), head));
  }
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return positions[i]; });
  std::vector<SeenBy> ascending;
  for (const std::size_t i : order) ascending.push_back(rows[i]);
  return ascending;
}

std::int64_t longest_beginning(const SavedHeader& header, std::int64_t n_tokens) {
  const KvBlockShape shape = header.block_shape();
  const std::int64_t n_closed = n_closed_tokens(shape, header.n_tokens);
  return n_tokens >= n_closed ? n_tokens : n_closed_tokens(shape, n_tokens);
}

bool keeps_beginnings(const SavedHeader& header) {
  if (header.has_method_state) return false;
  const std::vector<SavedRole> roles = read_saved_roles(header);
  return std::all_of(roles.begin(), roles.end(),
                     [](const SavedRole& role) { return role.recent == kKeepsAll; });
}

std::vector<std::int32_t> read_saved_tokens(const SavedHeader& header) {
  const Hdf5Lock lock;
  return read_tokens(Hdf5File::open(header.master), header.n_tokens);
}

}  // namespace longhaul
