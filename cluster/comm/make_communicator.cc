// The one place that knows all kinds of communicators (communicator.h).
#include "cluster/comm/communicator.h"
#include "cluster/comm/in_process.h"
#include "cluster/comm/mpi_communicator.h"

namespace longhaul {

std::unique_ptr<Communicator> make_communicator(const CommunicatorConfig& config) {
  require(config.default_deadline.count() > 0, "the communicator's deadline must be positive");
  switch (config.kind) {
    case CommunicatorKind::kInProcess:
      return make_in_process_communicator(config);
    case CommunicatorKind::kMpi:
      return make_mpi_communicator(config);
  }
  throw Error(ErrorCode::kInternal, "unknown kind of communicator");
}

}  // namespace longhaul
