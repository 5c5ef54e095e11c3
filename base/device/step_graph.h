// The work of a step, noted instead of queued, and queued together when somebody waits for it: as
// one CUDA graph where it is the same as in the step before. Launching a graph costs the host some
// microseconds, launching kernels one by one that much for each.
//
//   step   work        how it is queued
//   1      A B C       one by one
//   2      A B C       captured into a graph, which is launched
//   3      A B C       the graph is launched
//   4      A B2 C      one by one
//   5      A B2 C      captured; the graph is updated and launched
//
// The same work: the same kernels, grids and arguments in the same order. So a graph that is stale,
// because memory has moved or a batch has changed, is never launched. What changes with every step
// (tokens, positions, blocks) is data that kernels read: Stream::upload puts it into one piece of
// memory, at the same places as long as the sizes are the same, and it is copied ahead of the
// graph. Sizes that grow are rounded up (kernels/cuda/parcel.h), so that hundreds of steps are the
// same.
//
// Nothing runs and nothing is captured while a step is noted, so it may take memory and choose
// algorithms as ever. It must not free memory that noted work uses.
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/device/device_cuda.h"

namespace longhaul::cuda {

// Something for a CUDA queue. `queue` may be called many times, also while the queue captures.
template <typename T>
concept Work = std::equality_comparable<T> && requires(const T& work, void* native) {
  {work.queue(native)};
};

// Of one stream, by whose thread it is used.
class StepGraph {
 public:
  StepGraph() = default;
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  bool is_open() const { return is_open_; }
  // A new step. Waits until the last one's data have been copied; stays closed where there is no
  // memory for the data.
  void open(const Stream& stream);
  template <Work T>
  void note(const T& work);
  // Where `bytes` will be on the GPU, 16-byte aligned; null when there is no room, which is made
  // for the next step up to kMostStepBytes.
  const std::byte* stage(std::span<const std::byte> bytes);
  // Queues what was noted.
  void close(const Stream& stream);
  // Forgets it.
  void drop() noexcept;
  // And the graph.
  void forget() noexcept;

  std::size_t bytes() const { return device_.bytes(); }    // of the GPU's memory
  std::int64_t n_launched() const { return n_launched_; }  // steps that went as a graph
  std::int64_t n_captured() const { return n_captured_; }
  // Of the last step: what it queued, kernels and copies, and the bytes that it read.
  std::size_t n_commands() const { return commands_.size(); }
  std::size_t n_staged() const { return n_staged_; }

 private:
  struct Command {
    std::shared_ptr<const void> work;
    void (*queue)(const void* work, void* native);
  };
  template <Work T>
  static void queue_as(const void* work, void* native) {
    static_cast<const T*>(work)->queue(native);
  }
  void queue_all(void* native) const;
  bool capture(void* native);
  void* captured_graph(void* native) const;
  void instantiate(void* captured);
  void destroy() noexcept;

  std::vector<Command> commands_;  // of the last step, or of this one up to n_noted_
  std::size_t n_noted_ = 0;
  bool is_open_ = false;
  bool is_same_ = false;      // so far, as the last step
  void* graph_ = nullptr;     // a cudaGraphExec_t
  bool is_current_ = false;   // graph_ is of commands_
  bool is_refused_ = false;   // graphs do not work here
  PinnedBuffer host_;         // the step's data
  Buffer device_;             // and its copy, as large
  std::size_t n_staged_ = 0;  // bytes
  std::size_t n_wanted_ = static_cast<std::size_t>(kUploadStageBytes);
  Event copied_;
  std::int64_t n_launched_ = 0;
  std::int64_t n_captured_ = 0;
};

template <Work T>
void StepGraph::note(const T& work) {
  if (n_noted_ < commands_.size() && is_same_) {
    const Command& last = commands_[n_noted_];
    is_same_ = last.queue == &queue_as<T> && *static_cast<const T*>(last.work.get()) == work;
  } else {
    is_same_ = false;
  }
  if (!is_same_) {
    is_current_ = false;
    commands_.resize(n_noted_);
    commands_.push_back({std::make_shared<const T>(work), &queue_as<T>});
  }
  ++n_noted_;
}

// Queues work, or notes it where the stream notes a step.
template <Work T>
void queue_work(Stream& stream, const T& work) {
  if (StepGraph* step = stream.open_step()) {
    step->note(work);
  } else {
    work.queue(stream.native());
  }
}

}  // namespace longhaul::cuda
