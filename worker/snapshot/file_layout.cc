#include "worker/snapshot/file_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "build_info.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {
namespace {

// Axes of scales or minima.
std::vector<std::string> range_axes(KvType type, KvSide side) {
  if (!quantises_groups(type)) return {"token"};
  if (side == KvSide::kKeys) return {"group of tokens", "dim"};
  return {"token", "group of dims"};
}

std::string_view layout_of_codes(KvType type) {
  switch (type) {
    case KvType::kF32:
    case KvType::kBf16:
      return "";
    case KvType::kInt8:
      return "; 8-bit codes";
    case KvType::kFp8:
      return "; 8-bit codes, whose values are numbers of E4M3 (OFP8: a sign, 4 bits of exponent, 3 "
             "of mantissa)";
    case KvType::kInt4:
    case KvType::kKivi4:
      return "; 4-bit codes, two to a byte, the even dim in the lower half";
    case KvType::kKivi2:
      return "; 2-bit codes, four to a byte, the first dim in the lowest bits";
  }
  throw Error(ErrorCode::kInternal, "a cache type without a layout");
}

}  // namespace

std::string head_path(LayerId layer, KvHeadId kv_head) {
  return fmt::format("/layers/{:02}/kv_heads/{:02}", layer.value, kv_head.value);
}

std::string open_path(LayerId layer, KvHeadId kv_head) {
  return head_path(layer, kv_head) + "/open";
}

std::string queries_path(LayerId layer) {
  return fmt::format("/layers/{:02}/queries", layer.value);
}

std::string dataset_name(KvSide side, RowPart part) {
  const std::string name = side == KvSide::kKeys ? "k" : "v";
  if (part == RowPart::kScales) return name + "_scale";
  return part == RowPart::kMinima ? name + "_minimum" : name;
}

Hdf5Id file_type(KvType type, RowPart part) {
  if (part != RowPart::kValues) return half_type(5);
  if (type == KvType::kF32) return {H5Tcopy(H5T_IEEE_F32LE), H5Tclose};
  if (type == KvType::kBf16) return half_type(8);
  return {H5Tcopy(H5T_STD_U8LE), H5Tclose};
}

std::int64_t chunk_rows(std::size_t row_bytes, std::int64_t n_rows) {
  constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
  const auto most =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(kChunkBytes / row_bytes), 256, 16384);
  return ceil_div(n_rows, ceil_div(n_rows, most));
}

void describe_file(const Hdf5File& file, const SavedSequence& saved, std::string_view format) {
  const auto text = [&](const char* name, std::string_view value) {
    file.write_attribute(file.id(), name, std::string(value));
  };
  const auto number = [&](const char* name, std::int64_t value) {
    file.write_attribute(file.id(), name, value);
  };
  const ModelSpec& spec = saved.spec;
  text("format", format);
  number("format_version", kCacheFileVersion);
  text("producer", fmt::format("longhaul {}", build_info::kVersion));
  text("k_dtype", name_of(saved.shape.k_type));
  text("v_dtype", name_of(saved.shape.v_type));
  number("rope_applied", 1);
  file.write_attribute(file.id(), "rope_theta", spec.rope_theta);
  text("model_type", spec.model_type);
  number("n_layers", spec.n_layers);
  number("n_kv_heads", spec.n_kv_heads);
  number("head_dim", spec.head_dim);
  number("block_size", saved.shape.block_size);
  number("seq_len", static_cast<std::int64_t>(saved.tokens.size()));
  number("generation", saved.generation);
  for (const auto& fact : saved.facts) text(fact.name.c_str(), fact.value);
}

void describe_rows(const Hdf5File& file, hid_t dataset, const KvBlockShape& shape, KvSide side,
                   RowPart part) {
  const KvType type = kv_type_of(shape, side);
  file.write_attribute(dataset, "units", std::string("1"));
  if (part != RowPart::kValues) {
    file.write_attribute(dataset, "DIMENSION_LABELS", range_axes(type, side));
    const std::string_view whose = quantises_groups(type) ? "group" : "row";
    file.write_attribute(
        dataset, "long_name",
        part == RowPart::kScales
            ? fmt::format("what a step of a {}'s codes is worth: value = {}", whose,
                          has_minima(type) ? "code * scale + minimum" : "code's value * scale")
            : fmt::format("the value of a {}'s code 0", whose));
    return;
  }
  file.write_attribute(dataset, "DIMENSION_LABELS", std::vector<std::string>{"token", "dim"});
  file.write_attribute(dataset, "dtype", std::string(name_of(type)));
  const bool keys = side == KvSide::kKeys;
  file.write_attribute(dataset, "rotated", std::int64_t{keys ? 1 : 0});
  std::string text = keys ? "keys of one KV head after RoPE at their positions; row i belongs to "
                            "the token at positions[i]"
                          : "values of one KV head; row i belongs to the token at positions[i]";
  text += layout_of_codes(type);
  file.write_attribute(dataset, "long_name", text);
}

