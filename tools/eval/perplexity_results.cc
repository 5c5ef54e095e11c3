#include "tools/eval/perplexity_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.h"
#include "tools/eval/csv_field.h"
#include "tools/eval/number_lists.h"

namespace longhaul {
namespace {

constexpr std::int64_t kFirstRange = 256;

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

std::vector<Extent> buckets_of(const PerplexityReport& report) {
  require(report.bucket >= 1, fmt::format("a bucket of {} positions", report.bucket));
  std::vector<Extent> buckets;
  for (std::int64_t begin = 0; begin < report.n_tokens; begin += report.bucket)
    buckets.push_back({begin, std::min(report.n_tokens, begin + report.bucket)});
  return buckets;
}

std::vector<ScoredToken>::const_iterator first_from(const PolicyCurve& curve,
                                                    std::int64_t position) {
  return std::lower_bound(
      curve.tokens.begin(), curve.tokens.end(), position,
      [](const ScoredToken& token, std::int64_t value) { return token.position < value; });
}

std::int64_t n_scored(const PolicyCurve& curve, Extent positions) {
  return first_from(curve, positions.end) - first_from(curve, positions.begin);
}

Json curve_json(const PolicyCurve& curve, const PerplexityReport& report) {
  JsonArray positions, nll, ranges;
  for (const ScoredToken& token : curve.tokens) {
    positions.emplace_back(token.position);
    nll.emplace_back(std::round(token.nll * 1e6) / 1e6);
  }
  for (const Extent range : doubling_ranges(report.n_tokens, kFirstRange)) {
    ranges.emplace_back(JsonObject{{"begin", range.begin},
                                   {"end", range.end},
                                   {"mean_nll", optional_json(mean_nll(curve, range))}});
  }
  const std::optional<double> mean = mean_nll(curve, {0, report.n_tokens});
  return JsonObject{{"policy", curve.name},
                    {"description", curve.description},
                    {"mean_nll", optional_json(mean)},
                    {"perplexity", mean ? Json(std::exp(*mean)) : Json()},
                    {"seconds", curve.seconds},
                    {"seconds_per_token", optional_json(curve.seconds_per_token())},
                    {"kv_bytes", curve.kv_bytes},
                    {"ranges", std::move(ranges)},
                    {"positions", std::move(positions)},
                    {"nll", std::move(nll)}};
}

double fastest_of(const PerplexityReport& report) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const PolicyCurve& curve : report.curves)
    fastest = std::min(fastest, curve.seconds_per_token().value_or(fastest));
  return fastest;
}

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{:.3f}", *value) : "-";
}

constexpr std::size_t kLabelWidth = 20;

// With the space before it; a longer name is cut, the description has it whole.
std::size_t column_width(const PolicyCurve& curve, std::size_t width) {
  const std::size_t most = std::max<std::size_t>(width, kLabelWidth + 11) - kLabelWidth;
  return std::min(std::max<std::size_t>(10, curve.name.size()) + 1, most);
}

using Curves = std::span<const PolicyCurve>;

// How many of the first ones stand side by side; one at least.
std::size_t n_fitting(Curves curves, std::size_t width) {
  std::size_t n = 0;
  for (std::size_t taken = kLabelWidth; n < curves.size(); ++n) {
    taken += column_width(curves[n], width);
    if (n > 0 && taken > width) break;
  }
  return n;
}

std::string table_of(const PerplexityReport& report, Curves curves, std::size_t width) {
  std::string out;
  const auto row = [&](const std::string& name, auto value) {
    out += fmt::format("{:>{}}", name, kLabelWidth);
    for (const PolicyCurve& curve : curves) {
      const std::size_t column = column_width(curve, width) - 1;
      const std::string text = fmt::format("{}", value(curve));
      out += fmt::format(" {:>{}}", first_columns(text, column), column);
    }
    out += '\n';
  };
  row("positions", [](const PolicyCurve& curve) { return curve.name; });
  for (const Extent range : doubling_ranges(report.n_tokens, kFirstRange)) {
    row(fmt::format("{} - {}", range.begin, range.end - 1),
        [&](const PolicyCurve& curve) { return number(mean_nll(curve, range)); });
  }
  const Extent all{0, report.n_tokens};
  row("all", [&](const PolicyCurve& curve) { return number(mean_nll(curve, all)); });
  row("perplexity", [&](const PolicyCurve& curve) {
    const std::optional<double> mean = mean_nll(curve, all);
    return number(mean ? std::optional(std::exp(*mean)) : std::nullopt);
  });
  out += '\n';
  const double fastest = fastest_of(report);
  row("tokens scored", [](const PolicyCurve& curve) { return curve.tokens.size(); });
  row("microseconds/token", [](const PolicyCurve& curve) {
    const auto seconds = curve.seconds_per_token();
    return seconds ? fmt::format("{:.1f}", *seconds * 1e6) : "-";
  });
  row("times the fastest", [&](const PolicyCurve& curve) {
    const auto seconds = curve.seconds_per_token();
    return seconds && fastest > 0 ? fmt::format("{:.2f}", *seconds / fastest) : "-";
  });
  row("cache bytes", [](const PolicyCurve& curve) { return curve.kv_bytes; });
  return out;
}

}  // namespace

