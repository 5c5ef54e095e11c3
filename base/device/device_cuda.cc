#include "base/device/device_cuda.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include "base/clock.h"
#include "base/device/check_cuda.h"
#include "base/device/gpu_memory.h"
#include "base/device/log_cuda.h"
#include "base/device/step_graph.h"
#include "base/error.h"
#include "base/log.h"

namespace longhaul::cuda {
namespace {

// Waits ask so often without a pause, and then look for other news every so many questions.
constexpr int kEagerQuestions = 1000;
constexpr int kQuestionsBetween = 32;

constexpr auto kStageBytes = static_cast<std::size_t>(kUploadStageBytes);

cudaStream_t queue_of(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

int attribute(cudaDeviceAttr which, int ordinal) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, ordinal), "cudaDeviceGetAttribute");
  return value;
}

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

struct CopyOnDevice {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes;
  bool operator==(const CopyOnDevice&) const = default;
  void queue(void* native) const {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                               static_cast<cudaStream_t>(native)),
               "cudaMemcpyAsync on the device");
  }
};

struct FillWithZeros {
  std::byte* to;
  std::size_t bytes;
  bool operator==(const FillWithZeros&) const = default;
  void queue(void* native) const {
    check_cuda(cudaMemsetAsync(to, 0, bytes, static_cast<cudaStream_t>(native)), "cudaMemsetAsync");
  }
};

}  // namespace

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // the answer is 0, not an error of the next call
    return 0;
  }
  return count;
}

std::string why_no_device() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  return result == cudaSuccess ? fmt::format("{} devices", count) : cudaGetErrorString(result);
}

DeviceInfo device_info(int ordinal) {
  check_cuda(cudaSetDevice(ordinal), "cudaSetDevice");
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  DeviceInfo out;
  out.name = properties.name;
  out.major = properties.major;
  out.minor = properties.minor;
  out.n_multiprocessors = properties.multiProcessorCount;
  out.shared_bytes =
      static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal));
  check_cuda(cudaMemGetInfo(&out.free_bytes, &out.memory_bytes), "cudaMemGetInfo");
  return out;
}

Event::Event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "cudaEventCreate");
  event_ = event;
}

Event::~Event() {
  if (event_ != nullptr) {
    log_failure(cudaEventDestroy(static_cast<cudaEvent_t>(event_)), "cudaEventDestroy");
  }
}

Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}

void Event::record(const Stream& stream) {
  check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(event_), queue_of(stream)),
             "cudaEventRecord");
}

bool Event::is_done() const {
  const cudaError_t result = cudaEventQuery(static_cast<cudaEvent_t>(event_));
  if (result == cudaErrorNotReady) return false;
  check_cuda(result, "cudaEventQuery");
  return true;
}

double Event::milliseconds_since(const Event& earlier) const {
  float out = 0.0F;
  check_cuda(cudaEventElapsedTime(&out, static_cast<cudaEvent_t>(earlier.event_),
                                  static_cast<cudaEvent_t>(event_)),
             "cudaEventElapsedTime");
  return static_cast<double>(out);
}

Stream::Stream(int ordinal, Urgency urgency) : device_(device_info(ordinal)) {
  if (device_.major < 8) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("GPU {}, {}: compute capability {}.{}; bf16 tensor cores need 8.0",
                            ordinal, device_.name, device_.major, device_.minor));
  }
  cudaStream_t queue = nullptr;
  int lowest = 0;
  int highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest),
             "cudaDeviceGetStreamPriorityRange");
  check_cuda(cudaStreamCreateWithPriority(&queue, cudaStreamNonBlocking,
                                          urgency == Urgency::kTransfers ? highest : lowest),
             "cudaStreamCreateWithPriority");
  queue_ = queue;
}

Stream::~Stream() {
  try {
    drop_step();
    limits_ = {};
    synchronise();
  } catch (const std::exception& error) {
    LONGHAUL_LOG(kWarning, kStep, "the end of a stream: {}", error.what());
  }
  steps_.reset();
  linear_state_.reset();
  block_products_.reset();
  log_failure(cudaStreamDestroy(static_cast<cudaStream_t>(queue_)), "cudaStreamDestroy");
}

void Stream::note_step() {
  submit();
  if (!steps_) steps_ = std::make_unique<StepGraph>();
  steps_->open(*this);
}

StepGraph* Stream::open_step() const {
  return steps_ && steps_->is_open() ? steps_.get() : nullptr;
}

void Stream::submit() const {
  if (StepGraph* step = open_step()) step->close(*this);
}

void Stream::forget_graph() noexcept {
  if (steps_) steps_->forget();
}

void Stream::drop_step() {
  if (StepGraph* step = open_step()) step->drop();
}

