// begin_attention is norms, RoPE, kv_append and clear, one after the other: the same bits, with
// every instruction set and on the GPU.
#include "kernels/begin_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

struct BeginCase {
  std::int64_t n_heads;
  std::int64_t n_kv_heads;
  std::int64_t head_dim;
  std::int64_t rotary_dim;
  bool has_norms;
};

// Random q, k, v of these tokens, on GPUs side by side, and what attention begins with.
class BeginAttention : public EachDevice {
 protected:
  struct Heads {
    Memory<float> memory;
    TensorView<float, 3> q, k, v;
  };
  struct Outcome {
    std::vector<float> q;
    std::vector<std::vector<std::byte>> blocks;
    SoftmaxState state;
  };
  static constexpr std::int64_t kTokens = 21;
  static constexpr std::int64_t kSlot = 5;  // of the first token

  Heads heads(const BeginCase& c) const;
  Outcome run(const BeginCase& c, const KvBlockShape& shape, bool at_once) const;
};
LONGHAUL_ON_EACH_DEVICE(BeginAttention);

BeginAttention::Heads BeginAttention::heads(const BeginCase& c) const {
  Random random(base_seed());
  const std::int64_t n_all = c.n_heads + 2 * c.n_kv_heads;
  const bool is_cpu = stream().device() == Device::kCpu;
  Heads heads{Memory<float>(stream(), random.normals(kTokens * n_all * c.head_dim)), {}, {}, {}};
  float* at = heads.memory.data();
  const auto next = [&](std::int64_t n) {
    const std::int64_t width = n * c.head_dim;
    const TensorView<float, 3> x(at, {kTokens, n, c.head_dim},
                                 {is_cpu ? width : n_all * c.head_dim, c.head_dim, 1});
    at += is_cpu ? kTokens * width : width;
    return x;
  };
  heads.q = next(c.n_heads);
  heads.k = next(c.n_kv_heads);
  heads.v = next(c.n_kv_heads);
  return heads;
}

// Tokens 2 and on of each KV head go to blocks of its own.
BeginAttention::Outcome BeginAttention::run(const BeginCase& c, const KvBlockShape& shape,
                                            bool at_once) const {
  Random random(base_seed() + 1);
  const Heads h = heads(c);
  const std::int64_t half = c.rotary_dim / 2;
  const Memory<float> cos(stream(), random.normals(kTokens * half));
  const Memory<float> sin(stream(), random.normals(kTokens * half));
  const Memory<float> norms(stream(), random.normals(2 * c.head_dim));
  const TensorView<const float, 2> cos_view(cos.data(), {kTokens, half});
  const TensorView<const float, 2> sin_view(sin.data(), {kTokens, half});
  const auto norm_of = [&](std::size_t i) -> std::span<const float> {
    if (!c.has_norms) return {};
    const auto n = static_cast<std::size_t>(c.head_dim);
    return norms.span().subspan(i * n, n);
  };
  SoftmaxState state(kTokens, c.n_heads, c.head_dim);
  std::ranges::fill_n(state.o.data(), state.o.size(), 3.0F);
  const StateThere there(stream(), state);

  const std::int64_t n_blocks = ceil_div(kSlot + kTokens, shape.block_size);
  std::vector<Memory<std::byte>> memory;
  std::vector<std::byte*> pointers;
  for (std::int64_t i = 0; i < n_blocks * c.n_kv_heads; ++i) {
    memory.emplace_back(stream(), static_cast<std::int64_t>(shape.bytes()), std::byte{0x11});
    pointers.push_back(memory.back().data());
  }
  std::vector<KvAppendItem> items;
  const Extent tokens{2, kTokens};
  for (std::int64_t head = 0; head < c.n_kv_heads; ++head) {
    const auto rows = [&](const TensorView<float, 3>& x) {
      return TensorView<const float, 2>(x[tokens.begin][head].data(), {tokens.size(), c.head_dim},
                                        {x.stride(0), 1});
    };
    items.push_back(
        {.k = rows(h.k),
         .v = rows(h.v),
         .blocks = std::span(pointers).subspan(static_cast<std::size_t>(head * n_blocks),
                                               static_cast<std::size_t>(n_blocks)),
         .first_slot = head % 2 == 0 ? kSlot : 0});
  }
  const KvAppendArgs append{shape, items};
  if (at_once) {
    begin_attention(stream(), {.q = h.q,
                               .k = h.k,
                               .q_norm = norm_of(0),
                               .k_norm = norm_of(1),
                               .norm_eps = 1e-5F,
                               .cos = cos_view,
                               .sin = sin_view,
                               .append = append,
                               .state = there.view()});
  } else {
    for (const auto& [x, norm] : {std::pair(h.q, norm_of(0)), std::pair(h.k, norm_of(1))}) {
      for (std::int64_t row = 0; row < kTokens && !norm.empty(); ++row)
        rms_norm(stream(), {.x = x[row], .weight = norm, .eps = 1e-5F, .out = x[row]});
      rope(stream(), {.x = x, .cos = cos_view, .sin = sin_view});
    }
    kv_append(stream(), append);
    clear(stream(), there.view());
  }
  Outcome out;
  const std::vector<float> all = h.memory.values();
  for (std::int64_t row = 0; row < kTokens; ++row) {
    const auto begin = all.begin() + row * h.q.stride(0);
    out.q.insert(out.q.end(), begin, begin + c.n_heads * c.head_dim);
  }
  for (const Memory<std::byte>& block : memory) out.blocks.push_back(block.values());
  out.state = there.state();
  return out;
}

