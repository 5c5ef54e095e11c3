// Stands in for base/device/device_cuda.cc in a build without CUDA, so that nobody else needs an
// #ifdef: there is no device, and whatever would need one throws kUnsupported.
#include <string_view>

#include <fmt/format.h>
#include "base/device/device_cuda.h"
#include "base/device/step_graph.h"
#include "base/error.h"

namespace longhaul::cuda {
namespace {

[[noreturn]] void absent(std::string_view name) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{} on CUDA is not in this build; run on the CPU", name));
}

}  // namespace

int device_count() { return 0; }
std::string why_no_device() { return "this build is without CUDA"; }
DeviceInfo device_info(int) { absent("device_info"); }

MemoryArena::MemoryArena(const ArenaBytes&) { absent("an arena"); }
MemoryArena::~MemoryArena() = default;
MemoryArena::Use MemoryArena::use(MemoryKind) const { absent("an arena"); }

OwnedMemory::OwnedMemory(MemoryKind kind, std::size_t, From) {
  absent(kind == MemoryKind::kGpu ? "memory" : "pinned memory");
}
OwnedMemory::~OwnedMemory() = default;
OwnedMemory::OwnedMemory(OwnedMemory&&) noexcept = default;
OwnedMemory& OwnedMemory::operator=(OwnedMemory&&) noexcept = default;

Event::Event() { absent("an event"); }
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;
void Event::record(const Stream&) { absent("an event"); }
bool Event::is_done() const { absent("an event"); }
double Event::milliseconds_since(const Event&) const { absent("an event"); }

StepGraph::~StepGraph() = default;

Stream::Stream(int, Urgency) { absent("a stream"); }
Stream::~Stream() = default;
void Stream::synchronise() const { absent("a stream"); }
void Stream::finish(const Event&) const { absent("a stream"); }
bool Stream::is_idle() const { absent("a stream"); }
void Stream::wait_for(const Event&) const { absent("a stream"); }
void Stream::note_step() { absent("a stream"); }
StepGraph* Stream::open_step() const { absent("a stream"); }
void Stream::submit() const { absent("a stream"); }
void Stream::forget_graph() noexcept {}
void Stream::drop_step() { absent("a stream"); }
std::byte* Stream::scratch(std::size_t) { absent("a stream"); }
const std::byte* Stream::upload(std::span<const std::byte>) { absent("a stream"); }
std::size_t Stream::own_bytes() const { absent("a stream"); }
const std::byte* Stream::download(const std::byte*, std::size_t) { absent("a stream"); }

void copy_to_device(Stream&, std::byte*, std::span<const std::byte>) { absent("a copy"); }
void copy_to_host(Stream&, std::span<std::byte>, const std::byte*) { absent("a copy"); }
void queue_copy_to_host(Stream&, std::span<std::byte>, const std::byte*) { absent("a copy"); }
void copy_on_device(Stream&, std::byte*, const std::byte*, std::size_t) { absent("a copy"); }
void fill_with_zeros(Stream&, std::byte*, std::size_t) { absent("a fill"); }

}  // namespace longhaul::cuda
