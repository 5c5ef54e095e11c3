// Blocks are closed to the same bytes on every device.
#include "kernels/kv_close.h"

#include <limits>
#include <vector>

#include "kernels/kv_append.h"
#include "tests/support/random.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

class KvClose : public EachDevice {};
LONGHAUL_ON_EACH_DEVICE(KvClose);

// An open block: normal numbers, and among them what is special about groups.
std::vector<std::byte> open_block(const KvBlockShape& shape, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t n = shape.block_size * shape.head_dim;
  std::vector<float> values = random.normals(2 * n);
  for (std::int64_t i = 0; i < 32; ++i) values[static_cast<std::size_t>(i)] = 0.3F;  // all equal
  values[static_cast<std::size_t>(n - 1)] = 1e9F;                                    // saturates
  values[static_cast<std::size_t>(n - 40)] = -1e-9F;
  values[static_cast<std::size_t>(n + 5)] = std::numeric_limits<float>::infinity();
  values[static_cast<std::size_t>(2 * n - 1)] = -std::numeric_limits<float>::infinity();
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

TEST_P(KvClose, BytesAreTheCpus) {
  for (const KvType k_type : kAllKvTypes) {
    for (const KvType v_type : kAllKvTypes) {
      const KvBlockShape shape{
          .block_size = 64, .head_dim = 96, .k_type = k_type, .v_type = v_type};
      constexpr std::size_t kBlocks = 3;
      std::vector<std::vector<std::byte>> open;
      std::vector<std::vector<std::byte>> want;
      std::vector<Memory<std::byte>> open_there;
      std::vector<Memory<std::byte>> closed_there;
      std::vector<KvCloseItem> on_cpu;
      std::vector<KvCloseItem> there;
      for (std::size_t i = 0; i < kBlocks; ++i) {
        open.push_back(open_block(shape, base_seed() + i));
        want.emplace_back(shape.bytes(), std::byte{0xff});
        open_there.emplace_back(stream(), open.back());
        closed_there.emplace_back(stream(), static_cast<std::int64_t>(shape.bytes()),
                                  std::byte{0xff});
      }
      for (std::size_t i = 0; i < kBlocks; ++i) {
        on_cpu.push_back({.open = open[i].data(), .closed = want[i].data()});
        there.push_back({.open = open_there[i].data(), .closed = closed_there[i].data()});
      }
      kv_close(StreamRef::cpu(), {.shape = shape, .items = on_cpu});
      kv_close(stream(), {.shape = shape, .items = there});
      for (std::size_t i = 0; i < kBlocks; ++i)
        ASSERT_EQ(closed_there[i].values(), want[i]) << name_of(k_type) << " " << name_of(v_type);
    }
  }
}

TEST_P(KvClose, WritesTheAddressIntoATable) {
  if (stream().device() == Device::kCpu) GTEST_SKIP() << "CPUs have no tables";
  const KvBlockShape shape{
      .block_size = 32, .head_dim = 32, .k_type = KvType::kKivi4, .v_type = KvType::kKivi2};
  const Memory<std::byte> open(stream(), open_block(shape, base_seed()));
  const Memory<std::byte> closed(stream(), static_cast<std::int64_t>(shape.bytes()));
  const Memory<const std::byte*> table(stream(), 2, nullptr);
  const KvCloseItem item{.open = open.data(), .closed = closed.data(), .entry = table.data() + 1};
  kv_close(stream(), {.shape = shape, .items = {&item, 1}});
  EXPECT_EQ(table.values(), (std::vector<const std::byte*>{nullptr, closed.data()}));
}

TEST_P(KvClose, NothingIsNoWork) {
  kv_close(stream(),
           {.shape = {.block_size = 32, .head_dim = 32, .k_type = KvType::kKivi4}, .items = {}});
}

}  // namespace
}  // namespace longhaul::test
