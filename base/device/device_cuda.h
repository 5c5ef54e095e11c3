// Owners of a GPU's memory, queues and events, and copies between host and device. The header needs
// no CUDA; in a build without it device_count() is 0 and everything else throws kUnsupported.
//
// There is no global state beside CUDA's own: which GPU a thread uses is set by the Stream that it
// makes, so a thread makes its Stream first and keeps to one GPU.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/device/device.h"
#include "base/device/gpu_memory.h"

namespace longhaul::cuda {

class StepGraph;  // base/device/step_graph.h

// GPUs that this process can use. 0 where there is no driver or no GPU, and in a build without
// CUDA.
int device_count();
// "absent from this build", "no driver", ... : why device_count() is 0, for messages.
std::string why_no_device();

struct DeviceInfo {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int n_multiprocessors = 0;
  std::size_t shared_bytes = 0;  // that one thread block can have
  std::size_t memory_bytes = 0;
  std::size_t free_bytes = 0;
};
DeviceInfo device_info(int ordinal);

class ArenaMemory;

// Of a GPU, or of the host, pinned: copies from and to GPUs need not stage it.
enum class MemoryKind : std::uint8_t { kGpu, kPinned };

// Memory that a thread takes in one piece of each kind. While this lives, the thread's Buffers and
// PinnedBuffers come out of it as long as there is room, and go back to it. For taking memory from
// CUDA, and giving it back, waits for all that the GPU does, transfers that wait for other ranks
// included, and those may wait for this one.
//
// CUDA frees memory when the work that uses it is done; a piece that goes back is given out again
// at once. So a GPU's must only be used by work in the order of one stream, or by transfers that
// start behind that and have ended; pinned memory goes back when the copies that use it are done.
// The newest arena of a thread counts; they end in the opposite order.
class MemoryArena {
 public:
  explicit MemoryArena(const ArenaBytes& bytes);  // Throws kOutOfMemory.
  ~MemoryArena();  // The memory goes when the last piece of it has come back.
  MemoryArena(const MemoryArena&) = delete;
  MemoryArena& operator=(const MemoryArena&) = delete;

  struct Use {
    std::size_t bytes = 0;
    std::size_t bytes_taken = 0;
    std::size_t most_taken = 0;  // at any time
    std::int64_t n_outside = 0;  // pieces that it had no room for
  };
  Use use(MemoryKind kind) const;

 private:
  // [kinds]; null where nothing was asked for.
  using OfKinds = std::array<std::shared_ptr<ArenaMemory>, 2>;
  friend class OwnedMemory;
  static OfKinds& of_this_thread();

  OfKinds memory_;
  OfKinds before_;  // the thread's, until this one came
};

// What owners of memory have in common. Move-only.
class OwnedMemory {
 public:
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 protected:
  enum class From : std::uint8_t { kArena, kSystem };
  OwnedMemory() = default;
  OwnedMemory(MemoryKind kind, std::size_t bytes, From from = From::kArena);
  ~OwnedMemory();
  OwnedMemory(OwnedMemory&& other) noexcept;
  OwnedMemory& operator=(OwnedMemory&& other) noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  [[maybe_unused]] MemoryKind kind_ = MemoryKind::kGpu;  // not in builds without CUDA
  std::shared_ptr<ArenaMemory> arena_;                   // null: the system's
};

// Memory of the calling thread's GPU, or out of its arena; aligned to 256 bytes, not initialised.
// Move-only.
class Buffer : public OwnedMemory {
 public:
  Buffer() = default;
  // Throws kOutOfMemory with what was asked for and what is free.
  explicit Buffer(std::size_t bytes) : OwnedMemory(MemoryKind::kGpu, bytes) {}
};

// Pinned memory of the host, or out of the thread's arena. Move-only.
class PinnedBuffer : public OwnedMemory {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t bytes) : OwnedMemory(MemoryKind::kPinned, bytes) {}
  // Never out of an arena: for those who keep it for good, or cannot say when its copies are done.
  static PinnedBuffer apart(std::size_t bytes) { return {bytes, From::kSystem}; }

 private:
  PinnedBuffer(std::size_t bytes, From from) : OwnedMemory(MemoryKind::kPinned, bytes, from) {}
};

// A point in a stream's work. Move-only.
class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  void record(const Stream& stream);
  bool is_done() const;  // also before the first record
  // From that event to this one; both recorded and done.
  double milliseconds_since(const Event& earlier) const;
  void* native() const { return event_; }

 private:
  void* event_ = nullptr;  // a cudaEvent_t
};

