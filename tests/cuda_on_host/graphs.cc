// CUDA's graphs on the emulated GPU: what a stream captured (streams.h), to be launched any number
// of times.
#include <cuda_runtime.h>

#include <algorithm>
#include <memory>

#include "tests/cuda_on_host/fail.h"
#include "tests/cuda_on_host/streams.h"

namespace longhaul::cuda_on_host {
namespace {

thread_local int captures_of_this_thread = 0;

}  // namespace

void forbid_in_capture(const char* call) {
  if (captures_of_this_thread > 0) fail(call, " while a stream captures");
}

}  // namespace longhaul::cuda_on_host

using longhaul::cuda_on_host::captures_of_this_thread;
using longhaul::cuda_on_host::enqueue;
using longhaul::cuda_on_host::forbid_in_capture;
using longhaul::cuda_on_host::Work;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->captured) return cudaErrorInvalidValue;
  stream->captured = std::make_unique<CUgraph_st>();
  ++captures_of_this_thread;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream->captured) return cudaErrorInvalidValue;
  *graph = stream->captured.release();
  --captures_of_this_thread;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  forbid_in_capture("cudaGraphInstantiate");
  *exec = new CUgraphExec_st{std::make_shared<const CUgraph_st>(*graph)};
  return cudaSuccess;
}

// Where the nodes are the same work with other arguments.
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo*) {
  forbid_in_capture("cudaGraphExecUpdate");
  const auto same_kind = [](const CUgraph_st::Node& a, const CUgraph_st::Node& b) {
    return a.kind == b.kind;
  };
  if (!std::ranges::equal(exec->graph->nodes, graph->nodes, same_kind)) {
    return cudaErrorGraphExecUpdateFailure;
  }
  exec->graph = std::make_shared<const CUgraph_st>(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (stream == nullptr || stream->captured) return cudaErrorInvalidValue;
  if (longhaul::cuda_on_host::leaves_work_undone()) return cudaSuccess;
  // Made node by node, when the ones before are done.
  enqueue(stream, [graph = exec->graph, next = std::size_t{0}, work = Work()]() mutable {
    for (; next < graph->nodes.size(); ++next) {
      if (!work) work = graph->nodes[next].make();
      if (!work()) return false;
      work = nullptr;
    }
    return true;
  });
  return cudaSuccess;
}
