#include "cluster/comm/copy_engines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/device/landing_memory.h"
#include "base/error.h"
#include "base/log.h"
#include "cluster/comm/gpu_copies.h"
#include "cluster/comm/shared_segment.h"

namespace longhaul {
namespace {

// How long a rank that leaves waits for the others to close what is its own; after a failure they
// may not come to that.
constexpr std::chrono::seconds kCloseDeadline{10};
constexpr std::chrono::seconds kCloseDeadlineAfterFailure{1};
constexpr std::chrono::seconds kStreamsDeadline{10};
constexpr std::chrono::microseconds kBetweenReleases{100};
constexpr const char* kEnded = "copy engines have ended after a failure";

// The words of a rank's segment, as many for each rank of the group, which alone writes them as
// long as nobody fails. Each has a cache line.
enum class Word : std::uint8_t { kArrived, kFreed, kGaveUp, kClosed };
constexpr std::size_t kWordsOfRank = 4;
constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kSegmentUnit = 4096;

std::size_t place_of(int writer, Word word) {
  return (static_cast<std::size_t>(writer) * kWordsOfRank + static_cast<std::size_t>(word)) *
         kLineBytes;
}
std::size_t segment_bytes(int n_ranks) {
  const std::size_t bytes = static_cast<std::size_t>(n_ranks) * kWordsOfRank * kLineBytes;
  return (bytes + kSegmentUnit - 1) / kSegmentUnit * kSegmentUnit;
}

// Numbers of chunks go round; they begin shortly before the end, so that this is no rare case.
constexpr std::uint32_t kFirstChunk = 0U - 10;
// Later than all that can have been queued.
constexpr std::uint32_t kFarAhead = 1U << 30;

// A segment's words, as the host and as this rank's GPU have them.
struct Words {
  SharedSegment segment;
  cuda::GpuWindow window;

  explicit Words(SharedSegment mapped)
      : segment(std::move(mapped)), window(segment.data(), segment.bytes()) {}
  std::byte* on_gpu(int writer, Word word) const {
    return window.on_gpu() + place_of(writer, word);
  }
  std::atomic_ref<std::uint32_t> on_host(int writer, Word word) const {
    return std::atomic_ref<std::uint32_t>(
        *reinterpret_cast<std::uint32_t*>(segment.data() + place_of(writer, word)));
  }
};

// Another rank of the host, whose segment could be opened.
struct Neighbour {
  explicit Neighbour(Words opened) : words(std::move(opened)) {}
  Words words;
  cuda::OpenedBuffer landing;
  std::size_t place = 0;      // of this rank's slots in it
  std::size_t own_place = 0;  // of its slots in this rank's
  std::uint32_t n_sent = kFirstChunk;
  std::uint32_t n_received = kFirstChunk;
};

struct Island {
  int rank = 0;
  std::optional<Words> words;  // of this rank
  cuda::SharedBuffer landing;
  std::size_t landing_bytes = 0;
  std::vector<std::unique_ptr<Neighbour>> neighbours;  // [ranks]; null: out of reach
  std::vector<int> openers;                            // ranks that have opened what is this one's

  // Nothing is under way.
  void close() noexcept {
    for (const auto& neighbour : neighbours) {
      if (!neighbour) continue;
      neighbour->landing = {};
      neighbour->words.on_host(rank, Word::kClosed).store(1);
    }
    neighbours.clear();
  }
  bool have_all_closed() const noexcept {
    return std::all_of(openers.begin(), openers.end(), [this](int opener) {
      return words->on_host(opener, Word::kClosed).load() != 0;
    });
  }
};

// What a rank says first.
struct Greeting {
  std::array<char, 48> name{};  // of its segment; empty: it has none
  std::int64_t island = 0;
};

template <typename T>
std::vector<T> gather_of_all(Communicator& comm, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

// Which rank has managed what with which.
class Successes {
 public:
  Successes(Communicator& comm, const std::vector<std::uint8_t>& mine)
      : n_ranks_(mine.size()), all_(n_ranks_ * n_ranks_) {
    comm.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all_)));
  }
  bool has(int rank, int with) const {
    return all_[static_cast<std::size_t>(rank) * n_ranks_ + static_cast<std::size_t>(with)] != 0;
  }
  bool have_both(int a, int b) const { return has(a, b) && has(b, a); }
  // How many ranks below `other` share a success with `rank`.
  std::size_t n_below(int rank, int other) const {
    std::size_t n = 0;
    for (int r = 0; r < other; ++r) n += have_both(rank, r) ? 1 : 0;
    return n;
  }

