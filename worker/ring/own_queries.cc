#include "worker/ring/own_queries.h"

namespace longhaul {

void OwnQueries::narrow(const PrefillLayer& layer) {
  number_ = layer.number;
  positions_ = layer.queries[stage_.position()];
  rows_.clear();
  std::int64_t n_rows = 0;
  for (const Extent& queries : positions_) {
    rows_.push_back({n_rows, n_rows + queries.size()});
    n_rows += queries.size();
  }
  StepBuffers& b = compute_.buffers();
  // The chunk's last token is the last row of its rank.
  const std::int64_t n_before = b.hidden.dim(0);
  if (n_rows < n_before) b.keep_rows({n_before - n_rows, n_before});
  all_ = {
      .kv_heads = {0, layout_.n_kv_heads()}, .positions = b.positions, .q = b.q, .state = b.state};
}

void OwnQueries::project(const PrefillLayer& layer) {
  narrow(layer);
  if (empty()) return;
  const auto begin = Clock::now();
  compute_.project_queries(compute_.weights().layer(layer.number), all_.q);
  context_.add_span(TraceLane::kCompute, "queries", begin);
  const PhaseTimer timer(compute_.times(), Phase::kAttend);
  clear(compute_.stream(), all_.state);
}

void OwnQueries::take(const PrefillLayer& layer) {
  narrow(layer);
  if (empty()) return;
  const PhaseTimer timer(compute_.times(), Phase::kAttend);
  clear(compute_.stream(), all_.state);
}

void OwnQueries::attend(const Train& train, const std::byte* bytes) {
  if (empty()) return;
  const std::size_t block_bytes = layout_.shape().bytes();
  refs_.clear();
  for (std::size_t i = 0; i < train.size(); ++i) {
    refs_.push_back({.data = bytes + i * block_bytes,
                     .first_position = train[i].tokens.begin,
                     .n_tokens = train[i].tokens.size()});
  }
  this->begin();
  for (std::size_t begin = 0; begin < train.size();) {
    const KvHeadId kv_head = train[begin].kv_head;
    std::size_t end = begin;
    while (end < train.size() && train[end].kv_head == kv_head) ++end;
    add(kv_head, {.closed = std::span(refs_).subspan(begin, end - begin)});
    begin = end;
  }
  run();
}

void OwnQueries::add(KvHeadId kv_head, const AttentionWork::Blocks& blocks) {
  for (const Extent& rows : rows_) work_.add(all_, kv_head, rows, blocks);
}

void OwnQueries::add_visitor(const QueryRows& queries, std::span<const KvBlockRef> blocks) {
  work_.add(queries, {queries.kv_heads.begin}, {0, queries.q.dim(0)}, {.closed = blocks});
}

void OwnQueries::run() {
  const PhaseTimer timer(compute_.times(), Phase::kAttend);
  const auto begin = Clock::now();
  work_.run(compute_.order());
  context_.add_span(TraceLane::kCompute, "attend", begin);
}

}  // namespace longhaul
