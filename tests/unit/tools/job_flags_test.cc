// Words of the command line become values, once.
#include "tools/flags/job_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "tools/flags/sizes.h"

namespace longhaul {
namespace {

class JobFlags : public testing::Test {
 protected:
  JobFlags() {
    add_device_flags(app_, job_, "a");
    add_chunk_flag(app_, job_, "a");
    add_parallel_flag(app_, job_, "a");
    add_kv_limit_flag(app_, job_, "a");
    add_weights_flag(app_, job_, "a");
    add_cache_flags(app_, job_, "a");
    add_rank_flags(app_, job_);
    add_step_timeout_flag(app_, job_, "a");
    add_head_flags(app_, heads_, "a");
  }
  void parse(const std::string& arguments) { app_.parse(arguments); }

  CLI::App app_{"test"};
  JobConfig job_;
  HeadSettings heads_;
};

TEST_F(JobFlags, NothingSaidChangesNothing) {
  parse("");
  const JobConfig preset;
  EXPECT_EQ(job_.device, preset.device);
  EXPECT_EQ(job_.weights, std::nullopt);
  EXPECT_EQ(job_.k_type, std::nullopt);
  EXPECT_EQ(job_.kv_limit_bytes, std::nullopt);
  EXPECT_EQ(job_.history, preset.history);
  EXPECT_EQ(job_.decode_balance, preset.decode_balance);
  EXPECT_EQ(job_.gpu_transfers, GpuTransport::kNcclWherePossible);
  EXPECT_EQ(job_.step_timeout, preset.step_timeout);
  EXPECT_EQ(job_.dead_after, preset.dead_after);
}

TEST_F(JobFlags, WordsBecomeValues) {
  parse(
      "--device auto --weights int8 --ctk q8_0 --cache-type-v int4 --history queries "
      "--decode-balance phases --gpu-transfers copy-engines --kv-limit 2G --step-timeout 1.5 "
      "--dead-after 7 --ranks 3 -b 4K --no-mmap");
  EXPECT_EQ(job_.device, DeviceChoice::kAuto);
  EXPECT_EQ(job_.weights, DType::kI8);
  EXPECT_EQ(job_.weight_files, WeightFiles::kCopied);
  EXPECT_EQ(job_.k_type, KvType::kInt8);
  EXPECT_EQ(job_.v_type, KvType::kInt4);
  EXPECT_EQ(job_.history, HistoryChoice::kQueriesTravel);
  EXPECT_EQ(job_.decode_balance, DecodeBalance::kEachPhase);
  EXPECT_EQ(job_.gpu_transfers, GpuTransport::kCopyEnginesWherePossible);
  EXPECT_EQ(job_.kv_limit_bytes, std::size_t{2} << 30);
  EXPECT_EQ(job_.step_timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(job_.dead_after, std::chrono::seconds(7));
  EXPECT_EQ(job_.n_ranks, 3);
  EXPECT_EQ(job_.chunk_len, 4096);
}

TEST_F(JobFlags, WeightsOfFourBitsHaveTwoNames) {
  parse("--weights int4");
  EXPECT_EQ(job_.weights, DType::kI4);
  parse("--weights q4_0");
  EXPECT_EQ(job_.weights, DType::kI4);
}

TEST_F(JobFlags, InputsOfFp8ProductsAreRoundedWhenAskedFor) {
  parse("--weights fp8");
  EXPECT_EQ(job_.fp8_inputs, Fp8Inputs::kAsTheyAre);
  parse("--weights fp8 --fp8-activations");
  EXPECT_EQ(job_.fp8_inputs, Fp8Inputs::kQuantised);
}

TEST_F(JobFlags, CacheTypesThatQuantiseGroupsHaveTheirNames) {
  parse("--ctk kivi2 --cache-type-v kivi4");
  EXPECT_EQ(job_.k_type, KvType::kKivi2);
  EXPECT_EQ(job_.v_type, KvType::kKivi4);
}

// The rule was told when the model had been read, and K was refused.
TEST_F(JobFlags, BlocksAreMultiplesOf16AndTakeLetters) {
  EXPECT_THAT(app_.help(), testing::HasSubstr("a multiple of 16"));
  parse("--block-size 1K");
  EXPECT_EQ(job_.block_size, 1024);
}

TEST_F(JobFlags, CachesOfFp8HaveTheNameOfOthers) {
  parse("--ctk fp8 --ctv fp8_e4m3");
  EXPECT_EQ(job_.k_type, KvType::kFp8);
  EXPECT_EQ(job_.v_type, KvType::kFp8);
}

TEST_F(JobFlags, HelpShowsTheDefaults) {
  const std::string help = app_.help();
  for (const char* preset : {"}=cpu", "}=auto", "}=total", "=30", "=86400", "=64"})
    EXPECT_THAT(help, testing::HasSubstr(preset));
}

TEST_F(JobFlags, RefusesOtherWords) {
  for (const char* wrong :
       {"--device gpu", "--weights f16", "--ctk q5_1", "--history all", "--dead-after 0", "-b many",
        "-b 0K", "--block-size 0", "--block-size 24", "--retrieval-ratio 2",
        "--retrieval-ratio nan", "--dead-after nan", "--step-timeout nan", "--step-timeout inf"}) {
    EXPECT_THROW(parse(wrong), CLI::ParseError) << wrong;
  }
  EXPECT_THROW(parse("--kv-limit much"), Error);
}

// It guessed 8 tokens: 0 was taken for "not said".
TEST(DraftModel, IsNotUsedWithoutGuesses) {
  const auto parsed = [](const std::string& arguments) {
    CLI::App app("test");
    JobConfig job;
    add_lookup_flags(app, job, "a");
    add_draft_model_flags(app, job, "a");
    app.parse(arguments);
    return job;
  };
  EXPECT_EQ(parsed("--draft-model small").lookup.most, 8);
  EXPECT_EQ(parsed("--draft-model small").draft_model, "small");
  EXPECT_EQ(parsed("--draft-model small --draft-max 3").lookup.most, 3);
  EXPECT_EQ(parsed("--draft-model small --draft-max 3").draft_model, "small");
  EXPECT_EQ(parsed("--draft-max 0 --draft-model small").lookup.most, 0);
  EXPECT_EQ(parsed("--draft-max 0 --draft-model small").draft_model, "");
}

TEST_F(JobFlags, APlanSaysItsOwnStages) {
  EXPECT_THROW(parse("--plan p.json --stages 2"), CLI::ParseError);
}

TEST(Sizes, LettersAreBinaryAndWithABDecimal) {
  EXPECT_EQ(parse_byte_size("8G", "--kv-limit"), std::size_t{8} << 30);
  EXPECT_EQ(parse_byte_size("8GiB", "--kv-limit"), std::size_t{8} << 30);
  EXPECT_EQ(parse_byte_size("8GB", "--kv-limit"), 8'000'000'000U);
  EXPECT_EQ(parse_byte_size("512m", "--kv-limit"), std::size_t{512} << 20);
  EXPECT_EQ(parse_byte_size("1000", "--kv-limit"), 1000U);
  EXPECT_THROW(parse_byte_size("-1G", "--kv-limit"), Error);
  EXPECT_THROW(parse_byte_size("8X", "--kv-limit"), Error);
}

}  // namespace
}  // namespace longhaul
