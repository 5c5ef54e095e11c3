// Results as a table that grows row by row: Markdown for people, CSV, JSON and JSON Lines for
// programs. The pieces put one after the other are the whole text. Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/text_columns.h"

namespace longhaul::bench {

enum class TableFormat { kMarkdown, kCsv, kJson, kJsonLines };

// "md", "csv", "json", "jsonl". Throws kInvalidArgument.
TableFormat table_format_from(std::string_view name);

struct Column {
  enum class Align { kLeft, kRight };
  std::string key = {};    // for programs; empty: people only
  std::string title = {};  // for people; empty: programs only
  Align align = Align::kLeft;
  std::size_t width = 0;  // of the Markdown column, at least
  bool in_csv = true;     // false for lists
  bool is_spare = false;  // left out for people where rows would not fit
};

struct Cell {
  std::string text = {};  // for people
  Json value = {};        // for programs; null is an empty field of CSV
};

class Table {
 public:
  // Where Markdown rows would be wider than `width`, all spare columns are left out of them.
  Table(TableFormat format, std::vector<Column> columns, std::size_t width = kAnyWidth);

  bool leaves_out_spare_columns() const { return leaves_out_; }
  // In this order. A row has one cell for each column.
  std::string begin() const;
  std::string row(const std::vector<Cell>& cells);
  std::string end() const;

 private:
  TableFormat format_;
  std::vector<Column> columns_;
  bool leaves_out_ = false;
  bool has_rows_ = false;
};

}  // namespace longhaul::bench
