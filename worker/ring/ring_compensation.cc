#include "worker/ring/ring_compensation.h"

#include <algorithm>

#include "base/error.h"

namespace longhaul {
namespace {

constexpr Tag kSumsTag{Traffic::kHalo, /*stream=*/1};  // beside the windows' blocks

}  // namespace

bool RingCompensation::is_for(LayerId layer) const {
  for (const KvHeadId kv_head : layout_.kv_head_ids()) {
    if (layout_.leaves_rest(layer, kv_head)) return true;
  }
  return false;
}

void RingCompensation::sum_up(const PrefillLayer& layer, const BlocksOf& blocks_of) {
  start(layer, blocks_of);
  for (std::size_t i = 0; i < slabs_.size(); ++i) {
    const Slab& slab = slabs_[i];
    if (slab.tokens.empty()) continue;
    hand_on(slab.tokens.begin);
    if (slab.owner != stage_.position() && !stage_.plan().reproducible) continue;
    for (Head& head : heads_) head.at_slabs[i] = head.sums;
    let_go(slab.tokens.end);
  }
  hand_on(layer.chunk.tokens.end);
  for (Head& head : heads_) {
    if (head.home == stage_.position()) layer.cache.gone(layer_, head.kv_head) = head.sums;
  }
  for (Message& message : sent_) context_.wait(message.transfer, message.to);
}

void RingCompensation::start(const PrefillLayer& layer, const BlocksOf& blocks_of) {
  layer_ = layer.number;
  slabs_ = layer.chunk.slabs;
  heads_.clear();
  sent_.clear();
  const RingPos me = stage_.position();
  std::vector<RingPos> homes;
  for (const KvHeadId kv_head : layout_.kv_head_ids()) {
    if (!layout_.leaves_rest(layer_, kv_head)) continue;
    const RingPos home = layer.homes.homes[kv_head].positions.front();
    if (stage_.plan().reproducible && home != me) continue;
    Head& head = heads_.emplace_back();
    head.kv_head = kv_head;
    head.home = home;
    if (home == me) head.sums = layer.cache.gone(layer_, kv_head);
    const std::span<const KvBlockRef> blocks = blocks_of(kv_head);
    head.blocks.assign(blocks.begin(), blocks.end());
    std::ranges::sort(head.blocks, {}, &KvBlockRef::first_position);
    head.at_slabs.resize(slabs_.size());
    window_ = layout_.window(layer_, kv_head);
    homes.push_back(home);
  }
  hops_ = stage_.plan().reproducible ? std::vector<SumHop>() : sum_hops(slabs_, window_, homes);
  sent_.reserve(hops_.size());
}

// The sums for the query at this position, to and from this rank.
void RingCompensation::hand_on(std::int64_t position) {
  for (const SumHop& hop : hops_) {
    if (hop.position != position) continue;
    if (hop.from == stage_.position()) send(hop);
    if (hop.to == stage_.position()) receive(hop);
  }
}

std::size_t RingCompensation::n_values(const SumHop& hop) const {
  return hop.heads.size() * static_cast<std::size_t>(sums_of_head(layout_.shape().head_dim));
}

void RingCompensation::send(const SumHop& hop) {
  Message& message = sent_.emplace_back();
  message.to = hop.to;
  message.sums.reserve(n_values(hop));
  for (const std::int64_t i : hop.heads) {
    const GoneSums& sums = heads_[static_cast<std::size_t>(i)].sums;
    message.sums.insert(message.sums.end(), sums.k.begin(), sums.k.end());
    message.sums.insert(message.sums.end(), sums.v.begin(), sums.v.end());
  }
  message.transfer = context_.comm.start_send(static_cast<int>(hop.to.value), kSumsTag,
                                              std::as_bytes(std::span(message.sums)));
}

void RingCompensation::receive(const SumHop& hop) {
  const auto head_dim = static_cast<std::ptrdiff_t>(layout_.shape().head_dim);
  received_.reserve(n_values(hop));
  received_.resize(n_values(hop));
  Transfer transfer = context_.comm.start_receive(static_cast<int>(hop.from.value), kSumsTag,
                                                  std::as_writable_bytes(std::span(received_)));
  context_.wait(transfer, hop.from);
  auto next = received_.cbegin();
  for (const std::int64_t i : hop.heads) {
    GoneSums& sums = heads_[static_cast<std::size_t>(i)].sums;
    sums.k.assign(next, next + head_dim);
    sums.v.assign(next + head_dim, next + 2 * head_dim);
    sums.n = window_.n_gone(hop.position);
    next += 2 * head_dim;
  }
}

void RingCompensation::let_go(std::int64_t next) {
  const PhaseTimer timer(context_.times, Phase::kAttend);
  const auto begin = Clock::now();
  work_.begin(layer_);
  for (Head& head : heads_) work_.let_go(head.kv_head, head.sums, head.blocks, {next});
  work_.run();
  context_.add_span(TraceLane::kCompute, "sums of what is gone", begin);
}

void RingCompensation::add(const QueryRows& queries, KvHeadId kv_head, Extent rows) {
  const auto head = std::ranges::find(heads_, kv_head, &Head::kv_head);
  if (head == heads_.end() || rows.empty()) return;
  const std::int64_t first = queries.positions[static_cast<std::size_t>(rows.begin)];
  const std::int64_t last = queries.positions[static_cast<std::size_t>(rows.end - 1)];
  const auto slab =
      std::ranges::find_if(slabs_, [&](const Slab& s) { return first < s.tokens.end; });
  require(slab != slabs_.end() && slab->tokens.begin <= first && last < slab->tokens.end,
          "compensation keys: queries are not of one slab");
  work_.add(queries, kv_head, rows, head->at_slabs[static_cast<std::size_t>(slab - slabs_.begin())],
            head->blocks, {last});
}

std::size_t RingCompensation::buffer_bytes() const {
  std::size_t n = received_.capacity();
  const auto add = [&](const GoneSums& sums) { n += sums.k.capacity() + sums.v.capacity(); };
  for (const Head& head : heads_) {
    add(head.sums);
    for (const GoneSums& sums : head.at_slabs) add(sums);
  }
  for (const Message& message : sent_) n += message.sums.capacity();
  return n * sizeof(double);
}

}  // namespace longhaul