TEST_P(BeginAttention, IsNormsRopeAppendAndClear) {
  for (const BeginCase& c : {BeginCase{4, 2, 64, 64, false},
                             {3, 1, 32, 16, false},
                             {8, 2, 16, 16, true},
                             {2, 2, 128, 96, true}}) {
    for (const KvType type : kPlainKvTypes) {
      const KvBlockShape shape = {
          .block_size = 16, .head_dim = c.head_dim, .k_type = type, .v_type = type};
      const Outcome got = run(c, shape, /*at_once=*/true);
      const Outcome want = run(c, shape, /*at_once=*/false);
      EXPECT_EQ(got.q, want.q) << c.head_dim << " " << name_of(type);
      EXPECT_EQ(got.blocks, want.blocks) << c.head_dim << " " << name_of(type);
      const auto same = [](const auto& a, const auto& b) {
        return std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * 4) == 0;
      };
      EXPECT_TRUE(same(got.state.o, want.state.o) && same(got.state.m, want.state.m) &&
                  same(got.state.l, want.state.l));
    }
  }
}

// Of queries alone, and of keys alone, each as with the other.
TEST_P(BeginAttention, TakesQueriesOrKeysAlone) {
  const BeginCase c{4, 2, 64, 64, false};
  const Heads h = heads(c);
  const Heads alone = heads(c);
  const Memory<float> cos(stream(), kTokens * 32, 0.5F);
  const Memory<float> sin(stream(), kTokens * 32, 0.25F);
  const TensorView<const float, 2> cos_view(cos.data(), {kTokens, 32});
  const TensorView<const float, 2> sin_view(sin.data(), {kTokens, 32});
  const StateThere state(stream(), SoftmaxState(kTokens, 4, 64));
  const KvBlockShape shape = {.block_size = 16, .head_dim = 64};
  Memory<std::byte> block(stream(), static_cast<std::int64_t>(shape.bytes()));
  std::byte* const pointer = block.data();
  begin_attention(stream(), {.q = alone.q,
                             .cos = cos_view,
                             .sin = sin_view,
                             .append = {shape, {}},
                             .state = state.view()});
  rope(stream(), {.x = h.q, .cos = cos_view, .sin = sin_view});
  EXPECT_EQ(alone.memory.values(), h.memory.values());
  EXPECT_TRUE(std::isinf(state.state().m.data()[0]));
  const auto bytes_of = [&](const Heads& from, bool at_once) {
    const KvAppendItem item{.k = {from.k.data(), {3, 64}, {from.k.stride(0), 1}},
                            .v = {from.v.data(), {3, 64}, {from.v.stride(0), 1}},
                            .blocks = {&pointer, 1}};
    const KvAppendArgs append{shape, {&item, 1}};
    if (at_once) {
      begin_attention(stream(), {.k = from.k, .cos = cos_view, .sin = sin_view, .append = append});
    } else {
      rope(stream(), {.x = from.k, .cos = cos_view, .sin = sin_view});
      kv_append(stream(), append);
    }
    return block.values();
  };
  const std::vector<std::byte> got = bytes_of(alone, true);
  EXPECT_EQ(got, bytes_of(h, false));
}

TEST_P(BeginAttention, RefusesKeysFromElsewhere) {
  const BeginCase c{4, 2, 64, 64, false};
  const Heads h = heads(c);
  const Memory<float> angles(stream(), kTokens * 32);
  const TensorView<const float, 2> view(angles.data(), {kTokens, 32});
  const KvBlockShape shape = {.block_size = 16, .head_dim = 64};
  Memory<std::byte> block(stream(), static_cast<std::int64_t>(shape.bytes()));
  std::byte* const pointer = block.data();
  const Memory<float> other(stream(), 64);
  const TensorView<const float, 2> rows(other.data(), {1, 64});
  const KvAppendItem item{.k = rows, .v = rows, .blocks = {&pointer, 1}};
  EXPECT_THROW(begin_attention(stream(),
                               {.k = h.k, .cos = view, .sin = view, .append = {shape, {&item, 1}}}),
               Error);
}

}  // namespace
}  // namespace longhaul::test
