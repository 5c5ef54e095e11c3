#include "tools/bench/kernel_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace longhaul::bench {
namespace {

using testing::HasSubstr;

KernelCase made(std::string family, std::int64_t length) {
  return {.name = "k",
          .family = std::move(family),
          .length = length,
          .work = {.flops = 2e9, .bytes = 1e9},
          .prepare = {}};
}

TEST(KernelResults, ShowWhatBoundsTheKernel) {
  const KernelTime time{.seconds = 0.5, .n_runs = 3, .rates = {1e10, 1e10, 2e10, 4e9}};
  const KernelSettings settings{.cpu = "a CPU", .isa = "avx2", .n_threads = 2};
  const auto columns = kernel_columns(42);
  const auto cells = kernel_cells(made("", 0), time, std::nullopt, settings);
  ASSERT_EQ(cells.size(), columns.size());
  JsonObject row;
  for (std::size_t i = 0; i < cells.size(); ++i) row.emplace_back(columns[i].key, cells[i].value);
  const Json json(std::move(row));
  const JsonField field(json, "row");
  // Reading 1 GB at 4 GB/s takes 0.25 s, computing 2 GFLOP at 10 GFLOP/s less.
  EXPECT_EQ(field.at("limit").as_string(), "memory");
  EXPECT_EQ(field.at("unit").as_string(), "GB/s");
  EXPECT_DOUBLE_EQ(field.at("achieved").as_number(), 2);
  EXPECT_DOUBLE_EQ(field.at("attainable").as_number(), 4);
  EXPECT_DOUBLE_EQ(field.at("of_attainable").as_number(), 0.5);
  EXPECT_FALSE(field.find("slope"));
  EXPECT_FALSE(field.find("length"));
}

TEST(KernelResults, FitATerminalOf80Columns) {
  std::size_t width = 0;
  for (const KernelCase& c : kernel_cases({.only = {}, .max_length = 1 << 20, .all_paths = true}))
    width = std::max(width, c.name.size());
  const Table table(TableFormat::kMarkdown, kernel_columns(width), 80);
  EXPECT_LE(table.begin().find('\n'), 80U) << table.begin();
}

TEST(KernelResults, SlopesAreOfFamilies) {
  FamilySlopes slopes;
  EXPECT_FALSE(slopes.add(made("", 5), {.seconds = 1}));
  EXPECT_FALSE(slopes.add(made("a", 1024), {.seconds = 1}));
  EXPECT_FALSE(slopes.add(made("b", 1024), {.seconds = 1}));
  EXPECT_NEAR(slopes.add(made("a", 4096), {.seconds = 16}).value(), 2, 1e-12);
  EXPECT_NEAR(slopes.add(made("b", 1 << 20), {.seconds = 1024}).value(), 1, 1e-12);
  EXPECT_EQ(slopes.text(),
            "slope of log time over log length, a from 1K to 4K: 2.000\n"
            "slope of log time over log length, b from 1K to 1M: 1.000\n");
}

TEST(KernelCases, HaveDifferentNamesAndPositiveWork) {
  const auto cases = kernel_cases({.only = {}, .max_length = 1 << 20, .all_paths = true});
  EXPECT_GT(cases.size(), 60U);
  std::set<std::string> names;
  for (const KernelCase& c : cases) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_GT(c.work.operations(), 0) << c.name;
    EXPECT_GT(c.work.bytes, 0) << c.name;
  }
  for (const char* name :
       {"attention/causal_8K/d64/bf16", "attention/causal_64K/d128/f32",
        "attention/causal_sharp_8K/d128/bf16", "attention/history_64K/d128/f32",
        "attention/streaming_16K/d64/chunk_2K/f32", "attention/streaming_1M/d128/chunk_2K/bf16",
        "attention/decode_64K/d128/gqa4/bf16", "attention/decode_64K/d64/gqa1/f32",
        "attention/decode_sharp_64K/d128/gqa4/f32", "linear/8B_up/rows_1/bf16/few_rows",
        "linear/1B_up/rows_512/bf16/tiled"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(KernelCases, AreChosenByNameAndLength) {
  for (const KernelCase& c : kernel_cases({.only = "streaming", .max_length = 65536})) {
    EXPECT_THAT(c.name, HasSubstr("attention/streaming_"));
    EXPECT_LE(c.length, 65536);
  }
  EXPECT_EQ(kernel_cases({.only = "streaming", .max_length = 65536}).size(), 8U);
  EXPECT_EQ(kernel_cases({.only = "chunk_512/", .max_length = 65536, .chunk_len = 512}).size(), 8U);
  for (const KernelCase& c : kernel_cases({.only = "attention", .max_length = 500})) {
    EXPECT_LE(c.length, 500) << c.name;
  }
  EXPECT_TRUE(kernel_cases({.only = "no such kernel"}).empty());
}

TEST(KernelCases, CountTheWorkOfProducts) {
  const auto cases = kernel_cases({.only = "linear/8B_up/rows_1/bf16/few_rows"});
  ASSERT_EQ(cases.size(), 1U);
  EXPECT_EQ(cases[0].work.flops, 2.0 * 4096 * 14336);
  EXPECT_EQ(cases[0].work.bytes, 2.0 * 4096 * 14336 + 4 * 4096);
  EXPECT_NO_THROW(cases[0].prepare()());
}

}  // namespace
}  // namespace longhaul::bench
