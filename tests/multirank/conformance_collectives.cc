// What every communicator's collectives must do: the same bodies as threads and under mpirun.
// Sums use small integers in floats, so they are exact.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "tests/multirank/support/ranks.h"
#include "tests/support/random.h"

namespace longhaul::test {
namespace {

class Collectives : public RanksTest {};

// Sizes around 0 and 1, not divisible by rank counts, and on both sides of kDirectReduceBytes.
constexpr std::size_t kSizes[] = {0, 1, 7, 1000, 16384, 16385, 50'001};

template <typename T>
std::vector<T> integers_of(int rank, std::size_t n) {
  std::vector<T> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] =
        static_cast<T>(static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101) - 50);
  }
  return values;
}

// What a reduction over all ranks must give: folded by rank.
template <typename T, typename Values, typename Combine>
std::vector<T> fold_by_rank(int n_ranks, Values values_of, Combine combine) {
  std::vector<T> result = values_of(0);
  for (int r = 1; r < n_ranks; ++r) {
    const std::vector<T> values = values_of(r);
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = combine(result[i], values[i]);
  }
  return result;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Of n values, in the order of the parts.
std::vector<float> sum_of_parts(std::span<const float> parts, std::size_t n) {
  std::vector<float> sum(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(n));
  for (std::size_t i = n; i < parts.size(); ++i) sum[i % n] += parts[i];
  return sum;
}

template <typename T>
void check_reductions(Communicator& comm) {
  for (const std::size_t n : kSizes) {
    const auto values_of = [n](int r) { return integers_of<T>(r, n); };
    std::vector<T> sum = values_of(comm.rank());
    comm.all_reduce_sum(sum);
    EXPECT_EQ(sum, fold_by_rank<T>(comm.size(), values_of, [](T a, T b) { return a + b; }))
        << "n = " << n;
    std::vector<T> largest = values_of(comm.rank());
    comm.all_reduce_max(largest);
    EXPECT_EQ(largest,
              fold_by_rank<T>(comm.size(), values_of, [](T a, T b) { return a < b ? b : a; }))
        << "n = " << n;
  }
}

TEST_P(Collectives, AllReduceOfFloats) { run(check_reductions<float>); }
TEST_P(Collectives, AllReduceOfDoubles) { run(check_reductions<double>); }
TEST_P(Collectives, AllReduceOfIntegers) { run(check_reductions<std::int64_t>); }

TEST_P(Collectives, AllReduceSumsInRankOrder) {
  // Values whose sum depends on the order: only one order gives these bits, on all ranks.
  run([](Communicator& comm) {
    for (const std::size_t n : {std::size_t{1000}, std::size_t{60'000}}) {
      const auto values_of = [n](int r) {
        Random random(base_seed() + static_cast<std::uint64_t>(r));
        return random.normals(static_cast<std::int64_t>(n), std::pow(10.0, r % 5));
      };
      std::vector<float> sum = values_of(comm.rank());
      comm.all_reduce_sum(sum);
      const auto want =
          fold_by_rank<float>(comm.size(), values_of, [](float a, float b) { return a + b; });
      EXPECT_TRUE(same_bits(sum, want)) << "n = " << n << ", seed " << base_seed();
      std::vector<float> values = values_of(comm.rank());
      std::vector<float> added;
      comm.all_reduce_sum(values,
                          [&](std::span<const float> parts) { added = sum_of_parts(parts, n); });
      EXPECT_TRUE(same_bits(added, want)) << "n = " << n << ", seed " << base_seed();
    }
  });
}

TEST_P(Collectives, MaxKeepsNanAndInfinity) {
  run([](Communicator& comm) {
    const float infinity = std::numeric_limits<float>::infinity();
    const bool last = comm.rank() == comm.size() - 1;
    std::vector<float> values = {last ? std::nanf("") : 1.0F, last ? -infinity : -infinity,
                                 last ? infinity : 3.0F};
    comm.all_reduce_max(values);
    EXPECT_TRUE(std::isnan(values[0]));
    EXPECT_EQ(values[1], -infinity);
    EXPECT_EQ(values[2], infinity);
  });
}

TEST_P(Collectives, BarrierWaitsForEveryRank) {
  // Whoever leaves the n-th barrier has the n-th message of every rank on its way: it was sent
  // before that rank entered.
  run([](Communicator& comm) {
    for (int round = 0; round < 20; ++round) {
      const std::size_t n = static_cast<std::size_t>(comm.size());
      std::vector<int> got(n, -1);
      std::vector<Transfer> requests;
      for (int r = 0; r < comm.size(); ++r) {
        auto& slot = got[static_cast<std::size_t>(r)];
        requests.push_back(
            comm.start_receive(r, {Traffic::kOther}, std::as_writable_bytes(std::span(&slot, 1))));
      }
      for (int r = 0; r < comm.size(); ++r) {
        requests.push_back(
            comm.start_send(r, {Traffic::kOther}, std::as_bytes(std::span(&round, 1))));
      }
      comm.barrier();
      for (Transfer& request : requests) request.wait();
      EXPECT_EQ(got, std::vector<int>(n, round));
    }
  });
}

TEST_P(Collectives, BroadcastFromEveryRoot) {
  run([](Communicator& comm) {
    for (int root = 0; root < comm.size(); ++root) {
      for (const std::size_t n : kSizes) {
        std::vector<float> data = integers_of<float>(comm.rank(), n);
        comm.broadcast(std::as_writable_bytes(std::span(data)), root);
        EXPECT_EQ(data, integers_of<float>(root, n)) << "root " << root << ", n = " << n;
      }
      const std::string mine = "plan of rank " + std::to_string(comm.rank());
      EXPECT_EQ(comm.broadcast_text(mine, root), "plan of rank " + std::to_string(root));
      EXPECT_EQ(comm.broadcast_text("", root), "");
    }
  });
}

TEST_P(Collectives, AllGatherOfEqualSizes) {
  run([](Communicator& comm) {
    for (const std::size_t n : kSizes) {
      std::vector<float> want;
      for (int r = 0; r < comm.size(); ++r) {
        const auto part = integers_of<float>(r, n);
        want.insert(want.end(), part.begin(), part.end());
      }
      const auto mine = integers_of<float>(comm.rank(), n);
      std::vector<float> all(want.size());
      comm.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
      EXPECT_EQ(all, want) << "n = " << n;
      // In place: this rank's part stands where it belongs already.
      std::vector<float> in_place(want.size());
      const auto own = std::span(in_place).subspan(static_cast<std::size_t>(comm.rank()) * n, n);
      std::copy(mine.begin(), mine.end(), own.begin());
      comm.all_gather(std::as_bytes(own), std::as_writable_bytes(std::span(in_place)));
      EXPECT_EQ(in_place, want) << "n = " << n;
    }
  });
}

// Rank r has 3r bytes, so rank 0 has none; unlike each other.
std::vector<std::byte> uneven_bytes(int rank) {
  return std::vector<std::byte>(static_cast<std::size_t>(3 * rank),
                                static_cast<std::byte>(rank + 1));
}

TEST_P(Collectives, AllGatherOfUnevenSizes) {
  run([](Communicator& comm) {
    const auto mine = uneven_bytes(comm.rank());
    std::vector<std::size_t> sizes;
    std::vector<std::byte> want;
    for (int r = 0; r < comm.size(); ++r) {
      const auto part = uneven_bytes(r);
      sizes.push_back(part.size());
      want.insert(want.end(), part.begin(), part.end());
    }
    std::vector<std::byte> all(want.size());
    comm.all_gather(mine, sizes, all);
    EXPECT_EQ(all, want);
    const auto varying = comm.all_gather_varying(mine);
    EXPECT_EQ(varying.size(), sizes.size());
    for (int r = 0; r < comm.size(); ++r) {
      EXPECT_EQ(varying[static_cast<std::size_t>(r)], uneven_bytes(r)) << "rank " << r;
    }
  });
}

// What comes with the sizes, and what does not fit there.
TEST_P(Collectives, AllGatherOfSizesThatOnlyTheirRanksKnow) {
  run([](Communicator& comm) {
    const std::size_t most = Communicator::kVaryingFirstBytes;
    const std::vector<std::vector<std::size_t>> sizes = {
        {0}, {most}, {most + 1}, {0, 1, most}, {most - 1, most + 1, 0, 5000}};
    for (const auto& of_ranks : sizes) {
      const auto bytes_of_rank = [&](int r) {
        const auto rank = static_cast<std::size_t>(r);
        std::vector<std::byte> bytes(of_ranks[rank % of_ranks.size()]);
        for (std::size_t i = 0; i < bytes.size(); ++i)
          bytes[i] = static_cast<std::byte>(i + 31 * rank);
        return bytes;
      };
      const auto all = comm.all_gather_varying(bytes_of_rank(comm.rank()));
      ASSERT_EQ(all.size(), static_cast<std::size_t>(comm.size()));
      for (int r = 0; r < comm.size(); ++r)
        EXPECT_EQ(all[static_cast<std::size_t>(r)], bytes_of_rank(r)) << "rank " << r;
    }
  });
}

TEST_P(Collectives, RefuseBuffersThatDoNotFit) {
  run([](Communicator& comm) {
    std::vector<std::byte> too_large(static_cast<std::size_t>(comm.size()) * 4 + 1);
    const std::vector<std::byte> mine(4);
    EXPECT_THROW(comm.all_gather(mine, too_large), Error);
    EXPECT_THROW(comm.broadcast(too_large, comm.size()), Error);
    EXPECT_FALSE(comm.broken()) << "nothing was sent, so nothing is broken";
    comm.barrier();
  });
}

TEST_P(Collectives, RefusalsAreAgreedUpon) {
  run([](Communicator& comm) { EXPECT_TRUE(all_agree(comm, true)); });
  run([](Communicator& comm) { EXPECT_FALSE(all_agree(comm, comm.rank() != comm.size() - 1)); });
}

LONGHAUL_INSTANTIATE_RANKS(Collectives);

}  // namespace
}  // namespace longhaul::test