 private:
  std::size_t n_ranks_;
  std::vector<std::uint8_t> all_;  // [rank, other]
};

// Where it fails there is another way.
template <typename Attempt>
bool has_worked(std::string_view what, Attempt attempt) {
  try {
    attempt();
    return true;
  } catch (const Error& error) {
    LONGHAUL_LOG(kInfo, kComm, "event=no_copy_engines what=\"{}\" reason=\"{}\"", what,
                 error.what());
    return false;
  }
}

// The parts with each rank, one after the other, in pieces that fit into a slot: [round] of all
// ranks.
struct Chunk {
  int peer = 0;
  std::byte* data = nullptr;
  std::size_t n_bytes = 0;
};
class Rounds {
 public:
  Rounds(int n_ranks, std::size_t slot_bytes)
      : slot_bytes_(slot_bytes), n_of_rank_(static_cast<std::size_t>(n_ranks)) {}
  void add(int peer, std::byte* data, std::size_t n_bytes) {
    std::size_t& round = n_of_rank_[static_cast<std::size_t>(peer)];
    for (std::size_t at = 0; at < n_bytes; at += slot_bytes_, ++round) {
      if (round == rounds_.size()) rounds_.emplace_back();
      rounds_[round].push_back({peer, data + at, std::min(slot_bytes_, n_bytes - at)});
    }
  }
  std::size_t size() const { return rounds_.size(); }
  std::span<const Chunk> operator[](std::size_t round) const {
    return round < rounds_.size() ? std::span<const Chunk>(rounds_[round])
                                  : std::span<const Chunk>();
  }

 private:
  std::size_t slot_bytes_;
  std::vector<std::size_t> n_of_rank_;
  std::vector<std::vector<Chunk>> rounds_;
};

// Tells whose segments this rank could open and map.
std::vector<std::uint8_t> open_segments(Communicator& comm, std::int64_t own_island,
                                        Island& island) {
  const int n = comm.size();
  Greeting mine{.name = {}, .island = own_island};
  has_worked("making a segment", [&] {
    Words words(SharedSegment(segment_bytes(n)));
    for (int r = 0; r < n; ++r) {
      words.on_host(r, Word::kArrived).store(kFirstChunk);
      words.on_host(r, Word::kFreed).store(kFirstChunk);
    }
    const std::string& name = words.segment.name();
    std::memcpy(mine.name.data(), name.data(), std::min(name.size(), mine.name.size() - 1));
    island.words.emplace(std::move(words));
  });
  const std::vector<Greeting> all = gather_of_all(comm, mine);
  std::vector<std::uint8_t> opened(static_cast<std::size_t>(n));
  for (int r = 0; r < n; ++r) {
    const auto at = static_cast<std::size_t>(r);
    if (r == comm.rank() || !island.words || all[at].name[0] == '\0') continue;
    if (all[at].island != own_island) continue;
    has_worked("opening a segment", [&] {
      auto segment = SharedSegment::open(all[at].name.data(), segment_bytes(n));
      if (!segment) return;  // another host's
      island.neighbours[at] = std::make_unique<Neighbour>(Words(std::move(*segment)));
      opened[at] = 1;
    });
  }
  return opened;
}

}  // namespace

struct CopyEngines::Groups {
  std::map<const Communicator*, std::unique_ptr<Island>> all;
  // Closing and freeing wait for the GPU, so these go together at the end.
  std::vector<std::unique_ptr<Island>> left;
};

std::unique_ptr<CopyEngines> CopyEngines::open(const CopyEngineConfig& config, std::string& why) {
  const std::optional<cuda::StreamWords> words = cuda::StreamWords::find(why);
  if (!words) return nullptr;
  return std::unique_ptr<CopyEngines>(new CopyEngines(config, *words));
}

CopyEngines::CopyEngines(const CopyEngineConfig& config, const cuda::StreamWords& words)
    : config_(config),
      words_(words),
      out_(cuda::current_gpu(), cuda::Urgency::kTransfers),
      in_(cuda::current_gpu(), cuda::Urgency::kTransfers),
      groups_(std::make_unique<Groups>()) {}

