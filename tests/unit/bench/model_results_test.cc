#include "tools/bench/model_results.h"

#include <gtest/gtest.h>

namespace longhaul::bench {
namespace {

TEST(ModelTest, IsNamedAsInLlamaBench) {
  EXPECT_EQ(name_of(ModelTest{.n_prompt = 512}), "pp512");
  EXPECT_EQ(name_of(ModelTest{.n_gen = 128}), "tg128");
  EXPECT_EQ(name_of(ModelTest{.n_prompt = 512, .n_gen = 128}), "pp512+tg128");
  EXPECT_EQ(name_of(ModelTest{.n_prompt = 512, .n_depth = 4096}), "pp512 @ d4096");
  EXPECT_EQ(name_of(ModelTest{.n_gen = 128, .n_depth = 64, .n_sequences = 8}), "tg128 x8 @ d64");
  EXPECT_EQ(name_of(ModelTest{.n_gen = 200, .n_depth = 4096, .draft_max = 16}), "quote200 @ d4096");
}

ModelFacts facts() {
  ModelFacts f;
  f.cpu = "a CPU";
  f.isa = "avx2";
  f.model = "llama-3.1-8b bf16, 4/32 layers";
  f.weight_type = "bf16";
  f.size_bytes = std::int64_t{3} << 29;
  f.n_params = 1'235'814'400;
  f.n_heads = 32;
  f.n_retrieval = 8;
  return f;
}

TEST(ModelResults, GiveMeanDeviationAndShareOfTheBound) {
  // 100 tokens in 10 and 5 s: 10 and 20 tokens/s, mean 15, deviation sqrt(50); bound 30 tokens/s.
  const std::vector<ModelSample> samples = {{10, 100.0 / 30}, {5, 100.0 / 30}};
  const auto columns = model_columns({});
  const auto cells = model_cells(facts(), {.n_prompt = 60, .n_gen = 40}, samples, Limit::kMemory,
                                 {1e9, 2e9, 9e9, 3e9});
  ASSERT_EQ(cells.size(), columns.size());
  JsonObject row;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!columns[i].key.empty()) row.emplace_back(columns[i].key, cells[i].value);
  }
  const Json json(std::move(row));
  const JsonField field(json, "row");
  EXPECT_DOUBLE_EQ(field.at("avg_ts").as_number(), 15);
  EXPECT_NEAR(field.at("stddev_ts").as_number(), 7.0710678, 1e-6);
  EXPECT_EQ(field.at("avg_ns").as_integer(0, 1LL << 60), 7'500'000'000);
  EXPECT_DOUBLE_EQ(field.at("of_bound").as_number(), 0.5);
  EXPECT_EQ(field.at("samples_ns").at(1).as_integer(0, 1LL << 60), 5'000'000'000);
  EXPECT_EQ(field.at("attainable_gflop_per_s").as_number(), 2);
  EXPECT_EQ(field.at("test").as_string(), "pp60+tg40");
}

TEST(ModelResults, ShowInMarkdownWhatIsNotUsual) {
  const std::vector<ModelSample> samples = {{10, 5}};
  const auto text = [&](const ShownColumns& shown) {
    Table table(TableFormat::kMarkdown, model_columns(shown));
    return table.begin() +
           table.row(model_cells(facts(), {.n_gen = 10}, samples, Limit::kMemory, {1, 1, 1}));
  };
  EXPECT_EQ(
      text({}),
      "| model                |       size |     params | backend    | threads |             "
      "test |                t/s | of bound |\n"
      "| ---------------------| ----------:| ----------:| -----------| -------:| ------------"
      "----:| ------------------:| --------:|\n"
      "| llama-3.1-8b bf16, 4/32 layers |   1.50 GiB |     1.24 B | CPU avx2   |       1 |     "
      "        tg10 |        1.00 ± 0.00 |     0.50 |\n");
  const std::string all =
      text({.model_width = 30, .chunk_len = true, .cache_types = true, .heads = true});
  EXPECT_NE(all.find("| retrieval heads |"), std::string::npos);
  EXPECT_NE(all.find("|            8/32 |"), std::string::npos);
  EXPECT_NE(all.find("| chunk_len | type_k | type_v |"), std::string::npos);
}

// With --chunk-len, cache types or retrieval heads the rows of a narrow terminal were cut.
TEST(ModelResults, FitATerminalOf80ColumnsWhateverIsShown) {
  const ShownColumns shown{.model_width = 40,
                           .ranks = true,
                           .chunk_len = true,
                           .cache_types = true,
                           .heads = true,
                           .tokens_per_step = true};
  Table table(TableFormat::kMarkdown, model_columns(shown), 80);
  EXPECT_TRUE(table.leaves_out_spare_columns());
  EXPECT_LE(table.begin().find('\n'), 80U) << table.begin();
  ModelFacts f = facts();
  f.n_ranks = 2;
  f.chunk_len = 64;
  f.type_k = "int8";
  f.type_v = "bf16";
  EXPECT_EQ(facts_line(f, shown),
            "llama-3.1-8b bf16, 4/32 layers: 1.50 GiB, 1.24 B parameters, CPU avx2, 2 ranks, "
            "chunks of 64, keys int8, values bf16, 8 of 32 retrieval heads");
  EXPECT_EQ(facts_line(facts(), {}),
            "llama-3.1-8b bf16, 4/32 layers: 1.50 GiB, 1.24 B parameters, CPU avx2");
}

}  // namespace
}  // namespace longhaul::bench
