#include "cluster/comm/mpi_job.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/comm/mpi_check.h"

namespace longhaul {
namespace {

constexpr int kNoticeTag = 0;
// How long a failing rank gives its notices to leave before it goes on to unwind and exit.
constexpr std::chrono::milliseconds kNoticeFlush{200};

MPI_Comm duplicate_of_world() {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return comm;
}

}  // namespace

MpiJob::MpiJob(std::size_t piece_bytes) : piece_bytes_(piece_bytes) {
  int initialized = 0;
  check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
  if (initialized == 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                "make_communicator with kMpi needs an MpiEnvironment first");
  }
  messages_ = duplicate_of_world();
  notices_ = duplicate_of_world();
  check_mpi(MPI_Comm_rank(messages_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(messages_, &size_), "MPI_Comm_size");
  void* upper_bound = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(messages_, MPI_TAG_UB, &upper_bound, &found), "MPI_Comm_get_attr");
  if (found != 0) max_tag_ = *static_cast<int*>(upper_bound);
  check_mpi(MPI_Irecv(&buffers_->incoming, sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE, kNoticeTag,
                      notices_, &buffers_->receive),
            "MPI_Irecv of failure notices");
}

MpiJob::~MpiJob() {
  if (leave_open_ || aborted_->raised()) {
    static_cast<void>(buffers_.release());
    return;
  }
  MPI_Cancel(&buffers_->receive);
  MPI_Wait(&buffers_->receive, MPI_STATUS_IGNORE);
  MPI_Comm_free(&notices_);
  MPI_Comm_free(&messages_);
}

void MpiJob::poll() {
  if (buffers_->receive == MPI_REQUEST_NULL) return;
  int arrived = 0;
  check_mpi(MPI_Test(&buffers_->receive, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
  if (arrived == 0) return;
  Notice& notice = buffers_->incoming;
  notice.text.back() = '\0';
  told_ = true;
  aborted_->raise(failed(notice.rank, error_code_from_wire(notice.code), notice.text.data()));
}

void MpiJob::tell_peers(const Verdict& verdict) noexcept {
  if (std::this_thread::get_id() != owner_) return;
  try {
    send_notices(verdict);
  } catch (const std::exception& error) {
    LONGHAUL_LOG(kError, kComm, "event=notice_failed reason=\"{}\"", error.what());
  }
}

void MpiJob::send_notices(const Verdict& verdict) {
  if (told_) return;
  told_ = true;
  Notice& notice = buffers_->outgoing;
  notice.rank = verdict.rank;
  notice.code = static_cast<std::int32_t>(verdict.code);
  const std::size_t length = std::min(verdict.message.size(), notice.text.size() - 1);
  std::memcpy(notice.text.data(), verdict.message.data(), length);
  std::vector<MPI_Request>& sends = buffers_->sends;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    MPI_Request& send = sends.emplace_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Isend(&notice, sizeof(Notice), MPI_BYTE, peer, kNoticeTag, notices_, &send),
              "MPI_Isend of a failure notice");
  }
  const Deadline deadline = deadline_in(kNoticeFlush);
  for (int all = 0; all == 0 && Clock::now() < deadline;) {
    check_mpi(MPI_Testall(static_cast<int>(sends.size()), sends.data(), &all, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    if (all == 0) std::this_thread::yield();
  }
}

}  // namespace longhaul
