#include "tests/multirank/support/device_spans.h"

#include <cstring>
#include <utility>

#include "cluster/comm/gpu_copies.h"

namespace longhaul::test {

DeviceSpans::DeviceSpans(Communicator& gpu, cuda::Stream& stream)
    : Communicator(group_of(gpu), family_of(gpu)), gpu_(gpu), stream_(stream) {}

DeviceSpans::DeviceSpans(std::unique_ptr<Communicator> gpu, cuda::Stream& stream)
    : Communicator(group_of(*gpu), family_of(*gpu)),
      owned_(std::move(gpu)),
      gpu_(*owned_),
      stream_(stream) {}

std::unique_ptr<Communicator> DeviceSpans::split(int color, int key) {
  std::unique_ptr<Communicator> part = gpu_.split(color, key);
  if (!part) return nullptr;
  return std::unique_ptr<Communicator>(new DeviceSpans(std::move(part), stream_));
}

int DeviceSpans::post_send(int to, Tag tag, std::span<const std::byte> data) {
  Posted posted;
  posted.device = cuda::Buffer(data.size());
  posted.pinned = cuda::PinnedBuffer(data.size());
  if (!data.empty()) std::memcpy(posted.pinned.data(), data.data(), data.size());
  cuda::queue_copy_to_gpu(stream_, posted.device.data(), posted.pinned.data(), data.size());
  posted.transfer = gpu_.start_send(to, tag, {posted.device.data(), data.size()});
  return posted_.add(std::move(posted));
}

int DeviceSpans::post_receive(int from, Tag tag, std::span<std::byte> buffer) {
  Posted posted;
  posted.device = cuda::Buffer(buffer.size());
  posted.pinned = cuda::PinnedBuffer(buffer.size());
  posted.target = buffer;
  // Stands for the last use of the buffer's old content.
  cuda::fill_with_zeros(stream_, posted.device.data(), buffer.size());
  posted.transfer = gpu_.start_receive(from, tag, {posted.device.data(), buffer.size()});
  return posted_.add(std::move(posted));
}

void DeviceSpans::finish(int ticket) {
  Posted& posted = posted_[ticket];
  if (!posted.target.empty()) {
    cuda::queue_copy_to_host(stream_, posted.pinned.data(), posted.device.data(),
                             posted.target.size());
    stream_.synchronise();
    std::memcpy(posted.target.data(), posted.pinned.data(), posted.target.size());
  }
  posted_.release(ticket);
}

bool DeviceSpans::test_ticket(int ticket) {
  if (!posted_[ticket].transfer.test()) return false;
  finish(ticket);
  return true;
}

bool DeviceSpans::wait_ticket(int ticket, Deadline deadline) {
  posted_[ticket].transfer.wait(deadline);
  finish(ticket);
  return true;
}

}  // namespace longhaul::test
