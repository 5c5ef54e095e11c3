// find_reach over plain MPI: everybody greets rank 0, which answers with the list of those who then
// try all pairs; what these have heard goes to rank 0, which tells all whether the job can go on.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "cluster/comm/mpi_check.h"
#include "cluster/comm/reach.h"

namespace longhaul {
namespace {

enum MailTag : int { kGreeting = 1, kRoster, kPing, kHeard, kVerdict };
// In rosters and verdicts.
constexpr char kLooksOn = 0;
constexpr char kTries = 1;
constexpr char kGivesUp = 2;

using GreetingText = std::array<char, 2048>;

// Everything that MPI may still write to or read from when the others do not answer.
struct Mail {
  explicit Mail(std::size_t size)
      : greetings(size),
        roster(size),
        pings_in(size),
        heard(size, std::vector<char>(size)),
        verdict(size) {}
  GreetingText mine{};
  std::vector<GreetingText> greetings;
  std::vector<char> roster;
  std::vector<char> pings_in;
  char ping_out = 1;
  std::vector<std::vector<char>> heard;  // on rank 0 those of all, else in the own row
  std::vector<char> verdict;
  std::vector<MPI_Request> requests;
};

class Meeting {
 public:
  Meeting(const RankPlace& mine, std::chrono::seconds limit) : place_(mine), limit_(limit) {
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    mail_ = std::make_unique<Mail>(static_cast<std::size_t>(size_));
  }
  // Mail that is under way keeps its memory.
  ~Meeting() {
    if (!done_) static_cast<void>(mail_.release());
  }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  Reach hold() {
    if (size_ == 1) {
      done_ = true;
      return {{place_}, {}, {0}, {{1}}};
    }
    return rank_ == 0 ? lead() : follow();
  }

 private:
  void send(std::span<char> data, int to, MailTag tag) {
    MPI_Request& request = mail_->requests.emplace_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_CHAR, to, tag,
                        MPI_COMM_WORLD, &request),
              "MPI_Isend");
  }
  MPI_Request receive(std::span<char> data, int from, MailTag tag) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(data.data(), static_cast<int>(data.size()), MPI_CHAR, from, tag,
                        MPI_COMM_WORLD, &request),
              "MPI_Irecv");
    return request;
  }
  // Until all have come, or the limit; those that have not are no MPI_REQUEST_NULL.
  bool wait(std::span<MPI_Request> requests) {
    const Deadline deadline = deadline_in(limit_);
    for (;;) {
      bool all = true;
      for (MPI_Request& request : requests) {
        int done = 1;
        check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        all = all && done != 0;
      }
      if (all || Clock::now() > deadline) return all;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  void wait_for_rank_0(MPI_Request request) {
    if (!wait(std::span(&request, 1)))
      throw Error(ErrorCode::kIo, explain_silence(rank_, place_, limit_));
  }
  // To all but `without`, what is their element of `data`.
  void tell_all(std::vector<char>& data, MailTag tag, bool whole, const std::vector<int>& without) {
    for (int rank = 1; rank < size_; ++rank) {
      if (std::find(without.begin(), without.end(), rank) != without.end()) continue;
      send(whole ? std::span(data) : std::span(data).subspan(static_cast<std::size_t>(rank), 1),
           rank, tag);
    }
  }

  // The host's first ranks greet each other; `heard` becomes 1 for those that were heard.
  void try_pairs(std::span<char> heard) {
    std::vector<MPI_Request> pings;
    std::vector<std::size_t> from;
    for (std::size_t peer = 0; peer < mail_->roster.size(); ++peer) {
      if (mail_->roster[peer] != kTries || static_cast<int>(peer) == rank_) continue;
      pings.push_back(
          receive(std::span(mail_->pings_in).subspan(peer, 1), static_cast<int>(peer), kPing));
      from.push_back(peer);
      send(std::span(&mail_->ping_out, 1), static_cast<int>(peer), kPing);
    }
    wait(pings);
    heard[static_cast<std::size_t>(rank_)] = 1;
    for (std::size_t i = 0; i < pings.size(); ++i) heard[from[i]] = pings[i] == MPI_REQUEST_NULL;
  }

  Reach lead() {
    Reach reach;
    std::vector<MPI_Request> waiting(static_cast<std::size_t>(size_), MPI_REQUEST_NULL);
    for (int rank = 1; rank < size_; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      waiting[at] = receive(mail_->greetings[at], rank, kGreeting);
    }
    wait(waiting);
    reach.places.resize(waiting.size());
    reach.places[0] = place_;
    for (int rank = 1; rank < size_; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (waiting[at] == MPI_REQUEST_NULL) {
        reach.places[at] = decode_place(mail_->greetings[at].data());
      } else {
        reach.silent.push_back(rank);
      }
    }
    if (!reach.silent.empty()) {
      std::fill(mail_->roster.begin(), mail_->roster.end(), kGivesUp);
      tell_all(mail_->roster, kRoster, true, reach.silent);
      flush();
      return reach;
    }
    reach.first_ranks = first_ranks_of(reach.places);
    for (const int rank : reach.first_ranks) mail_->roster[static_cast<std::size_t>(rank)] = kTries;
    tell_all(mail_->roster, kRoster, true, {});
    std::vector<MPI_Request> reports;
    for (const int rank : reach.first_ranks) {
      if (rank != 0)
        reports.push_back(receive(mail_->heard[static_cast<std::size_t>(rank)], rank, kHeard));
    }
    try_pairs(mail_->heard[0]);
    limit_ *= 2;    // the others have only begun to wait for each other
    wait(reports);  // one that does not come counts as having heard nobody
    for (const int to : reach.first_ranks) {
      std::vector<char>& row = reach.heard.emplace_back();
      for (const int from : reach.first_ranks)
        row.push_back(mail_->heard[static_cast<std::size_t>(to)][static_cast<std::size_t>(from)]);
    }
    std::fill(mail_->verdict.begin(), mail_->verdict.end(), reach.complete() ? kTries : kGivesUp);
    tell_all(mail_->verdict, kVerdict, false, {});
    done_ = reach.complete() && wait(mail_->requests);
    if (!done_) flush();
    return reach;
  }

  Reach follow() {
    const std::string text = encode(place_, mail_->mine.size() - 1);
    std::memcpy(mail_->mine.data(), text.data(), text.size());
    send(mail_->mine, 0, kGreeting);
    wait_for_rank_0(receive(mail_->roster, 0, kRoster));
    const auto self = static_cast<std::size_t>(rank_);
    if (mail_->roster[self] == kGivesUp) return {{}, {0}, {}, {}};
    if (mail_->roster[self] == kTries) {
      try_pairs(mail_->heard[self]);
      send(mail_->heard[self], 0, kHeard);
    }
    // The slowest pair takes its whole limit before rank 0 knows.
    limit_ *= 3;
    wait_for_rank_0(receive(std::span(mail_->verdict).first(1), 0, kVerdict));
    if (mail_->verdict[0] == kGivesUp) return {{}, {0}, {}, {}};
    done_ = wait(mail_->requests);
    return {};
  }

  // Gives what was sent a moment to leave.
  void flush() {
    limit_ = std::chrono::seconds(1);
    wait(mail_->requests);
  }

  const RankPlace& place_;
  std::chrono::seconds limit_;
  int rank_ = 0;
  int size_ = 1;
  std::unique_ptr<Mail> mail_;
  bool done_ = false;
};

}  // namespace

Reach find_reach(const RankPlace& mine, std::chrono::seconds limit) {
  return Meeting(mine, limit).hold();
}

}  // namespace longhaul
