// How little keys point where all of them point: against double precision in every cache type, the
// same bits on every device, for any number of threads and wherever keys lie.
#include "kernels/key_directions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "kernels/cpu/threads.h"
#include "kernels/reference/kv_read.h"
#include "tests/unit/kernels/cached_keys.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kComparedDim = 40;
constexpr std::int64_t kComparedKeys = 151;

using Values = std::vector<double>;

double length_of(const Values& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

// By definition: minus the cosine of each key and the mean of all directions.
Values want_distinctions(const CachedKeys& blocks) {
  std::vector<Values> keys;
  Values mean(kComparedDim);
  for (const KvBlockRef& block : blocks.refs) {
    for (std::int64_t slot = 0; slot < block.n_tokens; ++slot) {
      std::vector<float> key(kComparedDim);
      kv_read_k(blocks.shape, block.data, slot, {key.data(), {1, kComparedDim}});
      keys.emplace_back(key.begin(), key.end());
      for (std::size_t d = 0; d < mean.size(); ++d)
        mean[d] += keys.back()[d] / length_of(keys.back());
    }
  }
  Values distinctions;
  for (const Values& key : keys) {
    const double product = std::inner_product(key.begin(), key.end(), mean.begin(), 0.0);
    distinctions.push_back(-product / length_of(key) / length_of(mean));
  }
  return distinctions;
}

class KeyDirectionsTest : public EachDevice {
 protected:
  CachedKeys keys_of(KvType type, Random& random) const {
    return random_keys(random, stream(),
                       {.block_size = 80, .head_dim = kComparedDim, .k_type = type, .v_type = type},
                       kComparedKeys);
  }
  std::vector<float> distinctions(StreamRef stream, const KvBlockShape& shape,
                                  std::span<const KvBlockRef> blocks) const {
    const KeyDirectionsArgs keys{.shape = shape, .blocks = blocks};
    return key_distinctions(stream, keys, sum_key_directions(stream, keys));
  }
};

TEST_P(KeyDirectionsTest, EqualDoublePrecisionWithTheSameBitsEverywhere) {
  for (const KvType type : kPlainKvTypes) {
    Random random(base_seed() + static_cast<std::uint64_t>(type));
    const CachedKeys blocks = keys_of(type, random);
    const Values want = want_distinctions(blocks);
    const std::vector<float> got = distinctions(stream(), blocks.shape, blocks.refs_there);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(static_cast<double>(got[i]), want[i], 1e-6) << i;
    for (const int n_threads : {1, 3}) {
      set_kernel_threads(n_threads);
      EXPECT_EQ(distinctions(StreamRef::cpu(), blocks.shape, blocks.refs), got);
    }
    set_kernel_threads(0);
  }
}

TEST_P(KeyDirectionsTest, DoNotDependOnWhichKeysLieTogether) {
  Random random(base_seed());
  const CachedKeys blocks = keys_of(KvType::kBf16, random);
  const std::span<const KvBlockRef> all = blocks.refs_there;
  const std::vector<float> want = distinctions(stream(), blocks.shape, all);
  // The last block lies elsewhere, and comes first.
  const KeyDirectionsArgs here{.shape = blocks.shape, .blocks = all.first(1)};
  const KeyDirectionsArgs there{.shape = blocks.shape, .blocks = all.subspan(1)};
  std::vector<std::int64_t> sums = sum_key_directions(stream(), there);
  const std::vector<std::int64_t> more = sum_key_directions(stream(), here);
  for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += more[d];
  std::vector<float> got = key_distinctions(stream(), here, sums);
  const std::vector<float> rest = key_distinctions(stream(), there, sums);
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, want);
}

TEST_P(KeyDirectionsTest, KeysOfZerosHaveNone) {
  const KvBlockShape shape{.block_size = 16, .head_dim = kComparedDim};
  const std::vector<std::byte> zeros(shape.bytes());
  const Memory<std::byte> memory(stream(), zeros);
  const KvBlockRef block{.data = memory.data(), .first_position = 0, .n_tokens = 5};
  const KeyDirectionsArgs keys{.shape = shape, .blocks = {&block, 1}};
  const std::vector<std::int64_t> sums = sum_key_directions(stream(), keys);
  EXPECT_EQ(sums, std::vector<std::int64_t>(kComparedDim, 0));
  EXPECT_EQ(key_distinctions(stream(), keys, sums), std::vector<float>(5, 0.0F));
}

TEST_P(KeyDirectionsTest, OfNoKeysAreNothing) {
  const KeyDirectionsArgs none{.shape = {.block_size = 16, .head_dim = kComparedDim}};
  const std::vector<std::int64_t> sums = sum_key_directions(stream(), none);
  EXPECT_EQ(sums, std::vector<std::int64_t>(kComparedDim, 0));
  EXPECT_TRUE(key_distinctions(stream(), none, sums).empty());
  EXPECT_THROW(key_distinctions(stream(), none, std::span(sums).first(3)), Error);
}

LONGHAUL_ON_EACH_DEVICE(KeyDirectionsTest);

}  // namespace
}  // namespace longhaul::test
