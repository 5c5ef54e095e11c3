#include "tools/eval/method_table.h"

#include <fmt/format.h>

#include <algorithm>

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

std::string to_text(const MethodTable& table) {
  std::string text =
      fmt::format("{:>8} {:>8} {:>9} {:>10} {:>10} {:>9} {:>9}  {}\n", "length", "budget", "right",
                  "KV bytes", "predicted", "prefill/s", "s/answer", "method");
  for (const MethodRow& row : table.rows) {
    text += fmt::format("{:>8} {:>8} {:>9} {:>10} {:>10} {:>9.0f} {:>9.3f}  {}\n", row.length,
                        row.budget, fmt::format("{}/{}", row.score.n_right, row.score.n_asked),
                        size_of(row.kv_bytes), size_of(row.kv_predicted), prefill_speed(row),
                        seconds_per_answer(row), row.method);
  }
  return text;
}

std::string to_csv(const MethodTable& table) {
  std::string text =
      "method,length,budget,asked,right,kv_bytes,kv_bytes_predicted,prefill_tokens_per_s,"
      "answer_seconds_per_question\n";
  for (const MethodRow& row : table.rows) {
    text += fmt::format("{},{},{},{},{},{},{},{:.1f},{:.4f}\n", csv_field(row.method), row.length,
                        row.budget, row.score.n_asked, row.score.n_right, row.kv_bytes,
                        row.kv_predicted, prefill_speed(row), seconds_per_answer(row));
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
                   {"heads", row.heads}});
  }
  return Json(JsonObject{{"settings", table.settings},
                         {"complete", Json(table.is_complete)},
                         {"rows", Json(std::move(rows))}});
}

}  // namespace longhaul