CopyEngines::~CopyEngines() {
  if (!wait_for_streams()) {
    LONGHAUL_LOG(kWarning, kComm, "event=copies_are_stuck what=\"their memory stays taken\"");
    releaser_ = std::jthread();
    static_cast<void>(groups_.release());
    return;
  }
  releaser_ = std::jthread();
  for (auto& [host, island] : groups_->all) groups_->left.push_back(std::move(island));
  groups_->all.clear();
  for (const auto& island : groups_->left) island->close();
  const Deadline deadline =
      deadline_in(has_given_up_ ? kCloseDeadlineAfterFailure : kCloseDeadline);
  for (const auto& island : groups_->left) {
    while (!island->have_all_closed() && Clock::now() < deadline) std::this_thread::yield();
    if (!island->have_all_closed()) island->landing.leave();
  }
}

void CopyEngines::connect(Communicator& comm, const Communicator& host) {
  if (has_given_up_) throw Error(ErrorCode::kNccl, kEnded);
  const int n = comm.size();
  const int own = comm.rank();
  auto island = std::make_unique<Island>();
  island->rank = own;
  island->neighbours.resize(static_cast<std::size_t>(n));

  const Successes segments(comm, open_segments(comm, config_.island, *island));
  if (island->words) island->words->segment.unlink();
  std::vector<int> candidates;
  for (int r = 0; r < n; ++r) {
    if (r != own && segments.have_both(own, r)) candidates.push_back(r);
  }
  const std::size_t bytes_each = static_cast<std::size_t>(kLandingSlots) * config_.slot_bytes;
  cuda::MemoryTicket ticket;
  if (!candidates.empty()) {
    has_worked("taking landing areas", [&] {
      island->landing = cuda::SharedBuffer(candidates.size() * bytes_each);
      ticket = island->landing.ticket();
      island->landing_bytes = candidates.size() * bytes_each;
    });
  }
  island->openers = ticket.process == 0 ? std::vector<int>() : candidates;
  // From here on others may have it.
  Island& made = *(groups_->all[&host] = std::move(island));

  const std::vector<cuda::MemoryTicket> tickets = gather_of_all(comm, ticket);
  std::vector<std::uint8_t> reached(static_cast<std::size_t>(n));
  for (const int r : candidates) {
    const auto at = static_cast<std::size_t>(r);
    if (ticket.process == 0 || tickets[at].process == 0) continue;
    Neighbour& neighbour = *made.neighbours[at];
    neighbour.place = segments.n_below(r, own) * bytes_each;
    neighbour.own_place = segments.n_below(own, r) * bytes_each;
    reached[at] = has_worked("opening a landing area",
                             [&] { neighbour.landing = cuda::OpenedBuffer(tickets[at]); });
  }
  const Successes landings(comm, reached);
  std::erase_if(made.openers, [&](int r) { return !landings.has(r, own); });
  std::vector<int> job_ranks;
  for (int r = 0; r < n; ++r) {
    if (r != own && landings.have_both(own, r)) {
      job_ranks.push_back(comm.job_rank_of(r));
      continue;
    }
    auto& neighbour = made.neighbours[static_cast<std::size_t>(r)];
    if (!neighbour) continue;
    neighbour->landing = {};
    neighbour->words.on_host(own, Word::kClosed).store(1);
    neighbour.reset();
  }
  LONGHAUL_LOG(kInfo, kComm, "event=copy_engines rank={} reach=\"{}\" landing_bytes={}",
               comm.job_rank(), fmt::join(job_ranks, " "), made.landing_bytes);
}

bool CopyEngines::reaches(const Communicator& host, int rank) const {
  const auto island = groups_->all.find(&host);
  return island != groups_->all.end() &&
         island->second->neighbours[static_cast<std::size_t>(rank)] != nullptr;
}

void CopyEngines::forget(const Communicator& host) noexcept {
  const auto island = groups_->all.find(&host);
  if (island == groups_->all.end()) return;
  groups_->left.push_back(std::move(island->second));
  groups_->all.erase(island);
}

std::size_t CopyEngines::landing_bytes() const {
  std::size_t sum = 0;
  for (const auto& [host, island] : groups_->all) sum += island->landing_bytes;
  return sum;
}