std::optional<double> mean_nll(const PolicyCurve& curve, Extent positions) {
  const auto begin = first_from(curve, positions.begin);
  const auto end = first_from(curve, positions.end);
  if (begin >= end) return std::nullopt;
  double sum = 0;
  for (auto token = begin; token != end; ++token) sum += token->nll;
  return sum / static_cast<double>(end - begin);
}

std::vector<Extent> doubling_ranges(std::int64_t n_tokens, std::int64_t first) {
  std::vector<Extent> ranges;
  for (Extent range{0, first}; range.begin < n_tokens; range = {range.end, 2 * range.end})
    ranges.push_back({range.begin, std::min(range.end, n_tokens)});
  return ranges;
}

Json to_json(const PerplexityReport& report) {
  JsonArray curves;
  for (const PolicyCurve& curve : report.curves) curves.push_back(curve_json(curve, report));
  return JsonObject{{"format", "longhaul-perplexity"}, {"version", 1},
                    {"complete", report.is_complete},  {"tokens", report.n_tokens},
                    {"settings", report.settings},     {"policies", std::move(curves)}};
}

std::string to_csv(const PerplexityReport& report) {
  std::string out = "policy,begin,end,tokens,mean_nll\n";
  for (const PolicyCurve& curve : report.curves) {
    for (const Extent bucket : buckets_of(report)) {
      const std::optional<double> mean = mean_nll(curve, bucket);
      out += fmt::format("{},{},{},{},{}\n", csv_field(curve.name), bucket.begin, bucket.end,
                         n_scored(curve, bucket), mean ? fmt::format("{:.6g}", *mean) : "");
    }
  }
  return out;
}

LinePlot to_plot(const PerplexityReport& report) {
  LinePlot plot{.title = report.title,
                .subtitle = fmt::format("mean over {} positions each", report.bucket),
                .x_name = "position (tokens)",
                .y_name = "log perplexity (nats)"};
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  for (const PolicyCurve& curve : report.curves) {
    LinePlot::Series series{.name = curve.name, .description = curve.description};
    for (const Extent bucket : buckets_of(report)) {
      const std::optional<double> mean = mean_nll(curve, bucket);
      if (!mean) continue;
      series.points.emplace_back(0.5 * static_cast<double>(bucket.begin + bucket.end), *mean);
      low = std::min(low, *mean);
      high = std::max(high, *mean);
    }
    plot.series.push_back(std::move(series));
  }
  // Where one policy is lost altogether, the others would lie on one line.
  if (low > 0 && high > 20 * low) plot.y_axis = LinePlot::Axis::kLogarithmic;
  return plot;
}

std::string to_table(const PerplexityReport& report, std::size_t width) {
  std::string out =
      wrapped_text(fmt::format("{}: mean negative log-likelihood (nats) by position", report.title),
                   {.width = width});
  out += '\n';
  for (Curves left = report.curves; !left.empty();) {
    const std::size_t n = n_fitting(left, width);
    out += '\n' + table_of(report, left.first(n), width);
    left = left.subspan(n);
  }
  out += '\n';
  for (const PolicyCurve& curve : report.curves) {
    const std::string name = fmt::format("{:>{}}: ", curve.name, kLabelWidth);
    out += name + wrapped_text(curve.description,
                               {.width = width, .indent = kLabelWidth + 2, .begin = name.size()});
    out += '\n';
  }
  return out;
}

}  // namespace longhaul
