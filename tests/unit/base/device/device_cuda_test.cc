// Owners of GPU memory and queues; and what a build without CUDA says.
#include "base/device/device_cuda.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "tests/unit/base/device/on_gpu.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

TEST(GpuAbsence, IsSaidByName) {
  if (cuda::device_count() > 0) GTEST_SKIP() << "there is a GPU";
  try {
    const cuda::Stream stream(0);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kUnsupported || error.code() == ErrorCode::kCuda);
    EXPECT_NE(std::string(error.what()), "");
  }
  EXPECT_NE(cuda::why_no_device(), "");
}

// More than all stages hold, in pieces of odd sizes; all are read back after the last one.
TEST_F(Gpu, UploadsKeepTheirOrder) {
  std::vector<std::uint32_t> sent(300'001);
  std::iota(sent.begin(), sent.end(), 0U);
  const Memory<std::uint32_t> there(stream().ref(), static_cast<std::int64_t>(sent.size()));
  Random random(base_seed());
  for (int round = 0; round < 6; ++round) {
    for (std::size_t at = 0; at < sent.size();) {
      const auto n =
          std::min(sent.size() - at, static_cast<std::size_t>(random.integer(1, 70'000)));
      const auto piece = std::as_bytes(std::span(sent)).subspan(4 * at, 4 * n);
      const std::byte* uploaded = stream().upload(piece);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(uploaded) % 16, 0U);
      cuda::copy_on_device(stream(), reinterpret_cast<std::byte*>(there.data() + at), uploaded,
                           piece.size());
      at += n;
    }
    EXPECT_EQ(there.values(), sent);
  }
}

TEST_F(Gpu, LargeUploadsGrowTheStages) {
  const std::vector<std::byte> sent(5U << 20U, std::byte{7});
  const std::byte* uploaded = stream().upload(sent);
  std::vector<std::byte> got(sent.size());
  cuda::copy_to_host(stream(), got, uploaded);
  EXPECT_EQ(got, sent);
}

TEST_F(Gpu, MemoryThatIsNotThereIsAnError) {
  try {
    const cuda::Buffer buffer(stream().device().memory_bytes + (std::size_t{1} << 30U));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("are free"), std::string::npos) << error.what();
  }
  const cuda::Buffer small(1000);  // the failure is not that of the next call
  EXPECT_NE(small.data(), nullptr);
}

TEST_F(Gpu, ArenasHoldTheThreadsMemoryAsLongAsThereIsRoom) {
  cuda::Buffer before(1000);
  cuda::Buffer outlives;
  {
    const cuda::MemoryArena arena({.gpu = 1 << 20});
    const auto use = [&] { return arena.use(cuda::MemoryKind::kGpu); };
    EXPECT_EQ(use().bytes, std::size_t{1} << 20U);
    cuda::Buffer small(1000);
    outlives = cuda::Buffer(300'000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(outlives.data()) % 256, 0U);
    EXPECT_EQ(use().bytes_taken, 1024 + 300'032U);
    const cuda::Buffer large(900'000);
    EXPECT_NE(large.data(), nullptr);
    EXPECT_EQ(use().n_outside, 1);
    const std::byte* place = small.data();
    small = {};
    before = {};
    const cuda::Buffer again(500);
    EXPECT_EQ(again.data(), place);
    EXPECT_EQ(use().most_taken, 1024 + 300'032U);
  }
  const std::vector<std::byte> sent(300'000, std::byte{5});
  cuda::copy_to_device(stream(), outlives.data(), sent);
  std::vector<std::byte> got(sent.size());
  cuda::copy_to_host(stream(), got, outlives.data());
  EXPECT_EQ(got, sent);
}

// Of the host's pinned memory, too, but for what is asked for apart; what a stream stages, and
// brings back, comes out of it.
TEST_F(Gpu, ArenasHoldPinnedMemory) {
  const cuda::MemoryArena arena({.gpu = 0, .pinned = 8 << 20});
  const auto use = [&] { return arena.use(cuda::MemoryKind::kPinned); };
  EXPECT_EQ(arena.use(cuda::MemoryKind::kGpu).bytes, 0U);
  const auto apart = cuda::PinnedBuffer::apart(1000);
  EXPECT_EQ(use().bytes_taken, 0U);
  {
    const cuda::PinnedBuffer small(1000);
    EXPECT_EQ(use().bytes_taken, 1024U);
    const cuda::PinnedBuffer large(9 << 20);
    EXPECT_EQ(use().n_outside, 1);
    cuda::Stream other(0);
    const std::vector<std::byte> sent(300'000, std::byte{7});
    const std::byte* there = other.upload(sent);
    const std::byte* back = other.download(there, sent.size());
    EXPECT_EQ(std::vector<std::byte>(back, back + sent.size()), sent);
    EXPECT_EQ(use().bytes_taken, 1024U + kUploadStageBytes + 375'040);
  }
  EXPECT_EQ(use().bytes_taken, 0U);
}

TEST_F(Gpu, EventsOrderStreamsAndMeasure) {
  cuda::Stream other(0);
  cuda::Event begin;
  cuda::Event end;
  begin.record(stream());
  const cuda::Buffer buffer(1U << 20U);
  cuda::fill_with_zeros(stream(), buffer.data(), buffer.bytes());
  end.record(stream());
  other.wait_for(end);
  std::vector<std::byte> got(buffer.bytes(), std::byte{1});
  cuda::copy_to_host(other, got, buffer.data());
  EXPECT_EQ(got, std::vector<std::byte>(buffer.bytes()));
  EXPECT_TRUE(end.is_done());
  EXPECT_GE(end.milliseconds_since(begin), 0.0);
  stream().synchronise();
  EXPECT_TRUE(stream().is_idle());
}

}  // namespace
}  // namespace longhaul::test