void write_position_rows(const Hdf5File& file, const std::string& name,
                         std::span<const std::int64_t> positions) {
  constexpr std::int64_t kChunkRows = std::int64_t{1} << 16;
  const auto n = static_cast<std::int64_t>(positions.size());
  const Hdf5Id dataset = file.make_rows(
      {.name = name, .type = H5T_STD_I64LE, .n_rows = n, .n_columns = 0, .chunk_rows = kChunkRows});
  file.write_attribute(dataset, "DIMENSION_LABELS", std::vector<std::string>{"token"});
  file.write_attribute(dataset, "units", std::string("tokens"));
  file.write_attribute(dataset, "long_name",
                       std::string("position of each row's token in the sequence, from 0"));
  file.write_rows(dataset, {0, n}, positions.data());
}

std::string merging_path(LayerId layer) {
  return fmt::format("/layers/{:02}/merging", layer.value);
}

void write_seen_by(const Hdf5File& file, const std::string& head, std::span<const SeenBy> rows) {
  constexpr std::int64_t kChunkRows = std::int64_t{1} << 16;
  const auto n = static_cast<std::int64_t>(rows.size());
  const Hdf5Id dataset = file.make_rows({.name = head + "/seen_by",
                                         .type = H5T_STD_U64LE,
                                         .n_rows = n,
                                         .n_columns = 0,
                                         .chunk_rows = kChunkRows});
  file.write_attribute(dataset, "DIMENSION_LABELS", std::vector<std::string>{"token"});
  file.write_attribute(dataset, "units", std::string("1"));
  file.write_attribute(
      dataset, "long_name",
      std::string("the query heads that see the token: bit g is the KV head's query "
                  "head g"));
  file.write_rows(dataset, {0, n}, rows.data());
}

void write_queries(const Hdf5File& file, const SavedQueries& queries) {
  const auto n = static_cast<std::int64_t>(queries.positions.size());
  const std::string path = queries_path(queries.layer);
  file.make_group(path);
  write_position_rows(file, path + "/positions", queries.positions);
  const Hdf5Id rows = file.make_rows({.name = path + "/q",
                                      .type = H5T_IEEE_F32LE,
                                      .n_rows = n,
                                      .n_columns = static_cast<std::int64_t>(queries.q.size()) / n,
                                      .chunk_rows = n});
  file.write_attribute(rows, "DIMENSION_LABELS", std::vector<std::string>{"token", "head, dim"});
  file.write_attribute(rows, "units", std::string("1"));
  file.write_attribute(rows, "long_name",
                       std::string("queries of all heads after RoPE at their positions: those that "
                                   "tokens are chosen by"));
  file.write_rows(rows, {0, n}, queries.q.data());
}

namespace {

// A vector of numbers, one for each `axis`.
void write_numbers(const Hdf5File& file, const std::string& name, std::span<const double> numbers,
                   const std::string& axis, const std::string& meaning) {
  constexpr std::int64_t kChunkRows = std::int64_t{1} << 16;
  const auto n = static_cast<std::int64_t>(numbers.size());
  const Hdf5Id rows = file.make_rows({.name = name,
                                      .type = H5T_IEEE_F64LE,
                                      .n_rows = n,
                                      .n_columns = 0,
                                      .chunk_rows = kChunkRows});
  file.write_attribute(rows, "DIMENSION_LABELS", std::vector<std::string>{axis});
  file.write_attribute(rows, "units", std::string("1"));
  file.write_attribute(rows, "long_name", meaning);
  file.write_rows(rows, {0, n}, numbers.data());
}

}  // namespace

