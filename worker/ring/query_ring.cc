#include "worker/ring/query_ring.h"

#include <numeric>
#include <utility>

#include "kernels/copy_rows.h"
#include "worker/ring/float_bytes.h"

namespace longhaul {
namespace {

// How a car lies in memory: q of all heads, then their states, all floats.
//   q [n_kv_heads, n, gqa_group, head_dim]   o the same   m, l [n_kv_heads, n, gqa_group]
struct CarLayout {
  CarLayout(const QueryRingArgs& args, Extent queries)
      : n(queries.size()),
        group(args.own.q.dim(1) / args.own.kv_heads.size()),
        head_dim(args.own.q.dim(2)),
        n_kv_heads(static_cast<std::int64_t>(args.kv_heads.size())) {}
  std::int64_t rows() const { return n_kv_heads * n * group; }
  std::int64_t q_floats() const { return rows() * head_dim; }
  std::int64_t state_floats() const { return rows() * (head_dim + 2); }
  std::size_t bytes() const { return float_bytes(q_floats() + state_floats()); }
  std::size_t q_bytes() const { return float_bytes(q_floats()); }
  TensorView<float, 3> q(std::byte* car, std::int64_t head) const {
    return {reinterpret_cast<float*>(car) + head * n * group * head_dim, {n, group, head_dim}};
  }
  SoftmaxStateView state(std::byte* car, std::int64_t head) const {
    float* o = reinterpret_cast<float*>(car) + q_floats();
    float* m = o + rows() * head_dim;
    float* l = m + rows();
    const std::int64_t first = head * n * group;
    return {{o + first * head_dim, {n, group, head_dim}},
            {m + first, {n, group}},
            {l + first, {n, group}}};
  }

  std::int64_t n;
  std::int64_t group;
  std::int64_t head_dim;
  std::int64_t n_kv_heads;
};

// The rows of this rank's car in its own tensors.
Extent own_rows(std::span<const Extent> queries, std::size_t car) {
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < car; ++i) begin += queries[i].size();
  return {begin, begin + queries[car].size()};
}

}  // namespace

// Positions of the queries in the car that is here after `hop` hops; empty when there is none.
Extent QueryRing::queries_of(const QueryRingArgs& args, std::int64_t hop, std::size_t car) const {
  const auto& queries = args.queries[context_.origin(hop)];
  return car < queries.size() ? queries[car] : Extent{};
}

void QueryRing::load(const QueryRingArgs& args, std::size_t car) {
  const Extent queries = queries_of(args, 0, car);
  cars_[car].here = 0;
  if (queries.empty()) return;
  const CarLayout layout(args, queries);
  std::byte* here = cars_[car].buffers[0].reserve(context_.stream, layout.bytes());
  const auto& own = args.queries[context_.position()];
  const Extent rows = own_rows(own, car);
  const auto row_bytes = float_bytes(layout.group * layout.head_dim);
  pieces_.clear();
  for (std::int64_t i = 0; i < layout.n_kv_heads; ++i) {
    const KvHeadId kv_head = args.kv_heads[static_cast<std::size_t>(i)];
    const float* first = args.own.q[rows.begin][args.own.heads_of(kv_head).begin].data();
    pieces_.push_back({.to = as_bytes(layout.q(here, i).data()),
                       .to_stride = row_bytes,
                       .from = as_bytes(first),
                       .from_stride = float_bytes(args.own.q.stride(0)),
                       .row_bytes = row_bytes,
                       .n_rows = layout.n});
    clear(context_.stream, layout.state(here, i));
  }
  copy_rows(context_.stream, pieces_);
}

