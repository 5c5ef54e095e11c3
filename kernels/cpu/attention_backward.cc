// attention_backward on CPUs: segments of queries, one after the other in tiles, for the threads.
#include <algorithm>
#include <vector>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/operators.h"

namespace longhaul::cpu {
namespace {

constexpr std::int64_t kTileRows = 64;         // queries times heads that meet their keys together
constexpr std::int64_t kSegmentQueries = 256;  // of a task, which sums up what its keys get

// Which keys some queries see, by their index: the sinks [0, n_sinks), then those of `window`.
struct KeyReach {
  std::int64_t n_sinks = 0;
  Extent window;
  std::int64_t n() const { return n_sinks + window.size(); }
};

class Windows {
 public:
  explicit Windows(const AttentionBackwardArgs& args) : args_(args) {}

  KeyReach of(Extent queries) const {
    const std::int64_t first = position(queries.begin);
    const std::int64_t last = position(queries.end - 1);
    KeyReach reach;
    reach.window = {first_key(lowest_recent(first)), first_key(last + 1)};
    reach.n_sinks = std::min(first_key(std::min(args_.mask.sink, last + 1)), reach.window.begin);
    return reach;
  }
  // Counted through `reach`.
  SeenKeys seen(std::int64_t query, const KeyReach& reach) const {
    const std::int64_t at = position(query);
    const auto place = [&](std::int64_t key) {
      return key < reach.n_sinks
                 ? key
                 : reach.n_sinks + std::max<std::int64_t>(0, key - reach.window.begin);
    };
    const std::int64_t end = place(first_key(at + 1));
    const std::int64_t gap_begin = std::min(end, place(first_key(args_.mask.sink)));
    const std::int64_t gap_end = std::min(end, place(first_key(lowest_recent(at))));
    return {gap_begin, std::max(gap_begin, gap_end), end};
  }

 private:
  std::int64_t position(std::int64_t query) const {
    return args_.q_positions[static_cast<std::size_t>(query)];
  }
  std::int64_t lowest_recent(std::int64_t at) const {
    return args_.mask.recent > at ? 0 : at - args_.mask.recent + 1;
  }
  // The index of the first key at `position` or behind it.
  std::int64_t first_key(std::int64_t position) const {
    const auto& all = args_.k_positions;
    return std::lower_bound(all.begin(), all.end(), position) - all.begin();
  }

  const AttentionBackwardArgs& args_;
};

// What the keys of one segment of queries get: [reach.n(), head_dim] for K, then for V.
struct Share {
  KeyReach reach;
  std::vector<float> sums;
};

class HeadGradients {
 public:
  explicit HeadGradients(const AttentionBackwardArgs& args)
      : args_(args),
        windows_(args),
        group_(args.q.dim(1) / args.k.dim(1)),
        head_dim_(args.q.dim(2)),
        n_segments_(ceil_div(args.q.dim(0), kSegmentQueries)),
        shares_(static_cast<std::size_t>(n_segments_ * args.k.dim(1))) {}

  void run() {
    const std::int64_t n_kv_heads = args_.k.dim(1);
    parallel_for(n_segments_ * n_kv_heads, [&](std::int64_t task) {
      run_segment(task / n_kv_heads, task % n_kv_heads, shares_[static_cast<std::size_t>(task)]);
    });
    parallel_for(n_kv_heads, [&](std::int64_t head) { add_shares(head); });
  }

 private:
  void run_segment(std::int64_t segment, std::int64_t kv_head, Share& share);
  void run_tile(Extent queries, std::int64_t kv_head, const Share& share, float* d_k, float* d_v);
  void add_shares(std::int64_t kv_head);

