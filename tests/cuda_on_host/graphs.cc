#include "tests/cuda_on_host/graphs.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace longhaul::cuda_on_host {
namespace {

thread_local int captures_of_this_thread = 0;

}  // namespace

void queue(CUstream_st* stream, const void* kind, std::function<void()> work) {
  if (stream == nullptr) forbid_in_capture("work on the default stream");
  if (stream != nullptr && stream->captured) {
    stream->captured->nodes.push_back({kind, std::move(work)});
  } else {
    work();
  }
}

void forbid_in_capture(const char* call) {
  if (captures_of_this_thread == 0) return;
  std::fprintf(stderr, "cuda_on_host: %s while a stream captures\n", call);
  std::abort();
}

}  // namespace longhaul::cuda_on_host

using longhaul::cuda_on_host::captures_of_this_thread;
using longhaul::cuda_on_host::forbid_in_capture;

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
  *exec = new CUgraphExec_st{*graph};
  return cudaSuccess;
}

// Where the nodes are the same work with other arguments.
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo*) {
  forbid_in_capture("cudaGraphExecUpdate");
  const auto same_kind = [](const CUgraph_st::Node& a, const CUgraph_st::Node& b) {
    return a.kind == b.kind;
  };
  if (!std::ranges::equal(exec->graph.nodes, graph->nodes, same_kind)) {
    return cudaErrorGraphExecUpdateFailure;
  }
  exec->graph = *graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (stream == nullptr || stream->captured) return cudaErrorInvalidValue;
  for (const CUgraph_st::Node& node : exec->graph.nodes) node.work();
  return cudaSuccess;
}
