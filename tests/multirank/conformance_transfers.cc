// What every communicator's point-to-point transfers must do, above all round the ring.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/multirank/support/ranks.h"
#include "tests/multirank/support/ring_shift.h"

namespace longhaul::test {
namespace {

class Transfers : public RanksTest {};

// Recognisable bytes: which rank made them, in which round. Made by doubling: byte loops are slow
// under the thread sanitizer.
std::vector<std::byte> pattern(int rank, int round, std::size_t n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  const std::size_t seed =
      static_cast<std::size_t>(rank) * 31 + static_cast<std::size_t>(round) * 7;
  std::size_t made = std::min<std::size_t>(n_bytes, 251);
  for (std::size_t i = 0; i < made; ++i) bytes[i] = static_cast<std::byte>((seed + i) & 0xFF);
  while (made < n_bytes) {
    const std::size_t n = std::min(made, n_bytes - made);
    std::memcpy(bytes.data() + made, bytes.data(), n);
    bytes[made] = static_cast<std::byte>(made / 251 & 0xFF);  // tells the copies apart
    made += n;
  }
  return bytes;
}

// By memcmp, as above; and no printing of megabytes.
bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

TEST_P(Transfers, RingShiftsBringEveryRanksDataToAll) {
  run([](Communicator& comm) {
    for (const std::size_t n :
         {std::size_t{0}, std::size_t{1}, std::size_t{5000}, std::size_t{200'000}}) {
      std::vector<std::byte> held = pattern(comm.rank(), 0, n);
      std::vector<std::byte> arriving(n);
      for (int step = 1; step <= comm.size(); ++step) {
        ring_shift(comm, held, arriving);
        std::swap(held, arriving);
        const int origin = (comm.rank() - step + comm.size()) % comm.size();
        EXPECT_TRUE(same(held, pattern(origin, 0, n))) << "step " << step << ", " << n << " bytes";
      }
    }
  });
}

// Two messages to the next rank and one to every other one, some empty, hop after hop, of which
// several are under way.
TEST_P(Transfers, ExchangesOfManyParts) {
  const auto n_bytes = [](int from, int to) {
    return static_cast<std::size_t>((from * 3 + to) % 4) * 11'000;
  };
  run([&](Communicator& comm) {
    comm.prepare_exchanges();
    const int n = comm.size();
    constexpr int kHops = 3;
    std::vector<std::vector<std::byte>> sent, got;
    sent.reserve(static_cast<std::size_t>(kHops * (n + 1)));  // parts point to them
    got.reserve(static_cast<std::size_t>(kHops * (n + 1)));
    std::vector<Exchange> exchanges;
    for (int hop = 0; hop < kHops; ++hop) {
      std::vector<Incoming> in;
      std::vector<Outgoing> out;
      for (int i = 1; i <= n && n > 1; ++i) {
        const int to = (comm.rank() + (i == n ? 1 : i)) % n;
        const int from = (comm.rank() - (i == n ? 1 : i) + n) % n;
        if (to == comm.rank()) continue;
        sent.push_back(pattern(comm.rank(), hop + i, n_bytes(comm.rank(), to)));
        got.emplace_back(n_bytes(from, comm.rank()));
        out.push_back({to, sent.back()});
        in.push_back({from, got.back()});
      }
      exchanges.push_back(comm.start_exchange({Traffic::kHalo}, in, out));
    }
    for (Exchange& exchange : exchanges) exchange.wait();
    std::size_t at = 0;
    for (int hop = 0; hop < kHops; ++hop) {
      for (int i = 1; i <= n && n > 1; ++i) {
        const int from = (comm.rank() - (i == n ? 1 : i) + n) % n;
        if (from == comm.rank()) continue;
        EXPECT_TRUE(same(got[at++], pattern(from, hop + i, n_bytes(from, comm.rank()))))
            << "hop " << hop << ", part " << i;
      }
    }
  });
}

TEST_P(Transfers, RingShiftOfUnevenSizes) {
  const auto n_bytes_of = [](int rank) { return static_cast<std::size_t>(rank % 3) * 40'000; };
  run([&](Communicator& comm) {
    std::vector<std::byte> held = pattern(comm.rank(), 1, n_bytes_of(comm.rank()));
    for (int step = 1; step < comm.size(); ++step) {
      const int origin = (comm.rank() - step + comm.size()) % comm.size();
      std::vector<std::byte> arriving(n_bytes_of(origin));
      ring_shift(comm, held, arriving);
      held = std::move(arriving);
      EXPECT_TRUE(same(held, pattern(origin, 1, n_bytes_of(origin))));
    }
  });
}

TEST_P(Transfers, DoubleBuffersOverlapWithCompute) {
  // As in prefill: attend to what visits while the next arrives, poking the transfers meanwhile.
  run([](Communicator& comm) {
    constexpr std::size_t kBytes = 300'000;
    std::vector<std::byte> visiting = pattern(comm.rank(), 2, kBytes);
    std::vector<std::byte> arriving(kBytes);
    std::int64_t sum = 0;
    for (int step = 0; step < comm.size(); ++step) {
      RingTransfer transfer = start_ring_shift(comm, visiting, arriving, {Traffic::kKeys, 1});
      for (std::size_t i = 0; i < kBytes; ++i) {
        sum += static_cast<std::int64_t>(visiting[i]);
        if (i % 50'000 == 0) comm.progress();
      }
      transfer.wait();
      std::swap(visiting, arriving);
    }
    std::int64_t want = 0;
    for (int r = 0; r < comm.size(); ++r) {
      for (const std::byte b : pattern(r, 2, kBytes)) want += static_cast<std::int64_t>(b);
    }
    EXPECT_EQ(sum, want);
  });
}

TEST_P(Transfers, ManyOutstandingMessagesMatchInOrder) {
  run([](Communicator& comm) {
    constexpr int kMessages = 60;
    std::vector<std::vector<std::byte>> out;
    std::vector<std::vector<std::byte>> in;
    std::vector<Transfer> requests;
    for (int i = 0; i < kMessages; ++i) {  // sizes below and above what is kept or sent eagerly
      const std::size_t n = static_cast<std::size_t>(i) * 997;
      out.push_back(pattern(comm.rank(), i, n));
      in.emplace_back(n);
    }
    for (auto& data : out) requests.push_back(comm.start_send(comm.next(), {Traffic::kHalo}, data));
    for (auto& data : in) {
      requests.push_back(comm.start_receive(comm.previous(), {Traffic::kHalo}, data));
    }
    for (Transfer& request : requests) request.wait();
    for (int i = 0; i < kMessages; ++i) {
      const auto& got = in[static_cast<std::size_t>(i)];
      EXPECT_TRUE(same(got, pattern(comm.previous(), i, got.size()))) << "message " << i;
    }
  });
}

TEST_P(Transfers, TagsAndStreamsKeepMessagesApart) {
  run([](Communicator& comm) {
    const std::vector<Tag> tags = {{Traffic::kKeys, 0},
                                   {Traffic::kKeys, 1},
                                   {Traffic::kQueries, 0},
                                   {Traffic::kHidden, kStreams - 1}};
    std::vector<std::vector<std::byte>> out;
    std::vector<std::vector<std::byte>> in(tags.size(), std::vector<std::byte>(100));
    std::vector<Transfer> requests;
    for (std::size_t i = 0; i < tags.size(); ++i)
      out.push_back(pattern(comm.rank(), static_cast<int>(i), 100));
    for (std::size_t i = 0; i < tags.size(); ++i)
      requests.push_back(comm.start_send(comm.next(), tags[i], out[i]));
    for (std::size_t i = tags.size(); i-- > 0;) {  // received in the opposite order
      requests.push_back(comm.start_receive(comm.previous(), tags[i], in[i]));
    }
    for (Transfer& request : requests) request.wait();
    for (std::size_t i = 0; i < tags.size(); ++i) {
      EXPECT_TRUE(same(in[i], pattern(comm.previous(), static_cast<int>(i), 100))) << "tag " << i;
    }
  });
}

TEST_P(Transfers, ARankMaySendToItself) {
  run([](Communicator& comm) {
    for (const std::size_t n : {std::size_t{10}, std::size_t{100'000}}) {
      const auto data = pattern(comm.rank(), 3, n);
      std::vector<std::byte> got(n);
      Transfer send = comm.start_send(comm.rank(), {Traffic::kOther}, data);
      Transfer receive = comm.start_receive(comm.rank(), {Traffic::kOther}, got);
      receive.wait();
      send.wait();
      EXPECT_TRUE(same(got, data));
    }
    EXPECT_EQ(comm.traffic()[Traffic::kOther], TrafficCount{});
  });
}

TEST_P(Transfers, TestCompletesWithoutWait) {
  run([](Communicator& comm) {
    const auto data = pattern(comm.rank(), 4, 100'000);
    std::vector<std::byte> got(data.size());
    RingTransfer transfer = start_ring_shift(comm, data, got);
    const Deadline deadline = deadline_in(comm.default_deadline());
    while (!transfer.test() && Clock::now() < deadline) comm.progress();
    EXPECT_FALSE(transfer.receive.pending());
    EXPECT_FALSE(transfer.send.pending());
    EXPECT_TRUE(same(got, pattern(comm.previous(), 4, data.size())));
  });
}

TEST_P(Transfers, LargeMessage) {
  run([](Communicator& comm) {
    const std::size_t n_bytes = (comm.size() <= 4 ? std::size_t{64} : std::size_t{4}) << 20;
    const auto data = pattern(comm.rank(), 5, n_bytes);
    std::vector<std::byte> got(n_bytes);
    ring_shift(comm, data, got);
    EXPECT_TRUE(same(got, pattern(comm.previous(), 5, n_bytes)));
  });
}

TEST_P(Transfers, MessagesInPieces) {
  CommunicatorConfig config = test_communicator_config();
  config.mpi_piece_bytes = 1000;  // as 1 GiB is to a message of many GiB
  run(
      [](Communicator& comm) {
        for (const std::size_t n : {std::size_t{0}, std::size_t{999}, std::size_t{1000},
                                    std::size_t{1001}, std::size_t{123'456}}) {
          const auto data = pattern(comm.rank(), 6, n);
          std::vector<std::byte> got(n);
          ring_shift(comm, data, got);
          EXPECT_TRUE(same(got, pattern(comm.previous(), 6, n))) << n << " bytes";
        }
      },
      config);
}

TEST_P(Transfers, RequestsMove) {
  run([](Communicator& comm) {
    const auto data = pattern(comm.rank(), 7, 50);
    std::vector<std::byte> got(50);
    Transfer receive;
    EXPECT_FALSE(receive.pending());
    EXPECT_TRUE(receive.test());
    receive = comm.start_receive(comm.previous(), {Traffic::kSink}, got);
    Transfer moved = std::move(receive);
    Transfer send = comm.start_send(comm.next(), {Traffic::kSink}, data);
    moved.wait();
    send.wait();
    EXPECT_TRUE(same(got, pattern(comm.previous(), 7, 50)));
  });
}

TEST_P(Transfers, RefuseRanksAndStreamsThatDoNotExist) {
  run([](Communicator& comm) {
    std::vector<std::byte> data(4);
    EXPECT_THROW(comm.start_send(comm.size(), {Traffic::kOther}, data), Error);
    EXPECT_THROW(comm.start_receive(-1, {Traffic::kOther}, data), Error);
    EXPECT_THROW(comm.start_send(0, {Traffic::kOther, kStreams}, data), Error);
    EXPECT_FALSE(comm.broken());
  });
}

LONGHAUL_INSTANTIATE_RANKS(Transfers);

}  // namespace
}  // namespace longhaul::test
