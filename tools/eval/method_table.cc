#include "tools/eval/method_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/sizes.h"
#include "tools/eval/csv_field.h"

namespace longhaul {
namespace {

double prefill_speed(const MethodRow& row) {
  return row.prefill_seconds > 0
             ? static_cast<double>(row.length * row.n_documents) / row.prefill_seconds
             : 0;
}

double seconds_per_answer(const MethodRow& row) {
  return row.score.n_asked > 0 ? row.answer_seconds / static_cast<double>(row.score.n_asked) : 0;
}

std::string size_of(std::size_t bytes) {
  return format_byte_size(static_cast<std::int64_t>(bytes));
}

std::string number_or_nothing(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "";
}

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

bool has_texts(const MethodTable& table) {
  return std::ranges::any_of(table.rows,
                             [](const MethodRow& row) { return row.perplexity.has_value(); });
}

bool has_lengths(const MethodTable& table) {
  return std::ranges::any_of(
      table.rows, [&](const MethodRow& row) { return row.length != table.rows.front().length; });
}

std::string of_8_columns(double x) {
  return x < 1e3   ? fmt::format("{:.4g}", x)
         : x < 1e8 ? fmt::format("{:.0f}", x)
                   : fmt::format("{:.2g}", x);
}

// A row's, in the columns of to_text().
std::string numbers_of(const MethodRow& row, bool texts) {
  const std::string of_text = row.perplexity
                                  ? fmt::format(" {:>8} {:>8}", of_8_columns(*row.perplexity),
                                                of_8_columns(*row.answer_tokens_per_s))
                                  : fmt::format("{:{}}", "", texts ? 18 : 0);
  return fmt::format("{:>7} {:>7} {:>7} {:>8} {:>9} {:>9.0f} {:>8.3f}{}", row.length, row.budget,
                     fmt::format("{}/{}", row.score.n_right, row.score.n_asked),
                     size_of(row.kv_bytes), size_of(row.kv_predicted), prefill_speed(row),
                     seconds_per_answer(row), of_text);
}

// A curve for each method, and each length if there are several; rows without a value have no
// point.
std::vector<LinePlot::Series> curves_of(
    const MethodTable& table, const std::function<std::optional<double>(const MethodRow&)>& value) {
  std::vector<LinePlot::Series> curves;
  for (const MethodRow& row : table.rows) {
    const std::optional<double> y = value(row);
    if (!y) continue;
    const std::string name = has_lengths(table)
                                 ? fmt::format("{}, {} tokens", row.asked_for, row.length)
                                 : row.asked_for;
    auto curve = std::ranges::find(curves, name, &LinePlot::Series::name);
    if (curve == curves.end()) curve = curves.insert(curves.end(), {.name = name});
    curve->points.emplace_back(
        100.0 * static_cast<double>(row.budget) / static_cast<double>(row.length), *y);
  }
  for (LinePlot::Series& curve : curves) std::ranges::sort(curve.points);
  return curves;
}

}  // namespace

MethodRow row_of(const NeedleRun& run) {
  MethodRow row{.method = run.name, .score = score_of(run)};
  row.n_documents = static_cast<std::int64_t>(run.readings.size());
  for (const NeedleReading& reading : run.readings) {
    row.length = reading.length;
    row.kv_bytes = std::max(row.kv_bytes, reading.kv_bytes);
    row.prefill_seconds += reading.prefill_seconds;
    row.answer_seconds += reading.answer_seconds;
  }
  return row;
}

std::string to_text(const MethodTable& table, std::size_t width) {
  const bool texts = has_texts(table);
  const bool is_wide = std::ranges::all_of(table.rows, [&](const MethodRow& row) {
    return numbers_of(row, texts).size() + 2 + row.method.size() <= width;
  });
  std::string text = fmt::format(
      "{:>7} {:>7} {:>7} {:>8} {:>9} {:>9} {:>8}{}{}\n", "length", "budget", "right", "KV bytes",
      "predicted", "prefill/s", "s/answer",
      texts ? fmt::format(" {:>8} {:>8}", "ppl", "tokens/s") : "", is_wide ? "  method" : "");
  for (const MethodRow& row : table.rows) {
    const std::string numbers = numbers_of(row, texts);
    text += is_wide ? fmt::format("{}  {}\n", numbers, row.method)
                    : fmt::format("{}\n{}\n", wrapped_text(row.method, {.width = width}), numbers);
  }
  return text;
}

std::string to_csv(const MethodTable& table) {
  std::string text =
      "method,length,budget,asked,right,kv_bytes,kv_bytes_predicted,prefill_tokens_per_s,"
      "answer_seconds_per_question,perplexity,answer_tokens_per_s\n";
  for (const MethodRow& row : table.rows) {
    text +=
        fmt::format("{},{},{},{},{},{},{},{:.1f},{:.4f},{},{}\n", csv_field(row.method), row.length,
                    row.budget, row.score.n_asked, row.score.n_right, row.kv_bytes,
                    row.kv_predicted, prefill_speed(row), seconds_per_answer(row),
                    number_or_nothing(row.perplexity), number_or_nothing(row.answer_tokens_per_s));
  }
  return text;
}

Json to_json(const MethodTable& table) {
  JsonArray rows;
  for (const MethodRow& row : table.rows) {
    rows.emplace_back(
        JsonObject{{"method", Json(row.method)},
                   {"length", Json(row.length)},
                   {"budget", Json(row.budget)},
                   {"asked", Json(row.score.n_asked)},
                   {"right", Json(row.score.n_right)},
                   {"kv_bytes", Json(static_cast<std::int64_t>(row.kv_bytes))},
                   {"kv_bytes_predicted", Json(static_cast<std::int64_t>(row.kv_predicted))},
                   {"prefill_tokens_per_s", Json(prefill_speed(row))},
                   {"answer_seconds_per_question", Json(seconds_per_answer(row))},
                   {"perplexity", number_or_null(row.perplexity)},
                   {"answer_tokens_per_s", number_or_null(row.answer_tokens_per_s)},
                   {"heads", row.heads}});
  }
  return Json(JsonObject{{"settings", table.settings},
                         {"complete", Json(table.is_complete)},
                         {"rows", Json(std::move(rows))}});
}

LinePlot answers_plot(const MethodTable& table) {
  const auto percent_right = [](const MethodRow& row) -> std::optional<double> {
    const std::optional<double> rate = row.score.rate();
    return rate ? std::optional(100 * *rate) : std::nullopt;
  };
  return {.title = "Right answers",
          .x_name = "tokens that a head keeps (% of the document)",
          .y_name = "right answers (%)",
          .x_axis = LinePlot::Axis::kLogarithmic,
          .series = curves_of(table, percent_right)};
}

LinePlot perplexity_plot(const MethodTable& table) {
  return {.title = "Perplexity of the text's continuation",
          .x_name = "tokens that a head keeps (% of the document)",
          .y_name = "perplexity",
          .x_axis = LinePlot::Axis::kLogarithmic,
          .series = curves_of(table, [](const MethodRow& row) { return row.perplexity; })};
}

}  // namespace longhaul
