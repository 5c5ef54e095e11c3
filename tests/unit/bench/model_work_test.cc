// Against figures worked out by hand for Llama-3.2-1B: 16 layers, d_model 2048, d_ff 8192, 32 heads
// and 8 KV heads of 64, a vocabulary of 128256, tied.
#include "tools/bench/model_work.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tools/bench/shapes.h"

namespace longhaul::bench {
namespace {

class ModelWork : public testing::Test {
 protected:
  ModelWorkArgs args(DType weights = DType::kBf16) const {
    return {.spec = spec_,
            .heads = heads_,
            .weight_dtype = weights,
            .kv = {.k_type = KvType::kBf16, .v_type = KvType::kBf16, .head_dim = 64}};
  }
  // One head of each layer keeps everything, seven the first 128 and the last 256 tokens.
  void make_streaming() {
    heads_ = streaming_heads(spec_, {128, 256});
    for (const LayerId layer : IdRange<LayerId>(spec_.n_layers)) heads_.set(layer, {0}, {});
  }
  ModelSpec spec_ = model_shape("llama-3.2-1b").spec;
  HeadTable heads_ = dense_heads(spec_);
};

TEST_F(ModelWork, OfAPrompt) {
  const auto steps = prefill_work(args(), {0, 512}, 2048);
  ASSERT_EQ(steps.size(), 1U);
  // 15 layers: 512 tokens of 121,634,816 in products, 32 heads x 256 for each of the 131,328 pairs
  // of a query and a key. The last layer: 512 tokens of 4,194,304 for keys and values, one of
  // 117,440,512, one query with 512 keys. Logits: 2 x 2048 x 128256.
  EXPECT_EQ(steps[0].flops, 15 * (512 * 121'634'816.0 + 32 * 256 * 131'328.0) + 512 * 4'194'304.0 +
                                117'440'512.0 + 32 * 256 * 512.0 + 525'336'576.0);
  EXPECT_EQ(steps[0].flops, 953'087'426'560.0);
  EXPECT_EQ(steps[0].bytes, 2'490'638'336.0);
}

TEST_F(ModelWork, OfATokenIsAllWeightsAndItsKeys) {
  const Work first = decode_work(args(), {0, 1}).at(0);
  EXPECT_EQ(first.flops, 2'471'624'704.0);
  // 2 bytes of each of 1,235,746,816 elements of matrices, 4 of each of 67,584 of norms, a row of
  // the embedding, and keys and values of one token: 16 layers x 8 heads x 2 x 64 x 2.
  EXPECT_EQ(first.bytes, 2 * 1'235'746'816.0 + 4 * 67'584 + 4096 + 32'768);
  const Work later = decode_work(args(), {4096, 4098}).at(1);
  EXPECT_EQ(later.bytes - first.bytes, 4097 * 32'768.0);
  const Work wide = decode_work(args(DType::kF32), {0, 1}).at(0);
  EXPECT_EQ(wide.bytes - first.bytes, 2 * 1'235'746'816.0 + 4096);
}

TEST_F(ModelWork, OfSeveralSequencesReadsTheWeightsOnceAndACacheForEach) {
  const Work one = decode_work(args(), {8192, 8193}).at(0);
  const Work eight = decode_work(args(), {8192, 8193}, 8).at(0);
  EXPECT_EQ(eight.flops, 8 * one.flops);
  EXPECT_EQ(eight.bytes, one.bytes + 7 * (8193 * 32'768.0 + 4096));
}

TEST_F(ModelWork, OfInt8WeightsIsInTheirProductsExceptTiedLogits) {
  const Work bf16 = decode_work(args(), {0, 1}).at(0);
  const Work int8 = decode_work(args(DType::kI8), {0, 1}).at(0);
  EXPECT_EQ(int8.int8_ops, 16 * 121'634'816.0);
  EXPECT_EQ(int8.flops, 525'336'576.0 + 16 * 32 * 256);
  EXPECT_EQ(int8.operations(), bf16.flops);
  // A byte less for each of the layers' 973,078,528 weights, four more for each output's scale.
  EXPECT_EQ(bf16.bytes - int8.bytes,
            973'078'528.0 - 4 * 16 * (2 * 2048 + 2 * 512 + 2 * 8192 + 2048));
}

TEST_F(ModelWork, OfInt4WeightsIsThatOfInt8WithFewerBytes) {
  const Work bf16 = decode_work(args(), {0, 1}).at(0);
  const Work int4 = decode_work(args(DType::kI4), {0, 1}).at(0);
  EXPECT_EQ(int4.int8_ops, 16 * 121'634'816.0);
  EXPECT_EQ(int4.flops, 525'336'576.0 + 16 * 32 * 256);
  EXPECT_EQ(bf16.bytes - int4.bytes, 973'078'528.0 * (2 - 18.0 / 32));
}

TEST_F(ModelWork, OfStreamingHeadsIsTheirWindow) {
  make_streaming();
  EXPECT_EQ(decode_work(args(), {4096, 4097}).at(0).bytes, 2'499'559'424.0);
  const Work prompt = prefill_work(args(), {4096, 4608}, 512).at(0);
  EXPECT_EQ(prompt.flops, 992'321'863'680.0);
  EXPECT_EQ(prompt.bytes, 2'517'481'216.0);
}

TEST_F(ModelWork, OfHeadsThatChoseIsWhatTheyKept) {
  const double all = decode_work(args(), {4096, 4097}).at(0).bytes;
  const KeepBudget after_document{.n_tokens = 512, .when = KeepWhen::kAfterDocument};
  for (const LayerId layer : IdRange<LayerId>(spec_.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec_.n_kv_heads))
      heads_.set(layer, kv_head, {.keep = after_document});
  }
  EXPECT_EQ(decode_work(args(), {4096, 4097}).at(0).bytes, all);  // no document was whole
  ModelWorkArgs cut = args();
  cut.n_document = 4000;
  EXPECT_EQ(all - decode_work(cut, {4096, 4097}).at(0).bytes, (4000 - 512) * 32'768.0);
  const auto prompt_flops = [](const ModelWorkArgs& a) {
    return prefill_work(a, {4000, 4002}, 512).at(0).flops;
  };
  // Two queries in 15 layers, one in the last.
  EXPECT_EQ(prompt_flops(args()) - prompt_flops(cut), (4000 - 512) * 31 * 32 * 256.0);
}

TEST_F(ModelWork, OfHeadsThatDropATokenAtEveryStepIsTheirBudget) {
  const double all = decode_work(args(), {4096, 4098}).at(1).bytes;
  const KeepBudget every_token{
      .n_tokens = 512, .when = KeepWhen::kAfterToken, .observe = ObserveAll{}};
  for (const LayerId layer : IdRange<LayerId>(spec_.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec_.n_kv_heads))
      heads_.set(layer, kv_head, {.keep = every_token});
  }
  ModelWorkArgs cut = args();
  cut.n_document = 4096;
  const auto steps = decode_work(cut, {4096, 4098});
  EXPECT_EQ(steps.at(1).bytes, all - (4097 - 512) * 32'768.0);  // the budget and the new token
  EXPECT_EQ(steps.at(0).bytes, all - 32'768.0);  // nothing was cut before the first answer's token
}

TEST_F(ModelWork, OfHeadsThatChoosePagesIsTheirBudgetAndAllBounds) {
  const double all = decode_work(args(), {4096, 4097}).at(0).bytes;
  const double prompt = prefill_work(args(), {4096, 4097}, 512).at(0).bytes;
  for (std::int64_t layer = 2; layer < spec_.n_layers; ++layer) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec_.n_kv_heads))
      heads_.set(LayerId{layer}, kv_head, {.choose = ReadTopPages{16, 512}});
  }
  const double head_bytes = (4097 - 512) * 256.0 - 257 * 64 * 4.0;
  EXPECT_EQ(all - decode_work(args(), {4096, 4097}).at(0).bytes, 14 * 8 * head_bytes);
  EXPECT_EQ(prefill_work(args(), {4096, 4097}, 512).at(0).bytes, prompt);
}

TEST_F(ModelWork, OfChunksIsThatOfAll) {
  const auto chunks = prefill_work(args(), {100, 612}, 200);
  ASSERT_EQ(chunks.size(), 3U);
  // What chunks add: the last layer's last query of the two first ones.
  double flops = 0;
  for (const Work& chunk : chunks) flops += chunk.flops;
  const double whole = prefill_work(args(), {100, 612}, 512).at(0).flops;
  EXPECT_EQ(flops - whole, 2 * 117'440'512.0 + 32 * 256 * (300.0 + 500.0));
}

TEST_F(ModelWork, OfNothingIsRefused) {
  EXPECT_TRUE(decode_work(args(), {5, 5}).empty());
  EXPECT_TRUE(prefill_work(args(), {5, 5}, 512).empty());
  EXPECT_THROW(step_work(args(), {5, 5}, AfterStep::kNothing), Error);
  EXPECT_THROW(prefill_work(args(), {0, 5}, 0), Error);
}

}  // namespace
}  // namespace longhaul::bench
