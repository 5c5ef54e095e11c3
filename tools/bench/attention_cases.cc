#include "tools/bench/attention_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "base/error.h"
#include "kernels/kv_append.h"
#include "kernels/probes/random_values.h"
#include "model/heads/kept_blocks.h"
#include "partition/flops.h"
#include "tools/bench/kernel_cases.h"
#include "tools/eval/number_lists.h"

namespace longhaul::bench {
namespace {

constexpr std::int64_t kBlockSize = 64;
// About what sharp heads of trained models show. Probabilities far below the largest one once
// became denormals, which made attention three times slower.
constexpr float kSharpScores = 40.0F;

bool sees_all(const AttentionMask& mask) { return mask.recent == AttentionMask::kUnlimited; }

AttentionCase checked(AttentionCase c) {
  require(1 <= c.q_len && c.q_len <= c.kv_len, "AttentionCase: more queries than positions");
  if (c.chunk_len == 0) c.chunk_len = c.q_len;
  c.chunk_len = std::min(c.chunk_len, c.q_len);
  return c;
}

std::int64_t n_heads(const AttentionCase& c) { return c.n_kv_heads * c.gqa_group; }

}  // namespace

Work attention_work(const AttentionCase& c, KvType type) {
  const Extent queries{c.kv_len - c.q_len, c.kv_len};
  const KeyWindow kept{c.mask.sink, c.mask.recent};
  const std::int64_t n_keys =
      kept.is_unlimited() ? c.kv_len : std::min(c.kv_len, kept.n_keys(c.kv_len) + c.q_len - 1);
  const std::int64_t cache_bytes = c.n_kv_heads * n_keys * 2 * kv_token_bytes(type, c.head_dim);
  const std::int64_t query_bytes = 4 * c.q_len * n_heads(c) * c.head_dim;
  return {.flops = 4 * visible_keys(kept, queries) * static_cast<double>(n_heads(c) * c.head_dim),
          .bytes = static_cast<double>(cache_bytes + query_bytes)};
}

AttentionRun::AttentionRun(const AttentionCase& c, KvType type)
    : case_(checked(c)),
      shape_{.block_size = kBlockSize, .head_dim = c.head_dim, .k_type = type, .v_type = type},
      n_sink_blocks_(sees_all(c.mask) ? 0 : ceil_div(c.mask.sink, kBlockSize)),
      n_cycle_blocks_(sees_all(c.mask) ? ceil_div(c.kv_len, kBlockSize)
                                       : ceil_div(c.mask.recent + case_.chunk_len, kBlockSize) + 1),
      cache_({c.n_kv_heads * (n_sink_blocks_ + n_cycle_blocks_) *
              static_cast<std::int64_t>(shape_.bytes())}),
      q_({case_.chunk_len, n_heads(c), c.head_dim}),
      state_(case_.chunk_len, n_heads(c), c.head_dim) {
  fill_cache();
  // A sum of head_dim products has the deviation sqrt(head_dim), which sm_scale takes away.
  fill_random({q_.data(), static_cast<std::size_t>(q_.size())}, c.score_deviation, /*seed=*/2);
  for (std::int64_t begin = case_.kv_len - case_.q_len; begin < case_.kv_len;
       begin += case_.chunk_len)
    chunks_.push_back(chunk_of({begin, std::min(case_.kv_len, begin + case_.chunk_len)}));
}

// Keys and values of deviation 1, converted as the engine does.
void AttentionRun::fill_cache() {
  const std::int64_t n_blocks = n_sink_blocks_ + n_cycle_blocks_;
  Tensor<float, 2> k({n_blocks * kBlockSize, case_.head_dim});
  Tensor<float, 2> v({n_blocks * kBlockSize, case_.head_dim});
  for (std::int64_t head = 0; head < case_.n_kv_heads; ++head) {
    const auto seed = static_cast<std::uint64_t>(10 + 2 * head);
    fill_random({k.data(), static_cast<std::size_t>(k.size())}, 1.0F, seed);
    fill_random({v.data(), static_cast<std::size_t>(v.size())}, 1.0F, seed + 1);
    std::vector<std::byte*> blocks;
    for (std::int64_t b = 0; b < n_blocks; ++b) {
      blocks.push_back(cache_.data() +
                       (head * n_blocks + b) * static_cast<std::int64_t>(shape_.bytes()));
    }
    const KvAppendItem item{.k = k.view(), .v = v.view(), .blocks = blocks};
    kv_append(StreamRef::cpu(), {.shape = shape_, .items = {&item, 1}});
  }
}

const std::byte* AttentionRun::block(std::int64_t kv_head, std::int64_t number) const {
  const std::int64_t place = number < n_sink_blocks_
                                 ? number
                                 : n_sink_blocks_ + (number - n_sink_blocks_) % n_cycle_blocks_;
  const std::int64_t index = kv_head * (n_sink_blocks_ + n_cycle_blocks_) + place;
  return cache_.data() + index * static_cast<std::int64_t>(shape_.bytes());
}

std::vector<KvBlockRef> AttentionRun::held_blocks(std::int64_t kv_head, Extent tokens) const {
  std::vector<KvBlockRef> blocks;
  const auto add = [&](std::int64_t b) {
    const std::int64_t first = b * kBlockSize;
    blocks.push_back({block(kv_head, b), first, std::min(kBlockSize, tokens.end - first)});
  };
  const std::int64_t n_blocks = ceil_div(tokens.end, kBlockSize);
  const std::int64_t first_recent =
      sees_all(case_.mask) ? 0 : std::max<std::int64_t>(0, tokens.begin - case_.mask.recent + 1);
  for (std::int64_t b = 0; b < std::min(n_sink_blocks_, n_blocks); ++b) add(b);
  for (std::int64_t b = std::max(n_sink_blocks_, first_recent / kBlockSize); b < n_blocks; ++b) {
    add(b);
  }
  return blocks;
}

AttentionRun::Chunk AttentionRun::chunk_of(Extent tokens) const {
  Chunk chunk{.tokens = tokens, .positions = {}, .blocks = {}};
  for (std::int64_t p = tokens.begin; p < tokens.end; ++p) chunk.positions.push_back(p);
  for (std::int64_t head = 0; head < case_.n_kv_heads; ++head)
    chunk.blocks.push_back(held_blocks(head, tokens));
  return chunk;
}

void AttentionRun::run_chunk(const Chunk& chunk) {
  const Extent rows{0, chunk.tokens.size()};
  const SoftmaxStateView state = state_.view().tokens(rows);
  const TensorView<const float, 3> q = q_.view();
  std::vector<AttentionItem> items;
  for (std::int64_t head = 0; head < case_.n_kv_heads; ++head) {
    const Extent heads{head * case_.gqa_group, (head + 1) * case_.gqa_group};
    items.push_back({.q = q.slice(0, rows).slice(1, heads),
                     .q_positions = chunk.positions,
                     .blocks = chunk.blocks[static_cast<std::size_t>(head)],
                     .mask = case_.mask,
                     .state = state.heads(heads)});
  }
  clear(StreamRef::cpu(), state);
  attention(StreamRef::cpu(), {.shape = shape_,
                               .sm_scale = 1.0F / std::sqrt(static_cast<float>(case_.head_dim)),
                               .items = items});
}

void AttentionRun::run() {
  for (const Chunk& chunk : chunks_) run_chunk(chunk);
}

namespace {

// From `first` on, `factor` times longer each, to `last`; `last` alone when it is shorter.
std::vector<std::int64_t> lengths(std::int64_t first, std::int64_t last, std::int64_t factor) {
  if (last < first) return {last};
  std::vector<std::int64_t> out;
  for (std::int64_t length = first; length <= last; length *= factor) out.push_back(length);
  return out;
}

constexpr KvType kPlainTypes[] = {KvType::kF32, KvType::kBf16};
constexpr KvType kQuantisedTypes[] = {KvType::kInt8, KvType::kFp8, KvType::kInt4, KvType::kKivi4,
                                      KvType::kKivi2};

class CaseList {
 public:
  void add(const std::string& name, const AttentionCase& c, std::span<const KvType> types) {
    for (const KvType type : types) add_one(name, "", c, type);
  }
  // Cases "NAME_LENGTH/..." of the family "NAME/...".
  void add_family(const std::string& name, const std::string& variant, AttentionCase c,
                  const std::vector<std::int64_t>& all_lengths) {
    for (const KvType type : kPlainTypes) {
      for (const std::int64_t length : all_lengths) {
        c.q_len = c.kv_len = length;
        add_one(fmt::format("{}_{}/{}", name, length_text(length), variant),
                fmt::format("attention/{}/{}/{}", name, variant, name_of(type)), c, type);
      }
    }
  }
  std::vector<KernelCase> take() { return std::move(cases_); }

