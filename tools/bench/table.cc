#include "tools/bench/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text_columns.h"

namespace longhaul::bench {
namespace {

// As RFC 4180 quotes.
std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  const auto* text = std::get_if<std::string>(&value.value());
  if (text == nullptr) return to_text(value);
  if (text->find_first_of(",\"\r\n") == std::string::npos) return *text;
  std::string out = "\"";
  for (const char c : *text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::size_t width_of(const Column& column) {
  return std::max(column.width, n_columns(column.title));
}

std::size_t row_width(const std::vector<Column>& columns) {
  std::size_t width = 1;
  for (const Column& column : columns)
    if (!column.title.empty()) width += width_of(column) + 3;
  return width;
}

std::string markdown_field(const Column& column, std::string_view text) {
  const std::size_t width = width_of(column);
  const std::string space(width - std::min(width, n_columns(text)), ' ');
  return column.align == Column::Align::kLeft ? fmt::format(" {}{} |", text, space)
                                              : fmt::format(" {}{} |", space, text);
}

}  // namespace

TableFormat table_format_from(std::string_view name) {
  if (name == "md") return TableFormat::kMarkdown;
  if (name == "csv") return TableFormat::kCsv;
  if (name == "json") return TableFormat::kJson;
  if (name == "jsonl") return TableFormat::kJsonLines;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no output format; choose md, csv, json or jsonl", name));
}

Table::Table(TableFormat format, std::vector<Column> columns, std::size_t width)
    : format_(format), columns_(std::move(columns)) {
  leaves_out_ = format_ == TableFormat::kMarkdown && row_width(columns_) > width;
  if (!leaves_out_) return;
  for (Column& column : columns_)
    if (column.is_spare) column.title.clear();
}

std::string Table::begin() const {
  std::string out;
  switch (format_) {
    case TableFormat::kMarkdown: {
      std::string rule;
      for (const Column& column : columns_) {
        if (column.title.empty()) continue;
        out += markdown_field(column, column.title);
        const std::size_t n_dashes = width_of(column) + 1;
        rule += column.align == Column::Align::kLeft ? fmt::format(" {:-<{}}|", "", n_dashes)
                                                     : fmt::format(" {:-<{}}:|", "", n_dashes - 1);
      }
      return fmt::format("|{}\n|{}\n", out, rule);
    }
    case TableFormat::kCsv:
      for (const Column& column : columns_) {
        if (column.key.empty() || !column.in_csv) continue;
        out += fmt::format("{}{}", out.empty() ? "" : ",", column.key);
      }
      return out + "\n";
    case TableFormat::kJson:
      return "[\n";
    case TableFormat::kJsonLines:
      return "";
  }
  return out;
}

std::string Table::row(const std::vector<Cell>& cells) {
  require(cells.size() == columns_.size(), "a table's row has another number of cells than it");
  const bool is_first = !std::exchange(has_rows_, true);
  std::string out;
  JsonObject object;
  bool has_field = false;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    if (format_ == TableFormat::kMarkdown) {
      if (!column.title.empty()) out += markdown_field(column, cells[i].text);
    } else if (column.key.empty()) {
      continue;
    } else if (format_ == TableFormat::kCsv) {
      if (!column.in_csv) continue;
      out +=
          fmt::format("{}{}", std::exchange(has_field, true) ? "," : "", csv_field(cells[i].value));
    } else {
      object.emplace_back(column.key, cells[i].value);
    }
  }
  switch (format_) {
    case TableFormat::kMarkdown:
      return fmt::format("|{}\n", out);
    case TableFormat::kCsv:
      return out + "\n";
    case TableFormat::kJson:
      return fmt::format("{}  {}", is_first ? "" : ",\n", to_text(Json(std::move(object))));
    case TableFormat::kJsonLines:
      return to_text(Json(std::move(object))) + "\n";
  }
  return out;
}

std::string Table::end() const {
  return format_ == TableFormat::kJson ? (has_rows_ ? "\n]\n" : "]\n") : "";
}

}  // namespace longhaul::bench
