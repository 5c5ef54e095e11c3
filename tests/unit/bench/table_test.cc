#include "tools/bench/table.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul::bench {
namespace {

std::vector<Column> columns() {
  return {{.key = "name", .title = "name", .width = 6},
          {.key = "hidden"},
          {.key = "speed", .title = "t/s", .align = Column::Align::kRight, .width = 10},
          {.title = "note"},
          {.key = "samples", .in_csv = false}};
}

std::string whole(TableFormat format, int n_rows = 2) {
  Table table(format, columns());
  std::string text = table.begin();
  if (n_rows > 0) {
    text +=
        table.row({{"a", "a"}, {"", Json()}, {"1.5 ± 0.1", 1.5}, {"!", {}}, {"", JsonArray{1, 2}}});
  }
  if (n_rows > 1) {
    text += table.row({{"b,c", "b,\"c\""}, {"", 7}, {"20", 20}, {"", {}}, {"", JsonArray{}}});
  }
  return text + table.end();
}

TEST(Table, MarkdownIsAligned) {
  EXPECT_EQ(whole(TableFormat::kMarkdown),
            "| name   |        t/s | note |\n"
            "| -------| ----------:| -----|\n"
            "| a      |  1.5 ± 0.1 | !    |\n"
            "| b,c    |         20 |      |\n");
}

TEST(Table, LeavesSpareColumnsOutWhereRowsDoNotFit) {
  const std::vector<Column> columns = {{.key = "a", .title = "a", .width = 5, .is_spare = true},
                                       {.key = "b", .title = "b", .width = 5}};
  const auto text = [&](TableFormat format, std::size_t width) {
    Table table(format, columns, width);
    const std::string begin = table.begin();
    return begin + table.row({{"x", "x"}, {"y", "y"}}) + table.end();
  };
  EXPECT_EQ(text(TableFormat::kMarkdown, 17),
            "| a     | b     |\n| ------| ------|\n| x     | y     |\n");
  EXPECT_EQ(text(TableFormat::kMarkdown, 16), "| b     |\n| ------|\n| y     |\n");
  EXPECT_EQ(text(TableFormat::kCsv, 1), "a,b\nx,y\n");
  EXPECT_FALSE(Table(TableFormat::kJson, columns, 1).leaves_out_spare_columns());
}

TEST(Table, CsvIsQuotedWhereItMustBe) {
  EXPECT_EQ(whole(TableFormat::kCsv), "name,hidden,speed\na,,1.5\n\"b,\"\"c\"\"\",7,20\n");
}

TEST(Table, JsonReadsBack) {
  const Json json = parse_json(whole(TableFormat::kJson), "table");
  const JsonField field(json, "table");
  ASSERT_EQ(field.size(), 2U);
  EXPECT_EQ(field.at(0).at("speed").as_number(), 1.5);
  EXPECT_EQ(field.at(0).at("samples").size(), 2U);
  EXPECT_EQ(field.at(1).at("name").as_string(), "b,\"c\"");
  EXPECT_EQ(JsonField(parse_json(whole(TableFormat::kJson, 0), "empty"), "empty").size(), 0U);
  const std::string lines = whole(TableFormat::kJsonLines);
  const std::size_t end = lines.find('\n');
  EXPECT_EQ(parse_json(lines.substr(0, end), "line").find("name")->kind_name(), "a string");
  EXPECT_EQ(lines.find('\n', end + 1), lines.size() - 1);
}

TEST(Table, RefusesWhatDoesNotFit) {
  Table table(TableFormat::kCsv, columns());
  EXPECT_THROW(table.row({{"a", "a"}}), Error);
  EXPECT_THROW(table_format_from("sql"), Error);
  EXPECT_EQ(table_format_from("jsonl"), TableFormat::kJsonLines);
}

}  // namespace
}  // namespace longhaul::bench
