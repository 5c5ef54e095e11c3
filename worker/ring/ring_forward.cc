#include "worker/ring/ring_forward.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "cluster/wire/codec.h"
#include "kernels/copy_rows.h"
#include "worker/attention/accumulate.h"
#include "worker/attention/compaction.h"
#include "worker/ring/float_bytes.h"

namespace longhaul {
namespace {

// The tokens of these positions out of a chunk that starts at `first`.
std::vector<std::int32_t> tokens_at(std::span<const std::int32_t> tokens, TokenPos first,
                                    std::span<const Extent> slabs) {
  std::vector<std::int32_t> out;
  for (const Extent& slab : slabs) {
    const auto part = tokens.subspan(static_cast<std::size_t>(slab.begin - first.value),
                                     static_cast<std::size_t>(slab.size()));
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

}  // namespace

RingForward::RingForward(const RingForwardConfig& config, LayerCompute& compute,
                         const CacheLayout& layout)
    : stage_(config.stage),
      compute_(compute),
      layout_(layout),
      ring_comm_(config.comm.split(static_cast<int>(stage_.number()),
                                   static_cast<int>(stage_.position().value))),
      replica_{.comm = config.comm,
               .times = compute.times(),
               .board = config.board,
               .trace = config.trace,
               .stream = compute.stream()},
      ring_{.comm = *ring_comm_,
            .times = compute.times(),
            .board = config.board,
            .trace = config.trace,
            .stream = compute.stream()},
      links_(stage_, replica_),
      prefill_(compute, layout, stage_, config.place, ring_),
      decode_(compute, layout, stage_, ring_) {
  require(ring_comm_->size() == stage_.n_ranks(),
          "RingPlace: the communicator does not hold the ranks of the plan's replica");
  ring_comm_->prepare_exchanges();
}

RingChunk RingForward::chunk_of(Extent positions, WantedRows wanted) const {
  return {stage_.stage(), stage_.plan().kv, positions, wanted};
}

void RingForward::set_positions(std::span<const Extent> slabs) {
  auto at = compute_.buffers().positions.begin();
  for (const Extent& slab : slabs) {
    std::iota(at, at + slab.size(), slab.begin);
    at += slab.size();
  }
  compute_.set_angles();
}

HiddenRows RingForward::prefill(const ForwardChunk& wanted) {
  const bool observes = n_observed_queries(layout_) > 0 || observes_all(layout_);
  const RingChunk chunk = chunk_of(wanted.positions(), observes ? WantedRows::kAll : wanted.wanted);
  const auto& slabs = chunk.made[stage_.position()];
  compute_.set_rows(chunk.n_rows(stage_.position()));
  set_positions(slabs);
  if (stage_.is_first()) {
    compute_.embed(tokens_at(wanted.tokens, wanted.first_position, slabs));
  } else {
    links_.receive_chunk(chunk.tokens, compute_.buffers().hidden);
  }
  prefill_.run(chunk, wanted.cache);
  const TensorView<const float, 2> hidden = compute_.buffers().hidden;
  if (stage_.is_last()) {
    return {.rows = hidden, .tokens = chunk.queries(/*is_last_layer=*/true)[stage_.position()]};
  }
  links_.send_chunk(chunk.tokens, hidden);
  return {.rows = hidden.slice(0, {0, 0}), .tokens = {}};
}

TensorView<const float, 2> RingForward::decode(std::span<const DecodeRow> rows,
                                               std::span<const std::int32_t> tokens) {
  compute_.set_rows(static_cast<std::int64_t>(tokens.size()), RowsOf::kAnswers);
  std::vector<Extent> positions;
  for (const DecodeRow& row : rows) positions.push_back(row.positions());
  set_positions(positions);
  if (stage_.is_first()) {
    compute_.embed(tokens);
  } else {
    links_.receive_rows(compute_.buffers().hidden);
  }
  decode_.run(rows);
  const TensorView<const float, 2> hidden = compute_.buffers().hidden;
  if (!stage_.is_last()) links_.send_rows(hidden);
  return hidden;
}

void RingForward::compact(SequenceCache& cache, KeepWhen when) {
  const GatherBytes gather = ring_.gather();
  longhaul::compact({.stream = compute_.stream(),
                     .weights = compute_.weights(),
                     .layout = layout_,
                     .when = when,
                     .gather = gather},
                    cache);
}

void RingForward::pick(const TensorView<const float, 2>& hidden,
                       std::span<const LogitsQuestion> questions, LogitsReader& reader,
                       std::vector<PickedToken>& answers) {
  if (!stage_.is_last()) return;
  const Extent slice = stage_.vocab_slice();
  read_slices(slice.empty() ? hidden.slice(1, {0, 0}) : compute_.logits(hidden, slice), questions,
              reader, answers);
}

// Brings the slices together on the rank that answers. Ranks with nothing to say send nothing.
void RingForward::read_slices(const TensorView<const float, 2>& logits,
                              std::span<const LogitsQuestion> questions, LogitsReader& reader,
                              std::vector<PickedToken>& answers) {
  const auto& slices = stage_.stage().vocab_slice;
  const std::int64_t n_rows = logits.dim(0);
  Communicator& comm = ring_.comm;
  const auto* own = as_bytes(logits.data());
  if (!this->answers()) {
    const Outgoing to{0, {own, float_bytes(logits.size())}};
    Exchange moving = comm.start_exchange({Traffic::kOther}, {}, {&to, 1});
    ring_.wait(moving.sends.front(), 0);
    return;
  }
  const std::int64_t vocab_size = compute_.spec().vocab_size;
  std::byte* whole = logits_.reserve(ring_.stream, float_bytes(n_rows * vocab_size));
  std::byte* received = received_logits_.reserve(
      ring_.stream, float_bytes(n_rows * (vocab_size - slices.front().size())));
  const auto place = [&](const std::byte* slice_logits, Extent slice) {
    const CopyRowsItem item{.to = whole + float_bytes(slice.begin),
                            .to_stride = float_bytes(vocab_size),
                            .from = slice_logits,
                            .from_stride = float_bytes(slice.size()),
                            .row_bytes = float_bytes(slice.size()),
                            .n_rows = n_rows};
    copy_rows(ring_.stream, {&item, 1});
  };
  std::vector<Incoming> in;
  for (const RingPos from : IdRange<RingPos>({1, slices.n()})) {
    const std::size_t n_bytes = float_bytes(n_rows * slices[from].size());
    in.push_back({static_cast<int>(from.value), {received, n_bytes}});
    received += n_bytes;
  }
  Exchange moving = comm.start_exchange({Traffic::kOther}, in, {});
  if (logits.size() > 0) place(own, slices.front());
  for (std::size_t i = 0; i < in.size(); ++i) {
    ring_.wait(moving.receives[i], in[i].from);
    const Extent slice = slices[RingPos{in[i].from}];
    if (!slice.empty()) place(in[i].buffer.data(), slice);
  }
  reader.read({reinterpret_cast<const float*>(whole), {n_rows, vocab_size}}, questions, answers);
}

std::vector<PickedToken> RingForward::gather_scored(Extent positions,
                                                    std::vector<PickedToken> own) {
  if (!stage_.is_last()) return {};
  const RingChunk chunk = chunk_of(positions, WantedRows::kAll);
  StepDone mine;
  mine.scored = std::move(own);
  const auto all = ring_.comm.all_gather_varying(encode(StepResult(std::move(mine))));
  std::vector<PickedToken> in_order;
  if (!answers()) return in_order;
  OfRing<std::vector<PickedToken>> of_rank;
  for (const auto& bytes : all) of_rank.push_back(std::get<StepDone>(decode_result(bytes)).scored);
  // A slab gives the scores of its tokens' successors, so the chunk's last token gives none.
  OfRing<std::size_t> next(of_rank.size(), 0);
  for (const Slab& slab : chunk.slabs) {
    const auto n = static_cast<std::size_t>(std::max<std::int64_t>(
        0, std::min(slab.tokens.end, chunk.tokens.end - 1) - slab.tokens.begin));
    for (std::size_t i = 0; i < n; ++i) {
      in_order.push_back(std::move(of_rank[slab.owner].at(next[slab.owner]++)));
    }
  }
  return in_order;
}

TrafficCounters RingForward::traffic() const {
  TrafficCounters sum = replica_.comm.traffic();
  sum += ring_comm_->traffic();
  sum += links_.traffic();
  return sum;
}

}  // namespace longhaul