CopyEngines::Ends CopyEngines::queue(const Communicator& host, const cuda::Event& start,
                                     std::span<const Incoming> in, std::span<const Outgoing> out) {
  if (has_given_up_) throw Error(ErrorCode::kNccl, kEnded);
  Island& island = *groups_->all.at(&host);
  Rounds arriving(host.size(), config_.slot_bytes);
  Rounds leaving(host.size(), config_.slot_bytes);
  for (const Incoming& part : in) arriving.add(part.from, part.buffer.data(), part.buffer.size());
  for (const Outgoing& part : out)
    leaving.add(part.to, const_cast<std::byte*>(part.data.data()), part.data.size());
  const auto slot = [this](std::uint32_t chunk) {
    return chunk % static_cast<std::uint32_t>(kLandingSlots) * config_.slot_bytes;
  };
  out_.wait_for(start);
  in_.wait_for(start);
  for (std::size_t round = 0; round < std::max(arriving.size(), leaving.size()); ++round) {
    for (const Chunk& chunk : leaving[round]) {
      Neighbour& to = *island.neighbours[static_cast<std::size_t>(chunk.peer)];
      const std::uint32_t number = to.n_sent++;
      constexpr auto kSlots = static_cast<std::uint32_t>(kLandingSlots);
      words_.queue_wait(out_, island.words->on_gpu(chunk.peer, Word::kFreed), number + 1 - kSlots);
      cuda::copy_on_device(out_, to.landing.data() + to.place + slot(number), chunk.data,
                           chunk.n_bytes);
      words_.queue_write(out_, to.words.on_gpu(island.rank, Word::kArrived), number + 1);
    }
    for (const Chunk& chunk : arriving[round]) {
      Neighbour& from = *island.neighbours[static_cast<std::size_t>(chunk.peer)];
      const std::uint32_t number = from.n_received++;
      words_.queue_wait(in_, island.words->on_gpu(chunk.peer, Word::kArrived), number + 1);
      cuda::copy_on_device(in_, chunk.data, island.landing.data() + from.own_place + slot(number),
                           chunk.n_bytes);
      words_.queue_write(in_, from.words.on_gpu(island.rank, Word::kFreed), number + 1);
    }
  }
  Ends ends;
  ends.out.record(out_);
  ends.in.record(in_);
  return ends;
}

void CopyEngines::look() const {
  for (const auto& [host, island] : groups_->all) {
    for (std::size_t r = 0; r < island->neighbours.size(); ++r) {
      if (!island->neighbours[r]) continue;
      const int rank = static_cast<int>(r);
      if (island->words->on_host(rank, Word::kGaveUp).load() == 0) continue;
      throw Error(ErrorCode::kNccl, fmt::format("rank {}: rank {} of its group gave up, and its "
                                                "copies with it",
                                                island->rank, rank));
    }
  }
}

void CopyEngines::release() const noexcept {
  for (const auto& [host, island] : groups_->all) {
    for (std::size_t r = 0; r < island->neighbours.size(); ++r) {
      const Neighbour* neighbour = island->neighbours[r].get();
      if (neighbour == nullptr) continue;
      const int rank = static_cast<int>(r);
      island->words->on_host(rank, Word::kArrived).store(neighbour->n_received + kFarAhead);
      island->words->on_host(rank, Word::kFreed).store(neighbour->n_sent + kFarAhead);
    }
  }
}

// What the streams write when they are let go would be believed, so that comes after the warning.
// Others that live still write to these words, with numbers of earlier chunks: hence again and
// again, and beside what NCCL does meanwhile, which may wait for the GPU.
void CopyEngines::give_up() noexcept {
  if (std::exchange(has_given_up_, true)) return;
  for (const auto& [host, island] : groups_->all) {
    for (const auto& neighbour : island->neighbours) {
      if (neighbour) neighbour->words.on_host(island->rank, Word::kGaveUp).store(1);
    }
  }
  release();
  try {
    releaser_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        release();
        std::this_thread::sleep_for(kBetweenReleases);
      }
    });
  } catch (const std::exception& error) {
    LONGHAUL_LOG(kWarning, kComm, "event=no_thread reason=\"{}\"", error.what());
  }
}

void CopyEngines::finish_giving_up() noexcept {
  if (wait_for_streams()) releaser_ = std::jthread();
}

bool CopyEngines::are_streams_done() const noexcept {
  try {
    const bool is_out_done = out_.is_idle();
    return in_.is_idle() && is_out_done;
  } catch (const std::exception&) {
    return true;  // the GPU has failed, and does nothing more
  }
}

bool CopyEngines::wait_for_streams() const noexcept {
  const Deadline deadline = deadline_in(kStreamsDeadline);
  while (!are_streams_done()) {
    if (Clock::now() > deadline) return false;
    if (has_given_up_) release();
    std::this_thread::yield();
  }
  return true;
}

}  // namespace longhaul
