#include "base/device/step_graph.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "base/device/check_cuda.h"
#include "base/device/gpu_memory.h"
#include "base/error.h"
#include "base/log.h"

namespace longhaul::cuda {
namespace {

// Of a graph that was captured, for its way into an executable one.
struct DestroyGraph {
  void operator()(void* graph) const {
    static_cast<void>(cudaGraphDestroy(static_cast<cudaGraph_t>(graph)));
  }
};

}  // namespace

StepGraph::~StepGraph() { destroy(); }

void StepGraph::forget() noexcept {
  drop();
  destroy();
}

void StepGraph::destroy() noexcept {
  if (graph_ == nullptr) return;
  static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_)));
  graph_ = nullptr;
}

void StepGraph::open(const Stream& stream) {
  stream.finish(copied_);
  n_noted_ = 0;
  n_staged_ = 0;
  is_same_ = true;
  if (n_wanted_ > host_.bytes()) {
    try {
      host_ = PinnedBuffer();
      host_ = PinnedBuffer(n_wanted_);
      device_ = Buffer();
      device_ = Buffer(n_wanted_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfMemory) throw;
      host_ = PinnedBuffer();
      return;
    }
  }
  is_open_ = true;
}

const std::byte* StepGraph::stage(std::span<const std::byte> bytes) {
  const std::size_t size = (std::max<std::size_t>(bytes.size(), 1) + 15) / 16 * 16;
  if (n_staged_ + size > host_.bytes()) {
    n_wanted_ = std::min(static_cast<std::size_t>(kMostStepBytes),
                         std::max(2 * host_.bytes(), n_staged_ + size));
    return nullptr;
  }
  if (!bytes.empty()) std::memcpy(host_.data() + n_staged_, bytes.data(), bytes.size());
  const std::byte* there = device_.data() + n_staged_;
  n_staged_ += size;
  return there;
}

void StepGraph::drop() noexcept {
  is_open_ = false;
  is_current_ = false;
  commands_.clear();
}

void StepGraph::close(const Stream& stream) {
  is_open_ = false;
  void* native = stream.native();
  if (n_staged_ > 0) {
    check_cuda(cudaMemcpyAsync(device_.data(), host_.data(), n_staged_, cudaMemcpyHostToDevice,
                               static_cast<cudaStream_t>(native)),
               "cudaMemcpyAsync to the device");
    copied_.record(stream);
  }
  if (n_noted_ == 0) return;
  if (n_noted_ < commands_.size()) {
    is_same_ = is_current_ = false;
    commands_.resize(n_noted_);
  }
  if (!is_same_ || is_refused_ || !(is_current_ || capture(native))) return queue_all(native);
  check_cuda(
      cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), static_cast<cudaStream_t>(native)),
      "cudaGraphLaunch");
  ++n_launched_;
}

void StepGraph::queue_all(void* native) const {
  for (const Command& command : commands_) command.queue(command.work.get(), native);
}

// False where it cannot be done; then steps are queued one by one for good.
bool StepGraph::capture(void* native) {
  try {
    const std::unique_ptr<void, DestroyGraph> graph(captured_graph(native));
    instantiate(graph.get());
    is_current_ = true;
    ++n_captured_;
    return true;
  } catch (const Error& error) {
    static_cast<void>(cudaGetLastError());  // not the failure of the next call
    LONGHAUL_LOG(kWarning, kStep, "decode goes on without CUDA graphs: {}", error.what());
    is_refused_ = true;
    destroy();
    return false;
  }
}

void* StepGraph::captured_graph(void* native) const {
  auto* queue = static_cast<cudaStream_t>(native);
  check_cuda(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    queue_all(native);
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(queue, &graph));  // leaves the queue as it was
    if (graph != nullptr) DestroyGraph()(graph);
    throw;
  }
  check_cuda(cudaStreamEndCapture(queue, &graph), "cudaStreamEndCapture");
  return graph;
}

// Makes graph_ do what `graph` says. Updating is much cheaper than making a new one, and possible
// where the kernels are the same.
void StepGraph::instantiate(void* captured) {
  auto* graph = static_cast<cudaGraph_t>(captured);
  if (graph_ != nullptr) {
    cudaGraphExecUpdateResultInfo info = {};
    if (cudaGraphExecUpdate(static_cast<cudaGraphExec_t>(graph_), graph, &info) == cudaSuccess) {
      return;
    }
    static_cast<void>(cudaGetLastError());  // that it cannot be updated, which is no error
    destroy();
  }
  cudaGraphExec_t made = nullptr;
  check_cuda(cudaGraphInstantiate(&made, graph, 0), "cudaGraphInstantiate");
  graph_ = made;
}

}  // namespace longhaul::cuda
