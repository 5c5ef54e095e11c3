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

}  // namespace

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
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : "; ") + what; };
  if (a.role != b.role) {
    add(fmt::format("{} {}/{} and {} {}/{}", a.role.name, a.role.sink, a.role.recent, b.role.name,
                    b.role.sink, b.role.recent));
  }
  if (n_common < a.rows.size() || n_common < b.rows.size()) {
    add(fmt::format("{} positions only in the first, {} only in the second",
                    a.rows.size() - n_common, b.rows.size() - n_common));
  }
  if (n_seen_otherwise > 0)
    add(fmt::format("other query heads see {} of {} common ones", n_seen_otherwise, n_common));
  if (keys.position >= 0 || values.position >= 0)
    add(fmt::format("of {} common ones {}, {}", n_common, keys.text("keys"),
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
  for (const LayerId layer : IdRange<LayerId>(a.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(a.n_kv_heads)) {
      const std::string text =
          compare_rows(read_saved_head(a, layer, kv_head), read_saved_head(b, layer, kv_head));
      if (!text.empty())
        lines.push_back(fmt::format("layer {}, KV head {}: {}", layer.value, kv_head.value, text));
    }
  }
  return lines;
}

}  // namespace longhaul