void write_merging(const Hdf5File& file, const SavedMerging& merging) {
  const std::string path = merging_path(merging.layer);
  const Hdf5Id group = file.make_group(path);
  file.write_attribute(group, "n_tokens", merging.n_tokens());
  const auto n_heads = static_cast<std::int64_t>(merging.n_slots.size());
  const Hdf5Id slots = file.make_rows({.name = path + "/n_slots",
                                       .type = H5T_STD_I64LE,
                                       .n_rows = n_heads,
                                       .n_columns = 0,
                                       .chunk_rows = n_heads});
  file.write_attribute(slots, "DIMENSION_LABELS", std::vector<std::string>{"kv_head"});
  file.write_attribute(slots, "units", std::string("1"));
  file.write_attribute(slots, "long_name", std::string("slots of each KV head"));
  file.write_rows(slots, {0, n_heads}, merging.n_slots.data());
  if (merging.tokens.empty()) return;
  const Hdf5Id tokens = file.make_rows({.name = path + "/tokens",
                                        .type = H5T_IEEE_F32LE,
                                        .n_rows = merging.n_tokens(),
                                        .n_columns = merging.layout.row_size(),
                                        .chunk_rows = merging.n_tokens()});
  file.write_attribute(tokens, "DIMENSION_LABELS",
                       std::vector<std::string>{"token", "KV head: k, v, weight"});
  file.write_attribute(tokens, "units", std::string("1"));
  file.write_attribute(
      tokens, "long_name",
      std::string("the document's last tokens as they were projected, before RoPE: "
                  "of each KV head key, value and weight; later ones may merge with "
                  "them"));
  file.write_rows(tokens, {0, merging.n_tokens()}, merging.tokens.data());
}

void write_attention(const Hdf5File& file, const std::string& head, const HeadPiece& piece) {
  std::vector<std::int64_t> numbers;
  for (const TokenPos position : piece.positions) numbers.push_back(position.value);
  write_position_rows(file, head + "/attention_positions", numbers);
  write_numbers(file, head + "/attention", piece.attention, "token",
                "sums of the attention weights that all queries so far gave the tokens at "
                "attention_positions");
  if (piece.local_attention.empty()) return;
  write_numbers(file, head + "/local_attention", piece.local_attention, "token",
                "the part of attention that came from queries in whose local window the token was");
}

namespace {

struct NamedRecipe {
  RecipeKind kind;
  std::string_view name;
};
constexpr std::array kRecipes = {NamedRecipe{RecipeKind::kSpecial, "special"},
                                 NamedRecipe{RecipeKind::kPunctuation, "punctuation"},
                                 NamedRecipe{RecipeKind::kFrequent, "frequent"},
                                 NamedRecipe{RecipeKind::kLocal, "local"},
                                 NamedRecipe{RecipeKind::kAll, "all"}};

}  // namespace

void write_recipe(const Hdf5File& file, hid_t head, const std::optional<Recipe>& recipe) {
  if (!recipe) return;
  const auto named = std::ranges::find(kRecipes, recipe->kind, &NamedRecipe::kind);
  file.write_attribute(head, "recipe", std::string(named->name));
  file.write_attribute(head, "n_frequent", recipe->n_frequent);
  file.write_attribute(head, "n_local", recipe->n_local);
}

std::optional<Recipe> read_recipe(const Hdf5File& file, hid_t head) {
  if (!file.has_attribute(head, "recipe")) return std::nullopt;
  const std::string name = file.read_text(head, "recipe");
  const auto named = std::ranges::find(kRecipes, name, &NamedRecipe::name);
  if (named == kRecipes.end()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: \"{}\" is no recipe that heads go by", file.path(), name));
  }
  return Recipe{.kind = named->kind,
                .n_frequent = file.read_number(head, "n_frequent"),
                .n_local = file.read_number(head, "n_local")};
}

void write_gone(const Hdf5File& file, const std::string& head, const GoneSums& gone) {
  const Hdf5Id group = file.make_group(head + "/gone");
  file.write_attribute(group, "n_tokens", gone.n);
  write_numbers(file, head + "/gone/k", gone.k, "dim",
                "sums of the keys, after RoPE, of the n_tokens tokens behind the sink that have "
                "left the window");
  write_numbers(file, head + "/gone/v", gone.v, "dim", "sums of their values");
}

}  // namespace longhaul