void QueryRing::work(const QueryRingArgs& args, std::int64_t hop, std::size_t car,
                     const Visit& visit) {
  const Extent queries = queries_of(args, hop, car);
  if (queries.empty()) return;
  const CarLayout layout(args, queries);
  std::byte* here = cars_[car].buffers[cars_[car].here].data();
  positions_.resize(static_cast<std::size_t>(queries.size()));
  std::iota(positions_.begin(), positions_.end(), queries.begin);
  visiting_.clear();
  for (std::int64_t i = 0; i < layout.n_kv_heads; ++i) {
    const std::int64_t kv_head = args.kv_heads[static_cast<std::size_t>(i)].value;
    visiting_.push_back({.kv_heads = {kv_head, kv_head + 1},
                         .positions = positions_,
                         .q = layout.q(here, i),
                         .state = layout.state(here, i)});
  }
  visit(visiting_);
}

// Sends on the car that is here and receives the next one; on the last hop the states alone, which
// are home then.
void QueryRing::pass_on(const QueryRingArgs& args, std::int64_t hop, std::size_t car) {
  Car& c = cars_[car];
  const bool going_home = hop + 1 == context_.comm.size();
  const Tag tag{Traffic::kQueries, static_cast<int>(car)};
  const Extent next = queries_of(args, hop + 1, car);
  const std::size_t other = 1 - c.here;
  c.departure = Clock::now();
  Incoming from{context_.comm.previous(), {}};
  Outgoing to{context_.comm.next(), {}};
  if (!next.empty()) {
    const CarLayout layout(args, next);
    const std::size_t skipped = going_home ? layout.q_bytes() : 0;
    std::byte* in = c.buffers[other].reserve(context_.stream, layout.bytes());
    from.buffer = {in + skipped, layout.bytes() - skipped};
  }
  const Extent here = queries_of(args, hop, car);
  if (!here.empty()) {
    const CarLayout layout(args, here);
    const std::size_t skipped = going_home ? layout.q_bytes() : 0;
    to.data = {c.buffers[c.here].data() + skipped, layout.bytes() - skipped};
  }
  Exchange moving = context_.comm.start_exchange(tag, {&from, 1}, {&to, 1});
  c.receive = std::move(moving.receives.front());
  c.send = std::move(moving.sends.front());
}

void QueryRing::arrive(std::size_t car) {
  Car& c = cars_[car];
  context_.wait(c.receive, context_.comm.previous());
  context_.wait(c.send, context_.comm.next());
  context_.add_span(TraceLane::kTransfer, "queries", c.departure);
  c.here = 1 - c.here;
}

void QueryRing::merge_home(const QueryRingArgs& args, std::size_t car) {
  const Extent queries = queries_of(args, 0, car);
  if (queries.empty()) return;
  const CarLayout layout(args, queries);
  const auto& own = args.queries[context_.position()];
  const SoftmaxStateView rows = args.own.state.tokens(own_rows(own, car));
  std::byte* here = cars_[car].buffers[cars_[car].here].data();
  for (std::int64_t i = 0; i < layout.n_kv_heads; ++i) {
    const KvHeadId kv_head = args.kv_heads[static_cast<std::size_t>(i)];
    merge(context_.stream, rows.heads(args.own.heads_of(kv_head)), layout.state(here, i));
  }
}

void QueryRing::run(const QueryRingArgs& args, const Visit& visit) {
  const std::int64_t n_ranks = context_.comm.size();
  for (std::size_t car = 0; car < kCars; ++car) load(args, car);
  for (std::int64_t hop = 0; hop < n_ranks; ++hop) {
    context_.set_hop(hop);
    for (std::size_t car = 0; car < kCars; ++car) {
      if (hop > 0) arrive(car);
      work(args, hop, car, visit);
      if (n_ranks > 1) pass_on(args, hop, car);
    }
  }
  for (std::size_t car = 0; car < kCars; ++car) {
    if (n_ranks > 1) arrive(car);
    merge_home(args, car);
  }
  context_.set_hop(-1);
}

std::size_t QueryRing::buffer_bytes() const {
  std::size_t bytes = 0;
  for (const Car& car : cars_) bytes += car.buffers[0].capacity() + car.buffers[1].capacity();
  return bytes;
}

}  // namespace longhaul