  const AttentionBackwardArgs& args_;
  Windows windows_;
  std::int64_t group_;
  std::int64_t head_dim_;
  std::int64_t n_segments_;
  std::vector<Share> shares_;  // [segments, KV heads]
};

void HeadGradients::run_segment(std::int64_t segment, std::int64_t kv_head, Share& share) {
  const Extent queries{segment * kSegmentQueries,
                       std::min(args_.q.dim(0), (segment + 1) * kSegmentQueries)};
  share.reach = windows_.of(queries);
  share.sums.assign(static_cast<std::size_t>(2 * share.reach.n() * head_dim_), 0.0F);
  float* d_k = share.sums.data();
  float* d_v = d_k + share.reach.n() * head_dim_;
  const std::int64_t step = std::max<std::int64_t>(1, kTileRows / group_);
  for (std::int64_t begin = queries.begin; begin < queries.end; begin += step)
    run_tile({begin, std::min(queries.end, begin + step)}, kv_head, share, d_k, d_v);
}

void HeadGradients::run_tile(Extent queries, std::int64_t kv_head, const Share& share, float* d_k,
                             float* d_v) {
  thread_local Scratch scratch;
  thread_local std::vector<SeenKeys> seen;
  const KeyReach reach = windows_.of(queries);
  seen.clear();
  for (std::int64_t i = queries.begin; i < queries.end; ++i)
    seen.push_back(windows_.seen(i, reach));
  // Sinks of the tile that lie in the segment's window are there, behind the segment's sinks.
  const auto run = [&](Extent keys) {
    const std::int64_t at = keys.begin < share.reach.n_sinks
                                ? keys.begin
                                : share.reach.n_sinks + keys.begin - share.reach.window.begin;
    const std::int64_t from = std::min(keys.begin, args_.k.dim(0) - 1);
    return KeyRun{.k = args_.k[from][kv_head].data(),
                  .v = args_.v[from][kv_head].data(),
                  .d_k = d_k + at * head_dim_,
                  .d_v = d_v + at * head_dim_,
                  .n = keys.size()};
  };
  const std::int64_t n_rows = queries.size() * group_;
  const std::int64_t first_head = kv_head * group_;
  const auto at = [&](const auto& x) { return x[queries.begin][first_head].data(); };
  kernels().attention_backward(
      {.q = at(args_.q),
       .d_o = at(args_.d_o),
       .o = at(args_.o),
       .d_q = at(args_.d_q),
       .token_stride = args_.q.stride(0),
       .n_queries = queries.size(),
       .gqa_group = group_,
       .head_dim = head_dim_,
       .sm_scale = args_.sm_scale,
       .sink_logits = args_.sink_logits.empty() ? nullptr : args_.sink_logits.data() + first_head,
       .seen = seen.data(),
       .runs = {run({0, reach.n_sinks}), run(reach.window)},
       .key_stride = args_.k.stride(0),
       .scratch =
           scratch.floats(kernels().attention_backward_scratch(n_rows, reach.n(), head_dim_))});
}

// In the segments' order.
void HeadGradients::add_shares(std::int64_t kv_head) {
  const auto clear = [&](const TensorView<float, 3>& x) {
    for (std::int64_t key = 0; key < x.dim(0); ++key)
      std::fill_n(x[key][kv_head].data(), head_dim_, 0.0F);
  };
  clear(args_.d_k);
  clear(args_.d_v);
  for (std::int64_t segment = 0; segment < n_segments_; ++segment) {
    const Share& share = shares_[static_cast<std::size_t>(segment * args_.k.dim(1) + kv_head)];
    const KeyReach& reach = share.reach;
    for (std::int64_t i = 0; i < reach.n(); ++i) {
      const std::int64_t key = i < reach.n_sinks ? i : reach.window.begin + i - reach.n_sinks;
      const auto add = [&](const TensorView<float, 3>& to, std::int64_t row) {
        float* out = to[key][kv_head].data();
        kernels().combine({.out = out,
                           .x = out,
                           .a = 1.0F,
                           .y = share.sums.data() + row * head_dim_,
                           .b = 1.0F,
                           .n = head_dim_});
      };
      add(args_.d_k, i);
      add(args_.d_v, reach.n() + i);
    }
  }
}

}  // namespace

void attention_backward(const AttentionBackwardArgs& args) { HeadGradients(args).run(); }

}  // namespace longhaul::cpu
