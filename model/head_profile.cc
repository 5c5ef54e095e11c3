#include "model/head_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/model_spec.h"

namespace longhaul {
namespace {

// The published optimiser leaves gates a little outside [0, 1] (its last step is not clipped);
// values further out are no gates.
constexpr double kMinGate = -1.0;
constexpr double kMaxGate = 2.0;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;
constexpr std::size_t kMaxTsvBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxProfileConfigBytes = std::size_t{16} << 20;

// Where in the TSV: both count from 1.
struct Place {
  std::string_view source;
  std::size_t line = 1;
  std::size_t column = 1;

  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: line {}, column {}: {}", source, line, column, reason));
  }
};

double parse_gate(std::string_view field, const Place& place) {
  double value = 0;
  const char* const end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, value);
  if (field.empty()) place.fail("expected a number, found nothing");
  if (error != std::errc() || stop != end) {
    const bool printable = std::all_of(field.begin(), field.end(),
                                       [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
    place.fail(fmt::format("expected a number, found {}", printable && field.size() <= 40
                                                              ? fmt::format("'{}'", field)
                                                              : std::string("something else")));
  }
  if (!(value >= kMinGate && value <= kMaxGate)) {
    place.fail(fmt::format("{} is no gate; gates lie in [0, 1]", value));
  }
  return std::clamp(value, 0.0, 1.0);
}

// Appends one row's gates; returns how many columns it has.
std::int64_t parse_row(std::string_view row, Place& place, std::vector<double>& gates) {
  place.column = 1;
  while (true) {
    const auto tab = row.find('\t');
    gates.push_back(parse_gate(row.substr(0, tab), place));
    if (tab == std::string_view::npos) return static_cast<std::int64_t>(place.column);
    row.remove_prefix(tab + 1);
    ++place.column;
  }
}

void parse_tsv(std::string_view tsv, std::string_view source, HeadProfile& profile) {
  Place place{.source = source};
  if (tsv.empty()) place.fail("the file is empty; expected one row of gates for each layer");
  if (tsv.back() != '\n') {
    place.line = static_cast<std::size_t>(std::count(tsv.begin(), tsv.end(), '\n')) + 1;
    place.fail("the last line does not end with a newline; is the file cut off?");
  }
  for (; !tsv.empty(); ++place.line) {
    const auto newline = tsv.find('\n');
    std::string_view row = tsv.substr(0, newline);
    tsv.remove_prefix(newline + 1);
    if (row.ends_with('\r')) row.remove_suffix(1);
    const std::int64_t n_columns = parse_row(row, place, profile.gates);
    if (profile.n_layers == 0) profile.n_kv_heads = n_columns;
    if (n_columns != profile.n_kv_heads) {
      place.fail(
          fmt::format("the row has {} columns, the rows before it {}; every layer has the "
                      "same number of KV heads",
                      n_columns, profile.n_kv_heads));
    }
    ++profile.n_layers;
  }
}

// How many of n heads the published code keeps for this ratio. h is compared with whole numbers
// with an allowance, because (n - 1)(1 - r) is rarely exact in binary.
std::int64_t n_kept(std::int64_t n, double ratio) {
  if (ratio <= 0) return 0;
  if (ratio >= 1) return n;
  const double h = static_cast<double>(n - 1) * (1 - ratio);
  const double nearest = std::nearbyint(h);
  if (std::fabs(h - nearest) <= 1e-9 * static_cast<double>(n)) {
    return n - static_cast<std::int64_t>(nearest);
  }
  return n - static_cast<std::int64_t>(std::floor(h)) - 1;
}

}  // namespace

HeadProfile parse_head_profile(std::string_view tsv, std::string_view tsv_source,
                               std::string_view config_json, std::string_view config_source) {
  HeadProfile profile;
  parse_tsv(tsv, tsv_source, profile);
  const Json json = parse_json(config_json, config_source);
  const JsonField config(json, std::string(config_source));
  profile.sink = config.at("sink_size").as_integer(0, kMaxTokens);
  profile.recent = config.at("recent_size").as_integer(1, kMaxTokens);
  if (const auto made_for = config.find("weights_sha256"))
    profile.weights_sha256 = made_for->as_string();
  return profile;
}

HeadProfile read_head_profile(const std::filesystem::path& folder) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(folder, ignored);
  const auto tsv = is_folder ? folder / "full_attention_heads.tsv" : folder;
  const auto config = tsv.parent_path() / "config.json";
  for (const auto& path : {tsv, config}) {
    if (!std::filesystem::exists(path, ignored)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("head profile: {} is not there; a profile is a folder with "
                              "full_attention_heads.tsv and config.json",
                              path.string()));
    }
  }
  return parse_head_profile(read_file(tsv, kMaxTsvBytes), tsv.string(),
                            read_file(config, kMaxProfileConfigBytes), config.string());
}

void check_profile_fits(const HeadProfile& profile, const ModelSpec& spec) {
  if (profile.n_layers == spec.n_layers && profile.n_kv_heads == spec.n_kv_heads) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the head profile has {} layers of {} KV heads, the model {} of {}; give "
                          "the profile that was made for this model",
                          profile.n_layers, profile.n_kv_heads, spec.n_layers, spec.n_kv_heads));
}

HeadRoles HeadRoles::all_retrieval(std::int64_t n_layers, std::int64_t n_kv_heads) {
  HeadRoles result;
  result.n_layers = n_layers;
  result.n_kv_heads = n_kv_heads;
  result.roles.assign(static_cast<std::size_t>(n_layers * n_kv_heads), HeadRole::kRetrieval);
  return result;
}

std::int64_t HeadRoles::n_retrieval() const {
  return std::count(roles.begin(), roles.end(), HeadRole::kRetrieval);
}

std::int64_t HeadRoles::n_retrieval(LayerId layer) const {
  const auto row = roles.begin() + layer.value * n_kv_heads;
  return std::count(row, row + n_kv_heads, HeadRole::kRetrieval);
}

HeadRoles choose_roles(const HeadProfile& profile, std::optional<double> retrieval_ratio) {
  const std::size_t n = profile.gates.size();
  HeadRoles result{.n_layers = profile.n_layers,
                   .n_kv_heads = profile.n_kv_heads,
                   .roles = std::vector<HeadRole>(n, HeadRole::kStreaming),
                   .sink = profile.sink,
                   .recent = profile.recent};
  if (!retrieval_ratio) {
    for (std::size_t i = 0; i < n; ++i) {
      if (profile.gates[i] >= 0.5) result.roles[i] = HeadRole::kRetrieval;
    }
    return result;
  }
  require(!std::isnan(*retrieval_ratio), "retrieval ratio: not a number; give one from 0 to 1");
  std::vector<std::size_t> order(n);  // by gate; the index itself is layer first, then head
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return profile.gates[a] > profile.gates[b];
  });
  const std::int64_t kept = n_kept(static_cast<std::int64_t>(n), *retrieval_ratio);
  for (std::size_t i = 0; i < static_cast<std::size_t>(kept); ++i) {
    result.roles[order[i]] = HeadRole::kRetrieval;
  }
  return result;
}

std::string describe(const HeadRoles& roles) {
  const std::int64_t n = roles.n_layers * roles.n_kv_heads;
  std::string text = fmt::format(
      "{} of {} KV heads keep every token, the others {} first and {} last tokens; per layer:",
      roles.n_retrieval(), n, roles.sink, roles.recent);
  for (const LayerId layer : IdRange<LayerId>(roles.n_layers)) {
    fmt::format_to(std::back_inserter(text), " {}", roles.n_retrieval(layer));
  }
  return text;
}

}  // namespace longhaul
