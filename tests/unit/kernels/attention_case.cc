#include "tests/unit/kernels/attention_case.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include "kernels/kv_append.h"
#include "kernels/reference/kv_read.h"

namespace longhaul::test {

std::string describe(const AttentionShape& s) {
  return fmt::format(
      "q_len {} n_kv_heads {} gqa_group {} head_dim {} blocks {} of {} k {} v {} sink {} recent {} "
      "gaps {} after_keys {} tells_heads {} deviation {}",
      s.q_len, s.n_kv_heads, s.gqa_group, s.head_dim, s.n_blocks, s.block_size, name_of(s.k_type),
      name_of(s.v_type), s.mask.sink, s.mask.recent, s.gaps, s.after_keys, s.tells_heads,
      s.deviation);
}

AttentionShape random_shape(Random& random) {
  const auto any_type = [&] {
    return kPlainKvTypes[static_cast<std::size_t>(
        random.integer(0, std::ssize(kPlainKvTypes) - 1))];
  };
  constexpr std::int64_t kHeadDims[] = {8, 10, 16, 32, 64, 80, 96, 128, 256};
  constexpr std::int64_t kBlockSizes[] = {16, 32, 48, 64, 128, 208};
  AttentionShape s;
  s.q_len = random.integer(1, random.chance(0.3) ? 150 : 9);
  s.n_kv_heads = random.integer(1, 2);
  s.gqa_group = random.integer(1, random.chance(0.05) ? 70 : 16);
  s.head_dim = kHeadDims[random.integer(0, 8)];
  s.n_blocks = random.integer(1, 9);
  s.block_size = kBlockSizes[random.integer(0, 5)];
  s.k_type = any_type();
  s.v_type = random.chance(0.6) ? s.k_type : any_type();
  if (is_quantised(s.k_type) || is_quantised(s.v_type)) s.head_dim = (s.head_dim + 7) / 8 * 8;
  if (random.chance(0.5)) s.mask = {random.integer(0, 90), random.integer(0, 200)};
  s.gaps = random.chance(0.6);
  s.after_keys = random.chance(0.3);
  return s;
}

AttentionProblem::AttentionProblem(StreamRef stream, const AttentionShape& shape,
                                   std::uint64_t seed)
    : stream_(stream),
      shape_(shape),
      sm_scale_(shape.deviation / std::sqrt(static_cast<float>(shape.head_dim))),
      q_there_(stream, shape.q_len * n_heads() * shape.head_dim),
      seen_by_there_(stream, 0),
      state_(stream, SoftmaxState(shape.q_len, n_heads(), shape.head_dim)) {
  Random random(seed);
  place_blocks(random);
  fill_blocks(random);
  if (shape.tells_heads) tell_heads(random);
  q_ = random.normals(shape.q_len * n_heads() * shape.head_dim);
  if (shape.deviation > 1.0F) q_ = rounded_to_bf16(q_);
  q_there_.write(q_);
  const std::int64_t last =
      k_positions_.empty() ? 0 : *std::max_element(k_positions_.begin(), k_positions_.end());
  for (std::int64_t i = 0; i < shape.q_len; ++i) {
    q_positions_.push_back(shape.after_keys ? last + i : random.integer(0, last + 3));
  }
  std::sort(q_positions_.begin(), q_positions_.end());
  make_items();
}

KvBlockShape AttentionProblem::block_shape() const {
  return {.block_size = shape_.block_size,
          .head_dim = shape_.head_dim,
          .k_type = shape_.k_type,
          .v_type = shape_.v_type};
}

// All KV heads have their blocks at the same positions, in memory of their own.
void AttentionProblem::place_blocks(Random& random) {
  std::vector<KvBlockRef> places;
  std::int64_t position = 0;
  for (std::int64_t b = 0; b < shape_.n_blocks; ++b) {
    const bool last = b + 1 == shape_.n_blocks;
    KvBlockRef block = {nullptr, position, shape_.block_size};
    if (shape_.gaps || last) block.n_tokens = random.integer(last ? 1 : 0, shape_.block_size);
    if (block_shape().quantises_groups())
      block.n_tokens = (block.n_tokens + kKvGroup - 1) / kKvGroup * kKvGroup;
    position += block.n_tokens + (shape_.gaps ? random.integer(0, 40) : 0);
    places.push_back(block);
  }
  if (shape_.gaps) std::shuffle(places.begin(), places.end(), random.engine());
  for (const KvBlockRef& block : places) {
    for (std::int64_t i = 0; i < block.n_tokens; ++i) {
      k_positions_.push_back(block.first_position + i);
    }
  }
  blocks_.assign(static_cast<std::size_t>(shape_.n_kv_heads), places);
}

void AttentionProblem::fill_blocks(Random& random) {
  const auto kv_len = static_cast<std::int64_t>(k_positions_.size());
  const std::int64_t n_kv_heads = shape_.n_kv_heads;
  k_ = random.normals(kv_len * n_kv_heads * shape_.head_dim);
  v_ = random.normals(kv_len * n_kv_heads * shape_.head_dim);
  for (std::int64_t head = 0; head < n_kv_heads; ++head) {
    std::int64_t token = 0;
    for (KvBlockRef& block : blocks_[static_cast<std::size_t>(head)]) {
      std::vector<std::byte> bytes(block_shape().bytes());
      std::byte* data = bytes.data();
      const auto rows = [&](std::vector<float>& x) {
        return TensorView<float, 2>(x.data() + (token * n_kv_heads + head) * shape_.head_dim,
                                    {block.n_tokens, shape_.head_dim},
                                    {n_kv_heads * shape_.head_dim, 1});
      };
      const KvAppendItem item = {rows(k_), rows(v_), {&data, 1}, 0};
      kv_append(StreamRef::cpu(), {block_shape(), {&item, 1}});
      kv_read_k(block_shape(), data, 0, rows(k_));
      kv_read_v(block_shape(), data, 0, rows(v_));
      memory_.emplace_back(stream_, bytes);
      block.data = memory_.back().data();
      token += block.n_tokens;
    }
  }
}

void AttentionProblem::tell_heads(Random& random) {
  for (std::size_t i = 0; i < k_positions_.size() * blocks_.size(); ++i)
    seen_by_.push_back(static_cast<SeenBy>(random.integer(0, (std::int64_t{1} << 62) - 1)));
  seen_by_there_ = Memory<SeenBy>(stream_, static_cast<std::int64_t>(seen_by_.size()));
  auto next = seen_by_.begin();
  for (auto& blocks : blocks_) {
    for (KvBlockRef& block : blocks) {
      const auto end = next + static_cast<std::ptrdiff_t>(block.n_tokens);
      if (random.chance(0.3)) {
        std::fill(next, end, kSeenByAll);
      } else {
        block.seen_by = seen_by_there_.data() + (next - seen_by_.begin());
      }
      next = end;
    }
  }
  seen_by_there_.write(seen_by_);
}

void AttentionProblem::make_items() {
  const TensorView<const float, 3> q(q_there_.data(), {shape_.q_len, n_heads(), shape_.head_dim});
  for (std::int64_t head = 0; head < shape_.n_kv_heads; ++head) {
    const Extent heads = {head * shape_.gqa_group, (head + 1) * shape_.gqa_group};
    items_.push_back({.q = q.slice(1, heads),
                      .q_positions = q_positions_,
                      .blocks = blocks_[static_cast<std::size_t>(head)],
                      .mask = shape_.mask,
                      .state = state_.view().heads(heads)});
  }
}

std::vector<AttentionItem> AttentionProblem::items_with_blocks(Extent blocks) const {
  std::vector<AttentionItem> out = items_;
  for (AttentionItem& item : out) {
    item.blocks = item.blocks.subspan(static_cast<std::size_t>(blocks.begin),
                                      static_cast<std::size_t>(blocks.size()));
  }
  return out;
}

void AttentionProblem::clear_state() { clear(stream_, state_.view()); }

std::vector<float> AttentionProblem::run() {
  clear_state();
  attention(stream_, args());
  return finished();
}

std::vector<float> AttentionProblem::finished(std::span<const float> sink_logits) {
  const Memory out(stream_, static_cast<std::int64_t>(q_.size()), 0.0F);
  const Memory<float> sinks(stream_, sink_logits);
  finish_attention(stream_, {.state = state_.view(),
                             .sink_logits = sinks.span(),
                             .out = TensorView<float, 3>(
                                 out.data(), {shape_.q_len, n_heads(), shape_.head_dim})});
  return out.values();
}

reference::AttentionCase AttentionProblem::reference_case() const {
  return {.n_heads = n_heads(),
          .n_kv_heads = shape_.n_kv_heads,
          .head_dim = shape_.head_dim,
          .q = {q_.begin(), q_.end()},
          .q_positions = q_positions_,
          .k = {k_.begin(), k_.end()},
          .v = {v_.begin(), v_.end()},
          .k_positions = k_positions_,
          .masks = {{shape_.mask.sink, shape_.mask.recent}},
          .seen_by = seen_by_,
          .sink_logits = {},
          .sm_scale = sm_scale_};
}

}  // namespace longhaul::test
