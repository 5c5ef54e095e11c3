#include "cluster/comm/gpu_staging.h"

#include <algorithm>

#include "cluster/comm/gpu_copies.h"

namespace longhaul {

GpuStaging::GpuStaging(cuda::Stream& compute)
    : compute_(compute),
      out_(cuda::current_gpu(), cuda::Urgency::kTransfers),
      in_(cuda::current_gpu(), cuda::Urgency::kTransfers) {}

std::shared_ptr<StagedSend> GpuStaging::send(Communicator& host, int to, Tag tag,
                                             std::span<const std::byte> data) {
  auto send = std::make_shared<StagedSend>();
  send->host = &host;
  send->to = to;
  send->tag = tag;
  send->block = pool_.take(data.size());
  send->data = {send->block->data(), data.size()};
  send->block->copied.record(compute_);  // the data is made by what is queued so far
  out_.wait_for(send->block->copied);
  cuda::queue_copy_to_host(out_, send->block->data(), data.data(), data.size());
  send->block->copied.record(out_);
  waiting_.push_back(send);
  return send;
}

std::shared_ptr<StagedSend> GpuStaging::send_behind(Communicator& host, int to, Tag tag,
                                                    std::span<const std::byte> data) {
  const auto same = [&](const std::shared_ptr<StagedSend>& other) {
    return other->host == &host && other->to == to && other->tag == tag;
  };
  if (std::none_of(waiting_.begin(), waiting_.end(), same)) return nullptr;
  auto send = std::make_shared<StagedSend>();
  send->host = &host;
  send->to = to;
  send->tag = tag;
  send->data = data;
  waiting_.push_back(send);
  return send;
}

void GpuStaging::start_ready() {
  while (!waiting_.empty()) {
    StagedSend& first = *waiting_.front();
    if (first.block && !first.block->copied.is_done()) return;
    first.transfer = first.host->start_send(first.to, first.tag, first.data);
    first.started = true;
    waiting_.pop_front();
  }
}

void GpuStaging::withdraw(const std::shared_ptr<StagedSend>& send) { std::erase(waiting_, send); }

std::shared_ptr<StagedReceive> GpuStaging::receive(Communicator& host, int from, Tag tag,
                                                   std::span<std::byte> target) {
  auto receive = std::make_shared<StagedReceive>();
  receive->target = target;
  receive->block = pool_.take(target.size());
  receive->block->copied.record(compute_);
  receive->transfer = host.start_receive(from, tag, {receive->block->data(), target.size()});
  return receive;
}

void GpuStaging::finish(StagedReceive& receive) {
  in_.wait_for(receive.block->copied);
  cuda::queue_copy_to_gpu(in_, receive.target.data(), receive.block->data(), receive.target.size());
  receive.block->copied.record(in_);
  compute_.wait_for(receive.block->copied);
}

}  // namespace longhaul
