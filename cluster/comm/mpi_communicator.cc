#include "cluster/comm/mpi_communicator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "cluster/comm/mpi_check.h"
#include "cluster/comm/mpi_job.h"
#include "cluster/comm/slot_table.h"
#include "cluster/comm/wait_pace.h"

namespace longhaul {
namespace {

// How long an abandoned receive may take to be cancelled.
constexpr std::chrono::milliseconds kCancelDeadline{100};

// One transfer: as many MPI messages as it has pieces.
struct MpiTransfer {
  std::vector<MPI_Request> pieces;
  std::size_t n_bytes = 0;
  bool receives = false;
};

// Thread: that of its MpiJob. Groups need no MPI communicators of their own (making one blocks
// without a deadline): the context is part of the tag.
class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiJob> job, Group group,
                  std::shared_ptr<CommunicatorFamily> family)
      : Communicator(std::move(group), std::move(family)), job_(std::move(job)) {}
  ~MpiCommunicator() override {
    if (broken()) job_->leave_open();
    if (job_->aborted()->raised()) job_->tell_peers(job_->aborted()->verdict());
  }

  void progress() override {
    job_->poll();
    throw_if_broken();
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    std::optional<Group> chosen = split_group(color, key);
    if (!chosen) return nullptr;
    if (chosen->context > job_->max_tag() / kTagsPerContext - 1) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("too many groups: this MPI's largest tag is {}", job_->max_tag()));
    }
    return std::make_unique<MpiCommunicator>(job_, std::move(*chosen), family());
  }

 protected:
  int post_send(int to, Tag tag, std::span<const std::byte> data) override {
    MpiTransfer transfer{.pieces = {}, .n_bytes = data.size(), .receives = false};
    for_each_piece(data.size(), [&](std::size_t begin, int n) {
      check_mpi(MPI_Isend(data.data() + begin, n, MPI_BYTE, job_rank_of(to), mpi_tag(tag),
                          job_->messages(), &transfer.pieces.emplace_back(MPI_REQUEST_NULL)),
                "MPI_Isend");
    });
    return transfers_.add(std::move(transfer));
  }

  int post_receive(int from, Tag tag, std::span<std::byte> buffer) override {
    MpiTransfer transfer{.pieces = {}, .n_bytes = buffer.size(), .receives = true};
    for_each_piece(buffer.size(), [&](std::size_t begin, int n) {
      check_mpi(MPI_Irecv(buffer.data() + begin, n, MPI_BYTE, job_rank_of(from), mpi_tag(tag),
                          job_->messages(), &transfer.pieces.emplace_back(MPI_REQUEST_NULL)),
                "MPI_Irecv");
    });
    return transfers_.add(std::move(transfer));
  }

  bool test_ticket(int ticket) override {
    MpiTransfer& transfer = transfers_[ticket];
    const std::size_t n_pieces = transfer.pieces.size();
    int complete = 0;
    int result = MPI_SUCCESS;
    if (n_pieces == 1) {
      statuses_.resize(1);
      result = MPI_Test(transfer.pieces.data(), &complete, statuses_.data());
    } else {
      statuses_.resize(n_pieces);
      result = MPI_Testall(static_cast<int>(n_pieces), transfer.pieces.data(), &complete,
                           statuses_.data());
      if (result == MPI_ERR_IN_STATUS) result = first_error(statuses_);
    }
    if (result == MPI_ERR_TRUNCATE) refuse(transfer, "more");
    check_mpi(result, "MPI transfer");
    if (complete == 0) return false;
    if (transfer.receives && received_bytes() != transfer.n_bytes) {
      refuse(transfer, fmt::format("{}", received_bytes()));
    }
    transfers_.release(ticket);
    return true;
  }

  bool wait_ticket(int ticket, Deadline deadline) override {
    WaitPace pace;
    while (!test_ticket(ticket)) {
      if (!pace.looks_around()) continue;
      job_->poll();
      throw_if_broken();
      if (Clock::now() >= deadline) return false;
      pace.rest();
    }
    return true;
  }

  // A send cannot be withdrawn in MPI; the peer that might still read it is failing as well.
  void drop_ticket(int ticket) noexcept override {
    MpiTransfer& transfer = transfers_[ticket];
    const Deadline deadline = deadline_in(kCancelDeadline);
    for (MPI_Request& piece : transfer.pieces) {
      if (piece == MPI_REQUEST_NULL) continue;
      if (transfer.receives) MPI_Cancel(&piece);
      int complete = 0;
      while (MPI_Test(&piece, &complete, MPI_STATUS_IGNORE) == MPI_SUCCESS && complete == 0 &&
             transfer.receives && Clock::now() < deadline) {
      }
      if (complete == 0 && piece != MPI_REQUEST_NULL) MPI_Request_free(&piece);
    }
    transfers_.release(ticket);
  }

  void tell_peers(const Verdict& verdict) noexcept override { job_->tell_peers(verdict); }

 private:
  static constexpr int kTagsPerContext = 16 * kStreams;
  static_assert(kTrafficKinds <= 16);

  int mpi_tag(Tag tag) const {
    return (group().context * 16 + static_cast<int>(tag.traffic)) * kStreams + tag.stream;
  }

  // Calls piece(begin, n_bytes) for consecutive parts; once, with 0 bytes, for an empty message.
  template <typename Piece>
  void for_each_piece(std::size_t n_bytes, Piece piece) const {
    std::size_t begin = 0;
    do {
      const std::size_t n = std::min(n_bytes - begin, job_->piece_bytes());
      piece(begin, static_cast<int>(n));
      begin += n;
    } while (begin < n_bytes);
  }

  static int first_error(const std::vector<MPI_Status>& statuses) {
    for (const MPI_Status& status : statuses) {
      const int error = status.MPI_ERROR;
      if (error != MPI_SUCCESS && error != MPI_ERR_PENDING) return error;
    }
    return MPI_SUCCESS;
  }

  std::size_t received_bytes() const {
    std::size_t total = 0;
    for (const MPI_Status& status : statuses_) {
      int n = 0;
      check_mpi(MPI_Get_count(&status, MPI_BYTE, &n), "MPI_Get_count");
      total += static_cast<std::size_t>(n);
    }
    return total;
  }

  [[noreturn]] void refuse(const MpiTransfer& transfer, std::string_view sent) const {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {}: expected a message of {} bytes, but {} were sent", job_rank(),
                            transfer.n_bytes, sent));
  }

  std::shared_ptr<MpiJob> job_;
  SlotTable<MpiTransfer> transfers_;
  std::vector<MPI_Status> statuses_;  // of the last test; kept to save allocations
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const CommunicatorConfig& config) {
  constexpr std::size_t kLargestPiece = (std::size_t{1} << 31) - 1;
  require(config.mpi_piece_bytes >= 1 && config.mpi_piece_bytes <= kLargestPiece,
          "mpi_piece_bytes must be at least 1 and below 2 GiB");
  const auto job = std::make_shared<MpiJob>(config.mpi_piece_bytes);
  Group everybody{.members = {}, .rank = job->rank(), .context = 0};
  for (int r = 0; r < job->size(); ++r) everybody.members.push_back(r);
  auto family = std::make_shared<CommunicatorFamily>();
  family->aborted = job->aborted();
  family->default_deadline = config.default_deadline;
  return std::make_unique<MpiCommunicator>(job, std::move(everybody), std::move(family));
}

}  // namespace longhaul
