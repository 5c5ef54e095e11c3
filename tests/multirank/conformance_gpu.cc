// What communicators of ranks on GPUs must do with spans of GPU memory beyond what the other suites
// show (which run with their spans in GPU memory, too): collectives, the order of streams, and
// messages between ranks with and without GPUs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/device/device_memory.h"
#include "cluster/comm/gpu_communicator.h"
#include "cluster/comm/in_process.h"
#include "tests/multirank/support/gpu_values.h"
#include "tests/multirank/support/ranks.h"
#include "tests/multirank/support/ranks_on_gpus.h"
#include "tests/multirank/support/ring_shift.h"
#include "tests/support/random.h"

namespace longhaul::test {
namespace {

class GpuMemory : public RanksTest {};

using Floats = GpuValues<float>;

std::vector<float> values_of(int rank, std::size_t n) {
  Random random(base_seed() + static_cast<std::uint64_t>(rank));
  return random.normals(static_cast<std::int64_t>(n), std::pow(10.0, rank % 5));
}

std::vector<float> concatenated(int n_ranks, std::size_t n) {
  std::vector<float> all;
  for (int r = 0; r < n_ranks; ++r) {
    const auto part = values_of(r, n);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Both sides of kDirectReduceBytes; sizes that no rank count divides.
constexpr std::size_t kSizes[] = {1, 1000, 16'384, 50'001};

TEST_P(GpuMemory, SumsAreInRankOrder) {
  run([](Communicator& comm) {
    for (const std::size_t n : kSizes) {
      std::vector<float> want = values_of(0, n);
      for (int r = 1; r < comm.size(); ++r) {
        const auto values = values_of(r, n);
        for (std::size_t i = 0; i < n; ++i) want[i] += values[i];
      }
      const Floats sum(stream_of_this_rank(), values_of(comm.rank(), n));
      comm.all_reduce_sum(sum.span());
      EXPECT_TRUE(same_bits(sum.values(), want)) << "n = " << n << ", seed " << base_seed();
      const Floats values(stream_of_this_rank(), values_of(comm.rank(), n));
      std::vector<float> parts;
      comm.all_reduce_sum(values.span(), [&](std::span<const float> there) {
        parts.resize(there.size());
        copy_to_host(stream_of_this_rank().ref(), std::as_writable_bytes(std::span(parts)),
                     std::as_bytes(there).data());
      });
      for (std::size_t i = n; i < parts.size(); ++i) parts[i % n] += parts[i];
      parts.resize(n);
      EXPECT_TRUE(same_bits(parts, want)) << "n = " << n << ", seed " << base_seed();
    }
  });
}

TEST_P(GpuMemory, MaximaOfEveryType) {
  run([](Communicator& comm) {
    const GpuValues<double> doubles(stream_of_this_rank(), {1.0 * comm.rank(), -1.0 * comm.rank()});
    comm.all_reduce_max(doubles.span());
    EXPECT_EQ(doubles.values(), (std::vector<double>{1.0 * (comm.size() - 1), 0.0}));
    const GpuValues<std::int64_t> integers(stream_of_this_rank(), {comm.rank()});
    comm.all_reduce_sum(integers.span());
    EXPECT_EQ(integers.values().front(), comm.size() * (comm.size() - 1) / 2);
  });
}

TEST_P(GpuMemory, IsGathered) {
  run([](Communicator& comm) {
    for (const std::size_t n : kSizes) {
      const auto want = concatenated(comm.size(), n);
      const Floats mine(stream_of_this_rank(), values_of(comm.rank(), n));
      const Floats all(stream_of_this_rank(), std::vector<float>(want.size()));
      comm.all_gather(mine.bytes(), all.bytes());
      EXPECT_TRUE(same_bits(all.values(), want)) << "n = " << n;

      std::vector<float> start(want.size());
      const auto place = static_cast<std::ptrdiff_t>(n) * comm.rank();
      const auto own = values_of(comm.rank(), n);
      std::copy(own.begin(), own.end(), start.begin() + place);
      const Floats in_place(stream_of_this_rank(), start);
      comm.all_gather(in_place.bytes().subspan(static_cast<std::size_t>(place) * 4, n * 4),
                      in_place.bytes());
      EXPECT_TRUE(same_bits(in_place.values(), want)) << "in place, n = " << n;
    }
  });
}

TEST_P(GpuMemory, OfUnevenSizesIsGathered) {
  run([](Communicator& comm) {
    std::vector<std::size_t> sizes;
    std::vector<float> want;
    for (int r = 0; r < comm.size(); ++r) {
      const auto part = values_of(r, static_cast<std::size_t>(3 * r));
      sizes.push_back(part.size() * sizeof(float));
      want.insert(want.end(), part.begin(), part.end());
    }
    const Floats mine(stream_of_this_rank(),
                      values_of(comm.rank(), static_cast<std::size_t>(3 * comm.rank())));
    const Floats all(stream_of_this_rank(), std::vector<float>(want.size()));
    comm.all_gather(mine.bytes(), sizes, all.bytes());
    EXPECT_TRUE(same_bits(all.values(), want));
  });
}

TEST_P(GpuMemory, IsBroadcast) {
  run([](Communicator& comm) {
    for (int root = 0; root < comm.size(); ++root) {
      const Floats data(stream_of_this_rank(), values_of(comm.rank(), 777));
      comm.broadcast(data.bytes(), root);
      EXPECT_TRUE(same_bits(data.values(), values_of(root, 777))) << "root " << root;
    }
  });
}

// As in prefill, with two buffers: copies stand for the kernels that read the visiting train.
TEST_P(GpuMemory, TravelsRoundTheRingBehindQueuedReaders) {
  run([](Communicator& comm) {
    constexpr std::size_t kFloats = 70'000;
    cuda::Stream& stream = stream_of_this_rank();
    const std::vector<float> nothing(kFloats);
    const Floats own(stream, values_of(comm.rank(), kFloats));
    const Floats first(stream, nothing), second(stream, nothing);
    std::vector<Floats> read;
    for (int hop = 0; hop < comm.size(); ++hop) read.emplace_back(stream, nothing);
    const Floats* visiting = &own;
    for (int hop = 0; hop < comm.size(); ++hop) {
      const Floats& arriving = hop % 2 == 0 ? first : second;
      RingTransfer moving;
      if (hop + 1 < comm.size())
        moving = start_ring_shift(comm, visiting->bytes(), arriving.bytes());
      cuda::copy_on_device(stream, read[static_cast<std::size_t>(hop)].bytes().data(),
                           visiting->bytes().data(), kFloats * sizeof(float));
      moving.wait();
      visiting = &arriving;
    }
    for (int hop = 0; hop < comm.size(); ++hop) {
      const int origin = (comm.rank() - hop + comm.size()) % comm.size();
      EXPECT_TRUE(
          same_bits(read[static_cast<std::size_t>(hop)].values(), values_of(origin, kFloats)))
          << "hop " << hop;
    }
  });
}

TEST_P(GpuMemory, KeepsItsPlaceAmongMessagesOfHostMemory) {
  run([](Communicator& comm) {
    cuda::Stream& stream = stream_of_this_rank();
    const std::vector<float> host = {1.0F};
    const Floats device(stream, {2.0F});
    std::vector<float> got_host(1);
    const Floats got_device(stream, {0.0F});
    for (const bool host_first : {true, false}) {
      const auto out = [&](bool of_host) {
        return of_host ? std::as_bytes(std::span(host))
                       : std::span<const std::byte>(device.bytes());
      };
      const auto in = [&](bool of_host) {
        return of_host ? std::as_writable_bytes(std::span(got_host)) : got_device.bytes();
      };
      RingTransfer one = start_ring_shift(comm, out(host_first), in(host_first));
      RingTransfer two = start_ring_shift(comm, out(!host_first), in(!host_first));
      two.wait();
      one.wait();
      EXPECT_EQ(got_host.front(), 1.0F);
      EXPECT_EQ(got_device.values().front(), 2.0F);
    }
  });
}

TEST_P(GpuMemory, IsSentAlthoughTheSenderGoesOnToAnotherCollective) {
  run([](Communicator& comm) {
    cuda::Stream& stream = stream_of_this_rank();
    const Floats out(stream, values_of(comm.rank(), 5000));
    const Floats in(stream, std::vector<float>(5000));
    Transfer send = comm.start_send(comm.next(), {Traffic::kHidden}, out.bytes());
    comm.start_receive(comm.previous(), {Traffic::kHidden}, in.bytes()).wait();
    const auto part = comm.split(0, 0);
    part->barrier();
    send.wait();
    EXPECT_TRUE(same_bits(in.values(), values_of(comm.previous(), 5000)));
  });
}

// Every other rank has no GPU and uses the host communicator itself.
TEST_P(GpuMemory, IsExchangedWithRanksWithoutGpus) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda::why_no_device();
  run_in_process(GetParam(), [](Communicator& host) {
    constexpr std::size_t kFloats = 20'000;
    const auto mine = values_of(host.rank(), kFloats);
    std::vector<float> sum = mine;
    std::vector<float> got(kFloats);
    if (host.rank() % 2 == 1) {
      ring_shift(host, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(got)));
      host.all_reduce_sum(sum);
    } else {
      cuda::Stream stream(0);
      const auto comm = make_gpu_communicator(host, {.stream = &stream});
      const Floats out(stream, mine), in(stream, got);
      ring_shift(*comm, out.bytes(), in.bytes());
      got = in.values();
      comm->all_reduce_sum(out.span());
      sum = out.values();
    }
    EXPECT_TRUE(same_bits(got, values_of(host.previous(), kFloats)));
    std::vector<float> want = values_of(0, kFloats);
    for (int r = 1; r < host.size(); ++r) {
      const auto values = values_of(r, kFloats);
      for (std::size_t i = 0; i < kFloats; ++i) want[i] += values[i];
    }
    EXPECT_TRUE(same_bits(sum, want));
  });
}

LONGHAUL_INSTANTIATE_RANKS(GpuMemory);

}  // namespace
}  // namespace longhaul::test
