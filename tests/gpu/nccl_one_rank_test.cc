// NCCL itself with one rank, which sends to itself: that the library opens, makes communicators
// without blocking, carries a group of transfers, ends in peace, and again. What takes two GPUs is
// not shown. Skips visibly where there is no GPU or no libnccl.so.2.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "base/error.h"
#include "cluster/comm/nccl_channel.h"

namespace longhaul::test {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr std::chrono::seconds kLongest{30};

// Until it is so; false when that takes too long.
bool comes_true(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + kLongest;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

TEST(NcclWithOneRank, SendsToItselfAndEndsAndBeginsAgain) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda::why_no_device();
  std::string why;
  const auto nccl = open_nccl("libnccl.so.2", why);
  if (!nccl) GTEST_SKIP() << "no NCCL: " << why;
  cuda::Stream stream(0);
  std::vector<std::byte> sent(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) sent[i] = static_cast<std::byte>(i * 31 % 251);
  const cuda::Buffer from(kBytes);
  const cuda::Buffer to(kBytes);
  const cuda::Buffer gathered(kBytes);
  cuda::copy_to_device(stream, from.data(), sent);
  for (int round = 0; round < 3; ++round) {
    cuda::fill_with_zeros(stream, to.data(), kBytes);
    cuda::fill_with_zeros(stream, gathered.data(), kBytes);
    NcclId id;
    ASSERT_EQ(nccl->GetUniqueId(&id), ncclSuccess);
    NcclChannel channel(nccl, /*n_ranks=*/1, /*rank=*/0, id);
    ASSERT_TRUE(comes_true([&] { return channel.is_ready(); })) << "round " << round;
    const NcclGroup group{.channel = &channel,
                          .what = "1 MiB to itself",
                          .parts = {{0, true, from.data(), kBytes}, {0, false, to.data(), kBytes}}};
    group.queue(stream.native());
    const NcclGather gather{
        .channel = &channel, .mine = to.data(), .all = gathered.data(), .n_bytes = kBytes};
    gather.queue(stream.native());
    ASSERT_TRUE(comes_true([&] { return stream.is_idle(); })) << "round " << round;
    std::vector<std::byte> received(kBytes);
    cuda::copy_to_host(stream, received, gathered.data());
    EXPECT_EQ(std::memcmp(received.data(), sent.data(), kBytes), 0) << "round " << round;
    if (round == 1) {
      channel.abort();  // instead of the peaceful end; the next round begins all the same
      continue;
    }
    channel.start_finish();
    EXPECT_TRUE(comes_true([&] { return channel.finished(); })) << "round " << round;
  }
}

// Nobody sends: the channel is ended from outside, and that returns.
TEST(NcclWithOneRank, IsAbortedWhileItWaits) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda::why_no_device();
  std::string why;
  const auto nccl = open_nccl("libnccl.so.2", why);
  if (!nccl) GTEST_SKIP() << "no NCCL: " << why;
  cuda::Stream stream(0);
  const cuda::Buffer to(kBytes);
  NcclId id;
  ASSERT_EQ(nccl->GetUniqueId(&id), ncclSuccess);
  NcclChannel channel(nccl, 1, 0, id);
  ASSERT_TRUE(comes_true([&] { return channel.is_ready(); }));
  try {
    channel.call("a message that nobody sends", stream.native(),
                 [&](ncclComm_t comm, cudaStream_t queue) {
                   return nccl->Recv(to.data(), kBytes, ncclInt8, 0, comm, queue);
                 });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (std::chrono::steady_clock::now() < end) static_cast<void>(channel.is_ready());
    EXPECT_FALSE(stream.is_idle());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNccl);  // a version that sees it cannot come
  }
  channel.abort();
}

}  // namespace
}  // namespace longhaul::test
