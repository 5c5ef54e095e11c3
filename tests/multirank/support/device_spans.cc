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

DeviceSpans::Posted DeviceSpans::prepared_send(std::span<const std::byte> data) {
  Posted posted;
  posted.device = cuda::Buffer(data.size());
  posted.pinned = cuda::PinnedBuffer(data.size());
  if (!data.empty()) std::memcpy(posted.pinned.data(), data.data(), data.size());
  cuda::queue_copy_to_gpu(stream_, posted.device.data(), posted.pinned.data(), data.size());
  return posted;
}

DeviceSpans::Posted DeviceSpans::prepared_receive(std::span<std::byte> buffer) {
  Posted posted;
  posted.device = cuda::Buffer(buffer.size());
  posted.pinned = cuda::PinnedBuffer(buffer.size());
  posted.target = buffer;
  // Stands for the last use of the buffer's old content.
  cuda::fill_with_zeros(stream_, posted.device.data(), buffer.size());
  return posted;
}

int DeviceSpans::post_send(int to, Tag tag, std::span<const std::byte> data) {
  Posted posted = prepared_send(data);
  posted.transfer = gpu_.start_send(to, tag, {posted.device.data(), data.size()});
  return posted_.add(std::move(posted));
}

int DeviceSpans::post_receive(int from, Tag tag, std::span<std::byte> buffer) {
  Posted posted = prepared_receive(buffer);
  posted.transfer = gpu_.start_receive(from, tag, {posted.device.data(), buffer.size()});
  return posted_.add(std::move(posted));
}

std::vector<int> DeviceSpans::post_exchange(Tag tag, std::span<const Incoming> in,
                                            std::span<const Outgoing> out) {
  std::vector<Posted> posted;
  std::vector<Incoming> device_in;
  std::vector<Outgoing> device_out;
  for (const Incoming& part : in) {
    posted.push_back(prepared_receive(part.buffer));
    device_in.push_back({part.from, {posted.back().device.data(), part.buffer.size()}});
  }
  for (const Outgoing& part : out) {
    posted.push_back(prepared_send(part.data));
    device_out.push_back({part.to, {posted.back().device.data(), part.data.size()}});
  }
  Exchange exchange = gpu_.start_exchange(tag, device_in, device_out);
  std::vector<int> tickets;
  for (std::size_t i = 0; i < posted.size(); ++i) {
    posted[i].transfer =
        std::move(i < in.size() ? exchange.receives[i] : exchange.sends[i - in.size()]);
    tickets.push_back(posted_.add(std::move(posted[i])));
  }
  return tickets;
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
