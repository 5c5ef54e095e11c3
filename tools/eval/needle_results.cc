#include "tools/eval/needle_results.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "model/heads/heads_json.h"
#include "tools/eval/csv_field.h"
#include "tools/eval/number_lists.h"

namespace longhaul {
namespace {

std::string depth_text(double depth) { return fmt::format("{:g} %", 100 * depth); }

Json case_json(const NeedleCase& c) {
  return JsonObject{{"length", c.length},     {"depth", c.depth},   {"document", c.document},
                    {"position", c.position}, {"key", c.key},       {"expected", c.expected},
                    {"answer", c.answer},     {"right", c.is_right}};
}

Json reading_json(const NeedleReading& r) {
  return JsonObject{{"length", r.length},
                    {"document", r.document},
                    {"prefill_seconds", r.prefill_seconds},
                    {"answer_seconds", r.answer_seconds},
                    {"kv_bytes", r.kv_bytes}};
}

bool is_per_head(const NeedleReport& report) {
  return !report.runs.empty() && report.runs.front().head.has_value();
}

HeatMap head_map(const NeedleReport& report) {
  HeatMap map{.x_name = "KV head", .y_name = "layer"};
  const HeadRoles& roles = report.runs.front().roles;
  for (std::int64_t head = 0; head < roles.n_kv_heads; ++head)
    map.columns.push_back(fmt::format("{}", head));
  for (std::int64_t layer = 0; layer < roles.n_layers; ++layer)
    map.rows.push_back(fmt::format("{}", layer));
  map.values.resize(map.rows.size() * map.columns.size());
  for (const NeedleRun& run : report.runs) {
    const HeadId head = run.head.value();
    map.values[static_cast<std::size_t>(head.layer * roles.n_kv_heads + head.kv_head)] =
        score_of(run).rate();
  }
  return map;
}

HeatMap grid_map(const NeedleReport& report) {
  HeatMap map{.x_name = "document length (tokens)", .y_name = "depth"};
  for (const std::int64_t length : report.lengths) map.columns.push_back(length_text(length));
  for (const double depth : report.depths) {
    map.rows.push_back(depth_text(depth));
    for (const std::int64_t length : report.lengths) {
      map.values.push_back(
          report.runs.empty() ? std::nullopt : score_of(report.runs.front(), length, depth).rate());
    }
  }
  return map;
}

}  // namespace

NeedleScore score_of(const NeedleRun& run) {
  NeedleScore score;
  for (const NeedleCase& c : run.cases) {
    ++score.n_asked;
    score.n_right += c.is_right ? 1 : 0;
  }
  return score;
}

NeedleScore score_of(const NeedleRun& run, std::int64_t length, double depth) {
  NeedleScore score;
  for (const NeedleCase& c : run.cases) {
    if (c.length != length || c.depth != depth) continue;
    ++score.n_asked;
    score.n_right += c.is_right ? 1 : 0;
  }
  return score;
}

Json to_json(const NeedleReport& report) {
  JsonArray runs;
  for (const NeedleRun& run : report.runs) {
    const NeedleScore score = score_of(run);
    JsonArray cases, readings;
    for (const NeedleCase& c : run.cases) cases.push_back(case_json(c));
    for (const NeedleReading& r : run.readings) readings.push_back(reading_json(r));
    const std::optional<double> rate = score.rate();
    runs.emplace_back(JsonObject{{"name", run.name},
                                 {"heads", to_json(run.roles)},
                                 {"asked", score.n_asked},
                                 {"right", score.n_right},
                                 {"exact_match", rate ? Json(*rate) : Json()},
                                 {"documents", std::move(readings)},
                                 {"cases", std::move(cases)}});
  }
  return JsonObject{{"format", "longhaul-needle"},
                    {"version", 1},
                    {"complete", report.is_complete},
                    {"settings", report.settings},
                    {"runs", std::move(runs)}};
}

std::string to_csv(const NeedleReport& report) {
  std::string out = "run,length,depth,asked,right,exact_match\n";
  for (const NeedleRun& run : report.runs) {
    for (const std::int64_t length : report.lengths) {
      for (const double depth : report.depths) {
        const NeedleScore score = score_of(run, length, depth);
        const std::optional<double> rate = score.rate();
        out += fmt::format("{},{},{:g},{},{},{}\n", csv_field(run.name), length, depth,
                           score.n_asked, score.n_right, rate ? fmt::format("{:g}", *rate) : "");
      }
    }
  }
  return out;
}

HeatMap to_heat_map(const NeedleReport& report) {
  HeatMap map = is_per_head(report) ? head_map(report) : grid_map(report);
  NeedleScore all;
  for (const NeedleRun& run : report.runs) {
    const NeedleScore score = score_of(run);
    all.n_asked += score.n_asked;
    all.n_right += score.n_right;
  }
  map.title = report.title;
  map.subtitle = fmt::format("exact match; {} of {} answers right", all.n_right, all.n_asked);
  return map;
}

std::string to_table(const NeedleReport& report, std::size_t width) {
  constexpr std::size_t kLabel = 12;
  constexpr std::size_t kColumn = 9;
  const HeatMap map = to_heat_map(report);
  const std::size_t n = map.columns.size();
  const std::size_t n_fitting =
      width < kLabel + kColumn ? 1 : std::min((width - kLabel) / kColumn, n);
  std::string out = wrapped_text(fmt::format("{}: {}", map.title, map.subtitle), {.width = width});
  out += '\n';
  for (std::size_t begin = 0; begin < n; begin += n_fitting) {
    const std::size_t end = std::min(begin + n_fitting, n);
    out += fmt::format("\n{:>{}} {}\n{:>{}}", "", kLabel, map.x_name, map.y_name, kLabel);
    for (std::size_t column = begin; column < end; ++column)
      out += fmt::format(" {:>8}", map.columns[column]);
    out += '\n';
    for (std::size_t row = 0; row < map.rows.size(); ++row) {
      out += fmt::format("{:>{}}", map.rows[row], kLabel);
      for (std::size_t column = begin; column < end; ++column) {
        const std::optional<double>& value = map.values[row * n + column];
        out += value ? fmt::format(" {:>8.3f}", *value) : fmt::format(" {:>8}", "-");
      }
      out += '\n';
    }
  }
  return out;
}

}  // namespace longhaul
