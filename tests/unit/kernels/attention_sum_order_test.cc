// What a query adds up has the same bits beside other queries as alone, where the order of sums is
// that of many rows or of few, on every instruction set.
#include <algorithm>
#include <iterator>
#include <vector>

#include "kernels/attention.h"
#include "tests/unit/kernels/attention_case.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

class AttentionSumOrder : public EachDevice {
 protected:
  void SetUp() override {
    EachDevice::SetUp();
    if (stream().device() != Device::kCpu) GTEST_SKIP() << "CPUs only";
  }
  void expect_the_same_bits_alone(AttentionShape shape, SumOrder order) const;
};
LONGHAUL_ON_EACH_DEVICE(AttentionSumOrder);

// The item's query `row` at a time when its own key was the last one.
class Alone {
 public:
  Alone(const AttentionItem& item, std::int64_t row) : item_(item) {
    item_.q = item.q.slice(0, {row, row + 1});
    item_.q_positions = item.q_positions.subspan(static_cast<std::size_t>(row), 1);
    item_.state = item.state.tokens({row, row + 1});
    for (KvBlockRef block : item.blocks) {
      block.n_tokens =
          std::min(block.n_tokens, item_.q_positions.front() + 1 - block.first_position);
      if (block.n_tokens > 0) blocks_.push_back(block);
    }
    item_.blocks = blocks_;
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  const AttentionItem& item() const { return item_; }

 private:
  std::vector<KvBlockRef> blocks_;
  AttentionItem item_;
};

void AttentionSumOrder::expect_the_same_bits_alone(AttentionShape shape, SumOrder order) const {
  shape.gaps = false;
  for (const KvType type : kAllKvTypes) {
    for (const AttentionMask mask : {AttentionMask{}, {.sink = 64, .recent = 4500}}) {
      shape.k_type = shape.v_type = type;
      shape.mask = mask;
      SCOPED_TRACE(describe(shape));
      AttentionProblem problem(stream(), shape, base_seed());
      AttentionArgs args = problem.args();
      args.order = order;
      problem.clear_state();
      attention(stream(), args);
      const std::vector<float> together = problem.finished();
      problem.clear_state();
      const AttentionItem all = args.items.front();
      for (std::int64_t row = 0; row < shape.q_len; ++row) {
        const Alone alone(all, row);
        args.items = {&alone.item(), 1};
        attention(stream(), args);
      }
      EXPECT_EQ(problem.finished(), together);
    }
  }
}

TEST_P(AttentionSumOrder, OfManyRowsIsThatOfOne) {
  expect_the_same_bits_alone({.q_len = 40, .gqa_group = 3, .n_blocks = 6}, SumOrder::kOfManyRows);
}

// So much that probabilities are held against a larger score again and again, at other keys in each
// row.
TEST_P(AttentionSumOrder, OfManyRowsIsThatOfOneWhereScoresRise) {
  expect_the_same_bits_alone({.q_len = 40, .gqa_group = 3, .n_blocks = 6, .deviation = 50.0F},
                             SumOrder::kOfManyRows);
}

// Guesses beside what was picked; caches that are cut along the keys.
TEST_P(AttentionSumOrder, OfFewRowsIsThatOfOne) {
  expect_the_same_bits_alone({.q_len = 7, .gqa_group = 4, .n_blocks = 110}, SumOrder::kOfFewRows);
  expect_the_same_bits_alone({.q_len = 5, .gqa_group = 17, .n_blocks = 3, .after_keys = true},
                             SumOrder::kOfFewRows);
}

}  // namespace
}  // namespace longhaul::test
