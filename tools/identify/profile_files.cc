#include "tools/identify/profile_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "tools/eval/heat_map.h"

namespace longhaul {
namespace {

double clipped(double gate) { return std::clamp(gate, 0.0, 1.0); }

}  // namespace

std::string gates_tsv(const FoundHeads& heads) {
  std::string text;
  for (std::size_t i = 0; i < heads.gates.size(); ++i) {
    const bool ends_row = (i + 1) % static_cast<std::size_t>(heads.n_kv_heads) == 0;
    text += fmt::format("{:.18e}{}", clipped(heads.gates[i]), ends_row ? '\n' : '\t');
  }
  return text;
}

std::string profile_config(const FoundHeads& heads) {
  JsonObject config{{"sink_size", heads.window.sink},
                    {"recent_size", heads.window.recent},
                    {"method", heads.method}};
  if (heads.weights_sha256) config.emplace_back("weights_sha256", *heads.weights_sha256);
  config.insert(config.end(), heads.details.begin(), heads.details.end());
  return to_text(std::move(config)) + "\n";
}

void require_finite_gates(const FoundHeads& heads) {
  for (std::size_t i = 0; i < heads.gates.size(); ++i) {
    if (std::isfinite(heads.gates[i])) continue;
    const auto n_kv_heads = static_cast<std::size_t>(heads.n_kv_heads);
    throw Error(ErrorCode::kCorruptData,
                fmt::format("layer {}, KV head {}: the gate that {} found is {}; the model's "
                            "weights or its numbers are broken: nothing is written",
                            i / n_kv_heads, i % n_kv_heads, heads.method, heads.gates[i]));
  }
}

void write_profile(const std::filesystem::path& folder, const FoundHeads& heads) {
  require_finite_gates(heads);
  std::filesystem::create_directories(folder);
  replace_file(folder / "full_attention_heads.tsv", gates_tsv(heads));
  replace_file(folder / "config.json", profile_config(heads));
}

std::vector<std::size_t> ranking(const std::vector<double>& gates) {
  std::vector<std::size_t> order(gates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return clipped(gates[a]) > clipped(gates[b]);
  });
  return order;
}

std::string ranking_text(const FoundHeads& heads, std::size_t most) {
  const std::vector<std::size_t> order = ranking(heads.gates);
  const auto gate = [&](std::size_t place) { return clipped(heads.gates[order[place]]); };
  std::size_t gap_at = 0;
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    if (gate(i) - gate(i + 1) > gate(gap_at) - gate(gap_at + 1)) gap_at = i;
  }
  std::string text = fmt::format("{:>4}  {:<12} {:>7}\n", "", "layer:head", "gate");
  const auto n_kv_heads = static_cast<std::size_t>(heads.n_kv_heads);
  for (std::size_t i = 0; i < std::min(most, order.size()); ++i) {
    text +=
        fmt::format("{:>4}  {:<12} {:>7.4f}\n", i + 1,
                    fmt::format("{}:{}", order[i] / n_kv_heads, order[i] % n_kv_heads), gate(i));
  }
  if (order.size() > most) text += fmt::format("      ... {} more\n", order.size() - most);
  if (order.size() > 1) {
    text += fmt::format("widest gap: {:.4f}, behind the first {} of {} heads\n",
                        gate(gap_at) - gate(gap_at + 1), gap_at + 1, order.size());
  }
  return text;
}

std::string gates_picture(const FoundHeads& heads, const std::string& title) {
  HeatMap map{.title = title,
              .subtitle = fmt::format("{}; 1: sees every token", heads.method),
              .x_name = "KV head",
              .y_name = "layer",
              .palette = HeatMap::Palette::kOneColour};
  for (std::int64_t i = 0; i < heads.n_kv_heads; ++i) map.columns.push_back(fmt::format("{}", i));
  for (std::int64_t i = 0; i < heads.n_layers; ++i) map.rows.push_back(fmt::format("{}", i));
  for (const double gate : heads.gates) map.values.emplace_back(clipped(gate));
  return to_svg(map);
}

}  // namespace longhaul