// Which work comes first where a GPU has room for one of two: transfers, for which others wait.
enum class Urgency : bool { kCompute, kTransfers };

// How long a thread waits for a stream's work before it throws kTimeout, and what it does now and
// then meanwhile, which may throw: it sees there that another rank has failed.
struct WaitLimits {
  std::chrono::milliseconds most = std::chrono::minutes(10);
  std::function<void()> meanwhile = {};
};

// A queue of work on one GPU, and the memory that operators on it use besides their arguments:
// scratch, and staging for the descriptions of their work. Used by one thread. Not movable: work
// refers to it.
class Stream {
 public:
  // And makes that GPU the calling thread's.
  explicit Stream(int ordinal, Urgency urgency = Urgency::kCompute);
  ~Stream();  // waits for the work
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  StreamRef ref() { return StreamRef::cuda(*this); }
  // A cudaStream_t, never null. For work that is queued next: submits what was noted.
  void* native() const {
    submit();
    return queue_;
  }
  const DeviceInfo& device() const { return device_; }

  // Blocks until all work so far is done; throws kCuda if any of it failed, and what the limits of
  // waits say.
  void synchronise() const;
  // The same until the event, which was recorded on this stream or never, is done.
  void finish(const Event& event) const;
  void set_wait_limits(WaitLimits limits) { limits_ = std::move(limits); }
  // Throws kCuda if the work so far has failed; does not block.
  bool is_idle() const;
  // Work after this call starts when `event` is done.
  void wait_for(const Event& event) const;

  // From now on work is noted (base/device/step_graph.h), until it is submitted: by submit(), or by
  // whatever waits for the stream's work or hands it to others. Noted work that is dropped is never
  // done. Memory that it uses must not be freed meanwhile.
  void note_step();
  void submit() const;
  void drop_step();
  // Drops what is noted, and the graph of steps before: for those whose work it holds and who end.
  void forget_graph() noexcept;
  // What is noted now; null when work is queued at once.
  StepGraph* open_step() const;
  // Null before the first note_step().
  const StepGraph* steps() const { return steps_.get(); }

  // For operators. Memory of the GPU that holds until the next call of scratch on this stream, as
  // seen by its work.
  std::byte* scratch(std::size_t bytes);
  // For operators. A copy of `bytes` on the GPU, 16-byte aligned, for work that is queued next.
  // Does not block, unless very much was queued; `from` may go away at once.
  const std::byte* upload(std::span<const std::byte> from);
  // For operators. Copies from the GPU to host memory of the stream and waits; holds until the next
  // call.
  const std::byte* download(const std::byte* from, std::size_t bytes);
  // For kernels/cuda/linear.cu: the state of the library for matrix products, empty at first.
  std::shared_ptr<void>& linear_state() { return linear_state_; }
  // And for kernels/cuda/fp8_blocks.cu.
  std::shared_ptr<void>& block_products() { return block_products_; }
  // GPU memory that it holds for operators, without the state of the library.
  std::size_t own_bytes() const;

 private:
  // Part of the staging memory; may be written again when its copies have been made.
  struct Stage {
    PinnedBuffer host;
    Buffer device;
    Event copied;
    std::size_t used = 0;
  };
  Stage& stage_with(std::size_t bytes);
  template <typename IsDone>
  void wait_until(const IsDone& is_done) const;

  void* queue_ = nullptr;
  WaitLimits limits_;
  DeviceInfo device_;
  std::unique_ptr<StepGraph> steps_;
  Buffer scratch_;
  std::array<Stage, kNUploadStages> stages_;
  std::size_t stage_ = 0;
  PinnedBuffer results_;
  std::shared_ptr<void> linear_state_;
  std::shared_ptr<void> block_products_;
};

// Copies and fills, in the order of the stream's work. The host memory of copy_to_device may be
// written again after the call; what copy_to_host reads is there after the call. Those from and to
// the host wait for the work before them, as synchronise() does.
void copy_to_device(Stream& stream, std::byte* to, std::span<const std::byte> from);
void copy_to_host(Stream& stream, std::span<std::byte> to, const std::byte* from);
// What it reads is there after the stream's next synchronise().
void queue_copy_to_host(Stream& stream, std::span<std::byte> to, const std::byte* from);
void copy_on_device(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes);
void fill_with_zeros(Stream& stream, std::byte* to, std::size_t bytes);

}  // namespace longhaul::cuda
