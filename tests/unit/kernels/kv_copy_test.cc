// kv_copy against reading the tokens one by one.
#include "kernels/kv_copy.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "kernels/kv_append.h"
#include "kernels/reference/kv_read.h"
#include "tests/support/random.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kTokens = 32;
constexpr std::int64_t kHeadDim = 24;

struct Block {
  explicit Block(const KvBlockShape& shape_) : shape(shape_), bytes(shape.bytes()) {}
  void fill(Random& random) {
    const std::vector<float> k = random.normals(kTokens * kHeadDim);
    const std::vector<float> v = random.normals(kTokens * kHeadDim);
    std::byte* data = bytes.data();
    const KvAppendItem item = {.k = {k.data(), {kTokens, kHeadDim}},
                               .v = {v.data(), {kTokens, kHeadDim}},
                               .blocks = {&data, 1}};
    kv_append(StreamRef::cpu(), {.shape = shape, .items = {&item, 1}});
  }
  // K and V of a slot.
  std::vector<float> slot(std::int64_t i) const {
    std::vector<float> values(2 * kHeadDim);
    kv_read_k(shape, bytes.data(), i, {values.data(), {1, kHeadDim}});
    kv_read_v(shape, bytes.data(), i, {values.data() + kHeadDim, {1, kHeadDim}});
    return values;
  }
  KvBlockShape shape;
  std::vector<std::byte> bytes;
};

class KvCopy : public EachDevice {};
LONGHAUL_ON_EACH_DEVICE(KvCopy);

TEST_P(KvCopy, MovesTheTokensAndNothingElse) {
  Random random(base_seed());
  for (const KvType k_type : kPlainKvTypes) {
    for (const KvType v_type : kPlainKvTypes) {
      for (const KvCopyItem want : {KvCopyItem{nullptr, 0, nullptr, 0, kTokens},
                                    {nullptr, 0, nullptr, 5, 27},
                                    {nullptr, 0, nullptr, 0, 7},
                                    {nullptr, 3, nullptr, 30, 1},
                                    {nullptr, 6, nullptr, 9, 0}}) {
        const KvBlockShape shape{kTokens, kHeadDim, k_type, v_type};
        Block from(shape);
        Block to(shape);
        from.fill(random);
        to.fill(random);
        const Block before = to;
        KvCopyItem item = want;
        const Memory from_there(stream(), from.bytes);
        const Memory to_there(stream(), to.bytes);
        item.from = from_there.data();
        item.to = to_there.data();
        kv_copy(stream(), {.shape = shape, .items = {&item, 1}});
        to.bytes = to_there.values();
        for (std::int64_t i = 0; i < kTokens; ++i) {
          const bool moved = Extent{item.to_slot, item.to_slot + item.n_tokens}.contains(i);
          EXPECT_EQ(to.slot(i),
                    moved ? from.slot(i - item.to_slot + item.from_slot) : before.slot(i))
              << "slot " << i;
        }
      }
    }
  }
}

TEST(KvCopyArguments, RefusesTokensOutsideTheBlocks) {
  const KvBlockShape shape{kTokens, kHeadDim, KvType::kF32, KvType::kF32};
  Block from(shape);
  Block to(shape);
  const KvCopyItem item = {from.bytes.data(), 0, to.bytes.data(), 6, 27};
  EXPECT_THROW(kv_copy(StreamRef::cpu(), {.shape = shape, .items = {&item, 1}}), Error);
}

}  // namespace
}  // namespace longhaul::test
