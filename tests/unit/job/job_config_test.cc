#include "tools/job/job_config.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(JobConfig, CachesAreAsTheWeightsWhereNoTypeIsGiven) {
  JobConfig job;
  EXPECT_EQ(formats_of(job, DType::kF32).k_type, KvType::kF32);
  for (const DType weights : {DType::kBf16, DType::kI8, DType::kI4, DType::kF8E4m3}) {
    EXPECT_EQ(formats_of(job, weights).k_type, KvType::kBf16);
    EXPECT_EQ(formats_of(job, weights).v_type, KvType::kBf16);
    EXPECT_EQ(formats_of(job, weights).weight_dtype, weights);
  }
  job.v_type = KvType::kInt4;
  EXPECT_EQ(formats_of(job, DType::kF32).k_type, KvType::kF32);
  EXPECT_EQ(formats_of(job, DType::kF32).v_type, KvType::kInt4);
}

TEST(JobConfig, SaysBlocksBitsAndGuesses) {
  JobConfig job;
  job.block_size = 128;
  job.lookup.most = 5;
  const Workload formats = formats_of(job, DType::kBf16);
  EXPECT_EQ(formats.block_size, 128);
  EXPECT_FALSE(formats.reproducible);
  EXPECT_EQ(formats.n_guesses, 5);
  // What an earlier run picked of an answer is guessed, too.
  job.reproducible = true;
  EXPECT_TRUE(formats_of(job, DType::kBf16).reproducible);
  EXPECT_EQ(formats_of(job, DType::kBf16).n_guesses, 15);
  job.lookup.most = 20;
  EXPECT_EQ(formats_of(job, DType::kBf16).n_guesses, 20);
}

}  // namespace
}  // namespace longhaul