 private:
  void add_one(const std::string& name, const std::string& family, const AttentionCase& c,
               KvType type) {
    cases_.push_back({.name = fmt::format("attention/{}/{}", name, name_of(type)),
                      .family = family,
                      .length = c.kv_len,
                      .work = attention_work(c, type),
                      .dtype = type == KvType::kF32 ? DType::kF32 : DType::kBf16,
                      .prepare = [c, type]() -> std::function<void()> {
                        const auto run = std::make_shared<AttentionRun>(c, type);
                        return [run] { run->run(); };
                      }});
  }
  std::vector<KernelCase> cases_;
};

}  // namespace

std::vector<KernelCase> attention_cases(std::int64_t max_length, std::int64_t chunk_len) {
  require(max_length >= 1 && chunk_len >= 1, "attention_cases: lengths of at least 1");
  CaseList list;
  const std::int64_t long_length = std::min<std::int64_t>(max_length, 65536);
  const std::int64_t short_length = std::min<std::int64_t>(max_length, 8192);
  const std::string long_text = length_text(long_length);
  const AttentionMask streaming = {.sink = 128, .recent = 256};
  for (const std::int64_t d : {std::int64_t{64}, std::int64_t{128}}) {
    list.add_family("causal", fmt::format("d{}", d), {.gqa_group = 4, .head_dim = d},
                    lengths(8192, long_length, 2));
  }
  list.add(fmt::format("causal_{}/d128", length_text(short_length)),
           {.q_len = short_length, .kv_len = short_length, .gqa_group = 4, .head_dim = 128},
           kQuantisedTypes);
  list.add(fmt::format("causal_sharp_{}/d128", length_text(short_length)),
           {.q_len = short_length,
            .kv_len = short_length,
            .gqa_group = 4,
            .head_dim = 128,
            .score_deviation = kSharpScores},
           kPlainTypes);
  list.add(fmt::format("history_{}/d128", long_text),
           {.q_len = std::min<std::int64_t>(512, long_length),
            .kv_len = long_length,
            .gqa_group = 4,
            .head_dim = 128},
           kAllKvTypes);
  for (const std::int64_t d : {std::int64_t{64}, std::int64_t{128}}) {
    list.add_family("streaming", fmt::format("d{}/chunk_{}", d, length_text(chunk_len)),
                    {.gqa_group = 4, .head_dim = d, .mask = streaming, .chunk_len = chunk_len},
                    lengths(16384, max_length, 4));
  }
  const auto decode = [&](std::int64_t head_dim, std::int64_t gqa_group, float deviation = 1.0F) {
    list.add(fmt::format("decode{}_{}/d{}/gqa{}", deviation > 1 ? "_sharp" : "", long_text,
                         head_dim, gqa_group),
             {.q_len = 1,
              .kv_len = long_length,
              .n_kv_heads = 4,
              .gqa_group = gqa_group,
              .head_dim = head_dim,
              .score_deviation = deviation},
             kAllKvTypes);
  };
  decode(128, 4);
  decode(128, 8);
  decode(64, 1);
  decode(128, 4, kSharpScores);
  return list.take();
}

}  // namespace longhaul::bench
