#include "tools/kv_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "coordinator/fingerprint.h"

namespace longhaul {
namespace {

// The largest distance of two rows; where it is.
struct Apart {
  double most = 0.0;
  std::int64_t position = -1;
  void add(const std::vector<float>& x, const std::vector<float>& y, std::int64_t at) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      // Equal infinities are no difference; a NaN beside a number is.
      if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
      double distance = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
      if (std::isnan(distance)) distance = std::numeric_limits<double>::infinity();
      if (distance <= most) continue;
      most = distance;
      position = at;
    }
  }
  std::string text(std::string_view name) const {
    return position < 0 ? fmt::format("{} equal", name)
                        : fmt::format("{} up to {:.3g} apart (position {})", name, most, position);
  }
};

void compare_settings(const SavedHeader& a, const SavedHeader& b, std::vector<std::string>& lines) {
  if (a.settings.empty() || b.settings.empty()) {
    if (a.settings != b.settings) lines.push_back("settings: only one file has them");
    return;
  }
  for (std::string& line : differences(parse_json(a.settings, a.master.string()),
                                       parse_json(b.settings, b.master.string())))
    lines.push_back(std::move(line));
}

void compare_tokens(const SavedHeader& a, const SavedHeader& b, std::vector<std::string>& lines) {
  if (a.tokens_sha256 == b.tokens_sha256) return;
  const std::vector<std::int32_t> x = read_saved_tokens(a);
  const std::vector<std::int32_t> y = read_saved_tokens(b);
  const auto n_common = std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first - x.begin();
  lines.push_back(
      fmt::format("tokens: {} and {}, the first {} alike", x.size(), y.size(), n_common));
}

void add_difference(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += "; ";
  text += more;
}

}  // namespace

std::string compare_layers(const SavedLayerState& a, const SavedLayerState& b) {
  std::string text;
  if (a.query_positions != b.query_positions || a.queries != b.queries)
    add_difference(text, "other newest queries");
  if (a.merging != b.merging || a.n_slots != b.n_slots)
    add_difference(text, "other tokens that later ones may merge with");
  return text;
}

std::string compare_states(const SavedHeadState& a, const SavedHeadState& b) {
  std::string text;
  if (a.attention != b.attention || a.local_attention != b.local_attention)
    add_difference(text, "other sums of attention");
  if (a.n_gone != b.n_gone || a.gone != b.gone)
    add_difference(text, "other sums of what left the window");
  if (a.recipe != b.recipe) add_difference(text, "another recipe");
  return text;
}

std::string compare_rows(const SavedRows& a, const SavedRows& b) {
  Apart keys;
  Apart values;
  std::size_t n_common = 0;
  std::size_t n_seen_otherwise = 0;
  for (auto x = a.rows.begin(), y = b.rows.begin(); x != a.rows.end() && y != b.rows.end();) {
    if (x->position == y->position) {
      keys.add(x->k, y->k, x->position);
      values.add(x->v, y->v, x->position);
      n_seen_otherwise += x->seen_by == y->seen_by ? 0 : 1;
      ++n_common, ++x, ++y;
    } else if (x->position < y->position) {
      ++x;
    } else {
      ++y;
    }
  }
  std::string text;
  if (a.role != b.role) {
    add_difference(text, fmt::format("{} {}/{} and {} {}/{}", a.role.name, a.role.sink,
                                     a.role.recent, b.role.name, b.role.sink, b.role.recent));
  }
  if (n_common < a.rows.size() || n_common < b.rows.size()) {
    add_difference(text, fmt::format("{} positions only in the first, {} only in the second",
                                     a.rows.size() - n_common, b.rows.size() - n_common));
  }
  if (n_seen_otherwise > 0)
    add_difference(text, fmt::format("other query heads see {} of {} common ones", n_seen_otherwise,
                                     n_common));
  if (keys.position >= 0 || values.position >= 0)
    add_difference(text, fmt::format("of {} common ones {}, {}", n_common, keys.text("keys"),
                                     values.text("values")));
  return text;
}

std::vector<std::string> compare_saved(const SavedHeader& a, const SavedHeader& b) {
  std::vector<std::string> lines;
  compare_settings(a, b, lines);
  compare_tokens(a, b, lines);
  if (a.n_layers != b.n_layers || a.n_kv_heads != b.n_kv_heads || a.head_dim != b.head_dim) {
    lines.push_back(fmt::format("heads: {} x {} of {}, and {} x {} of {}", a.n_layers, a.n_kv_heads,
                                a.head_dim, b.n_layers, b.n_kv_heads, b.head_dim));
    return lines;
  }
  if (a.is_cut != b.is_cut) lines.push_back("only one of them was cut by a method");
  for (const LayerId layer : IdRange<LayerId>(a.n_layers)) {
    const SavedLayerState state_a = read_saved_state(a, layer);
    const SavedLayerState state_b = read_saved_state(b, layer);
    if (const std::string text = compare_layers(state_a, state_b); !text.empty())
      lines.push_back(fmt::format("layer {}: {}", layer.value, text));
    for (const KvHeadId kv_head : IdRange<KvHeadId>(a.n_kv_heads)) {
      const auto head = static_cast<std::size_t>(kv_head.value);
      std::string text =
          compare_rows(read_saved_head(a, layer, kv_head), read_saved_head(b, layer, kv_head));
      add_difference(text, compare_states(state_a.heads.at(head), state_b.heads.at(head)));
      if (!text.empty())
        lines.push_back(fmt::format("layer {}, KV head {}: {}", layer.value, kv_head.value, text));
    }
  }
  if (read_saved_last_hidden(a) != read_saved_last_hidden(b))
    lines.push_back("the last token's hidden row differs");
  return lines;
}

}  // namespace longhaul
