#include "worker/device_communicator.h"

#include "cluster/comm/gpu_communicator.h"
#include "kernels/sum_rows.h"

namespace longhaul {
namespace {

// SumRows of communicators.
void add_rows_of_ranks(CudaStream& stream, float* sum, const float* rows, std::int64_t n_rows,
                       std::int64_t n) {
  sum_rows(StreamRef::cuda(stream), {.rows = {rows, {n_rows, n}}, .sum = {sum, {n}}});
}

}  // namespace

std::unique_ptr<Communicator> communicator_of_device(Communicator& host, StreamRef stream,
                                                     GpuTransport transport) {
  const bool has_gpu = stream.device() == Device::kCuda;
  if (host.size() == 1 || (!has_gpu && transport == GpuTransport::kStaged)) return nullptr;
  return make_gpu_communicator(host, {.stream = has_gpu ? &stream.cuda_stream() : nullptr,
                                      .transport = transport,
                                      .sum_rows = add_rows_of_ranks});
}

}  // namespace longhaul
