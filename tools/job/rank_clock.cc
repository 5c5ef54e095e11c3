#include "tools/job/rank_clock.h"

#include <chrono>
#include <limits>
#include <span>

#include "base/clock.h"
#include "base/event_log.h"

namespace longhaul {
namespace {

constexpr int kQuestions = 8;  // the one that came back soonest counts
constexpr Tag kAsk{Traffic::kHandshake, 0};
constexpr Tag kTell{Traffic::kHandshake, 1};

std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

std::span<std::byte> bytes_of(std::int64_t& number) {
  return std::as_writable_bytes(std::span(&number, 1));
}

void tell(Communicator& comm) {
  for (int rank = 1; rank < comm.size(); ++rank) {
    for (int i = 0; i < kQuestions; ++i) {
      std::int64_t number = 0;
      comm.start_receive(rank, kAsk, bytes_of(number)).wait();
      number = event_clock_ns();
      comm.start_send(rank, kTell, bytes_of(number)).wait();
    }
  }
}

}  // namespace

RankClock find_rank_clock(Communicator& comm) {
  if (comm.rank() == 0) {
    tell(comm);
    return {.offset_ns = event_clock_ns() - monotonic_ns(), .round_trip_ns = 0};
  }
  RankClock best{.offset_ns = 0, .round_trip_ns = std::numeric_limits<std::int64_t>::max()};
  for (int i = 0; i < kQuestions; ++i) {
    std::int64_t number = i;
    const std::int64_t before = monotonic_ns();
    Transfer answer = comm.start_receive(0, kTell, bytes_of(number));
    std::int64_t question = i;
    comm.start_send(0, kAsk, bytes_of(question)).wait();
    answer.wait();
    const std::int64_t after = monotonic_ns();
    if (after - before < best.round_trip_ns)
      best = {.offset_ns = number - (before + (after - before) / 2),
              .round_trip_ns = after - before};
  }
  return best;
}

}  // namespace longhaul