// Asks again and again: a wait in the driver would know no end.
template <typename IsDone>
void Stream::wait_until(const IsDone& is_done) const {
  const Stopwatch watch;
  const Deadline deadline = deadline_in(limits_.most);
  for (int n_asked = 0; !is_done(); ++n_asked) {
    if (n_asked < kEagerQuestions) continue;
    if (limits_.meanwhile && n_asked % kQuestionsBetween == 0) limits_.meanwhile();
    if (Clock::now() >= deadline) {
      throw Error(ErrorCode::kTimeout,
                  fmt::format("waited {:.1f} s for the work of a GPU ({}), then gave up",
                              watch.seconds(), device_.name));
    }
    std::this_thread::yield();
  }
}

void Stream::synchronise() const {
  wait_until([this] { return is_idle(); });
}

void Stream::finish(const Event& event) const {
  wait_until([&event] { return event.is_done(); });
}

bool Stream::is_idle() const {
  const cudaError_t result = cudaStreamQuery(queue_of(*this));
  if (result == cudaErrorNotReady) return false;
  check_cuda(result, "cudaStreamQuery");
  return true;
}

void Stream::wait_for(const Event& event) const {
  check_cuda(cudaStreamWaitEvent(queue_of(*this), static_cast<cudaEvent_t>(event.native()), 0),
             "cudaStreamWaitEvent");
}

std::byte* Stream::scratch(std::size_t bytes) {
  if (bytes > scratch_.bytes()) {
    synchronise();  // queued work may still use the old memory
    scratch_ = Buffer();
    scratch_ = Buffer(bytes + bytes / 4);
  }
  return scratch_.data();
}

// The current stage, or the next one when that is full. Host memory of a stage is free again when
// its copies have been made; its device memory is only written by copies that are queued behind the
// work that reads it.
Stream::Stage& Stream::stage_with(std::size_t bytes) {
  if (stages_[stage_].used + bytes <= stages_[stage_].host.bytes()) return stages_[stage_];
  if (stages_[stage_].used > 0) {
    stages_[stage_].copied.record(*this);
    stage_ = (stage_ + 1) % stages_.size();
  }
  Stage& next = stages_[stage_];
  finish(next.copied);
  next.used = 0;
  if (bytes > next.host.bytes()) {
    synchronise();
    next.host = PinnedBuffer();
    next.host = PinnedBuffer(std::max(kStageBytes, bytes + bytes / 2));
    next.device = Buffer();
    next.device = Buffer(next.host.bytes());
  }
  return next;
}

const std::byte* Stream::upload(std::span<const std::byte> from) {
  if (StepGraph* step = open_step()) {
    if (const std::byte* there = step->stage(from)) return there;
    submit();
  }
  const std::size_t bytes = rounded_up(std::max<std::size_t>(from.size(), 1), 16);
  Stage& stage = stage_with(bytes);
  std::byte* host = stage.host.data() + stage.used;
  std::byte* device = stage.device.data() + stage.used;
  stage.used += bytes;
  if (from.empty()) return device;
  std::memcpy(host, from.data(), from.size());
  check_cuda(cudaMemcpyAsync(device, host, from.size(), cudaMemcpyHostToDevice, queue_of(*this)),
             "cudaMemcpyAsync to the device");
  return device;
}

const std::byte* Stream::download(const std::byte* from, std::size_t bytes) {
  if (bytes > results_.bytes()) {
    results_ = PinnedBuffer();
    results_ = PinnedBuffer(bytes + bytes / 4);
  }
  if (bytes > 0) {
    check_cuda(
        cudaMemcpyAsync(results_.data(), from, bytes, cudaMemcpyDeviceToHost, queue_of(*this)),
        "cudaMemcpyAsync to pinned memory");
  }
  synchronise();
  return results_.data();
}

std::size_t Stream::own_bytes() const {
  std::size_t sum = scratch_.bytes() + (steps_ ? steps_->bytes() : 0);
  for (const Stage& stage : stages_) sum += stage.device.bytes();
  return sum;
}

void copy_to_device(Stream& stream, std::byte* to, std::span<const std::byte> from) {
  if (from.empty()) return;
  stream.synchronise();  // in the driver, which may wait for it, waits have no end
  check_cuda(
      cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, queue_of(stream)),
      "cudaMemcpyAsync to the device");
  stream.synchronise();  // from pinned memory the copy would still be reading
}

void queue_copy_to_host(Stream& stream, std::span<std::byte> to, const std::byte* from) {
  if (to.empty()) return;
  stream.synchronise();  // as above
  check_cuda(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, queue_of(stream)),
             "cudaMemcpyAsync to the host");
}

void copy_to_host(Stream& stream, std::span<std::byte> to, const std::byte* from) {
  queue_copy_to_host(stream, to, from);
  stream.synchronise();
}

void copy_on_device(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) queue_work(stream, CopyOnDevice{to, from, bytes});
}

void fill_with_zeros(Stream& stream, std::byte* to, std::size_t bytes) {
  if (bytes > 0) queue_work(stream, FillWithZeros{to, bytes});
}

}  // namespace longhaul::cuda
