// Whatever is dealt to whatever number of ranks comes back bit for bit through h5py.
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/unit/snapshot/dealt_caches.h"

namespace longhaul {
namespace {

TEST(CacheFilesProperty, ComeBackBitForBit) {
  LONGHAUL_SKIP_UNLESS_H5PY();
  for (int round = 0; round < 18 * test::intensity(); ++round) {
    const std::uint64_t seed = test::base_seed() * 1000 + static_cast<std::uint64_t>(round);
    test::Random random(seed);
    const auto type = [&] {
      return kAllKvTypes[static_cast<std::size_t>(random.integer(0, std::ssize(kAllKvTypes) - 1))];
    };
    test::DealtSpec spec;
    spec.n_layers = random.integer(1, 3);
    spec.n_kv_heads = random.integer(1, 3);
    spec.shape = {.block_size = 16 * random.integer(1, 4),
                  .head_dim = 8 * random.integer(1, 9),
                  .k_type = type(),
                  .v_type = type()};
    if (spec.shape.quantises_groups()) {
      spec.shape.block_size = 32 * random.integer(1, 3);
      spec.shape.head_dim = 32 * random.integer(1, 3);
    }
    spec.n_tokens = random.chance(0.3) ? random.integer(1, 40) : random.integer(41, 9000);
    spec.n_ranks = static_cast<int>(random.integer(1, 4));
    spec.sink = random.integer(0, 70);
    spec.recent = random.integer(1, 200);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << spec.n_tokens << " tokens on "
                                    << spec.n_ranks << " ranks");
    const test::DealtCaches caches(spec, random);
    const test::TemporaryFolder folder;
    const SavedSequence saved = caches.saved_in(folder.path());
    caches.save(saved);
    EXPECT_TRUE(test::holds(saved.master_path(), caches));
    EXPECT_TRUE(is_saved(saved));
  }
}

}  // namespace
}  // namespace longhaul
