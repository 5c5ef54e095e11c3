// Streams and graphs of the emulated GPU. Work is done when it is queued; while its stream captures
// it becomes a node of a graph instead, with its arguments as they are then, and is done whenever
// the graph is launched: nodes read memory as it is at that time.
#pragma once
#include <functional>
#include <memory>
#include <vector>

struct CUgraph_st {
  struct Node {
    const void* kind;  // the kernel, or the function of the runtime
    std::function<void()> work;
  };
  std::vector<Node> nodes;  // in the order of one stream
};
struct CUgraphExec_st {
  CUgraph_st graph;
};
struct CUstream_st {
  std::unique_ptr<CUgraph_st> captured;  // null unless it captures
};

namespace longhaul::cuda_on_host {

void queue(CUstream_st* stream, const void* kind, std::function<void()> work);

// Aborts if this thread captures: CUDA refuses such calls then, and the capture is lost.
void forbid_in_capture(const char* call);

}  // namespace longhaul::cuda_on_host
