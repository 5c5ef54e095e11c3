// What cudaStream_t and cudaEvent_t name on the CPU. For tests/streams_on_host/*.cc.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>

#include "tests/streams_on_host/device_memory.h"
#include "tests/streams_on_host/stream_queues.h"

struct CUstream_st {
  std::deque<longhaul::streams_on_host::Work> queue;
  bool is_running = false;
};

// Work that refers to an event may outlive it.
struct EventState {
  std::uint64_t n_recorded = 0;
  std::uint64_t n_done = 0;
  cudaStream_t stream = nullptr;  // where it was recorded last
  std::chrono::steady_clock::time_point at;
};
struct CUevent_st {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

namespace longhaul::streams_on_host {
DeviceMemory& device_memory();
}
