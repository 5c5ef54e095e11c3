// The attention kernel of every instruction set against the double-precision reference, and its
// laws: keys may come in any order and any number of calls, threads change no bit, hidden blocks
// are not touched.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "kernels/cpu/bf16_pairs.h"
#include "kernels/cpu/threads.h"
#include "kernels/kv_append.h"
#include "tests/support/compare.h"
#include "tests/unit/kernels/attention_case.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

class Attention : public EachDevice {
 protected:
  void expect_reference(const AttentionShape& shape, std::uint64_t seed) const;
};
LONGHAUL_ON_EACH_DEVICE(Attention);

Tolerance tolerance_of(StreamRef stream, const AttentionShape& shape) {
  const Tolerance k = attention_tolerance(shape.k_type, stream.device());
  const Tolerance v = attention_tolerance(shape.v_type, stream.device());
  return k.absolute > v.absolute ? k : v;
}

// A problem has the same numbers on every device: its reference is computed once.
const reference::AttentionResult& reference_of(const AttentionProblem& problem,
                                               const std::string& name) {
  static std::map<std::string, reference::AttentionResult> known;
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  return known.emplace(name, reference::attention(problem.reference_case())).first->second;
}

void Attention::expect_reference(const AttentionShape& shape, std::uint64_t seed) const {
  const std::string name = describe(shape) + " seed " + std::to_string(seed);
  SCOPED_TRACE(name);
  AttentionProblem problem(stream(), shape, seed);
  const std::vector<float> got = problem.run();
  const auto& want = reference_of(problem, name);
  EXPECT_TRUE(close(got, want.out, tolerance_of(stream(), shape)));
  const SoftmaxState state = problem.state();
  std::vector<float> lse;
  for (std::int64_t i = 0; i < state.m.size(); ++i) {
    lse.push_back(state.m.data()[i] + std::log(state.l.data()[i]));
  }
  EXPECT_TRUE(close(lse, want.lse, tolerance_of(stream(), shape)));
}

TEST_P(Attention, RandomShapesMatchTheReference) {
  Random random(base_seed());
  for (int i = 0; i < 60 * intensity(); ++i) {
    expect_reference(random_shape(random), base_seed() + static_cast<std::uint64_t>(i));
    if (HasFailure()) return;
  }
}

TEST_P(Attention, EveryHeadDimAndTypeMatchesTheReference) {
  for (const std::int64_t head_dim : {8, 16, 32, 64, 80, 96, 128, 256}) {
    for (const KvType type : kPlainKvTypes) {
      for (const std::int64_t gqa_group : {1, 3, 5, 8, 16}) {
        expect_reference({.q_len = 3,
                          .n_kv_heads = 2,
                          .gqa_group = gqa_group,
                          .head_dim = head_dim,
                          .n_blocks = 3,
                          .k_type = type,
                          .v_type = type},
                         base_seed());
      }
    }
  }
}

TEST_P(Attention, SlotsThatSomeQueryHeadsSeeMatchTheReference) {
  Random random(base_seed() + 77);
  for (int i = 0; i < 40 * intensity(); ++i) {
    AttentionShape shape = random_shape(random);
    shape.gqa_group = std::min<std::int64_t>(shape.gqa_group, 61);
    shape.tells_heads = true;
    expect_reference(shape, base_seed() + static_cast<std::uint64_t>(i));
    if (HasFailure()) return;
  }
}

// On a GPU by each of its kernels: few rows, many, and those of forks in one tile.
TEST_P(Attention, SlotsThatSomeQueryHeadsSeeOfEveryShapeMatchTheReference) {
  for (const std::int64_t head_dim : {40, 64, 80, 128, 256}) {
    for (const KvType type : kPlainKvTypes) {
      for (const std::int64_t q_len : {1, 3, 30}) {
        expect_reference({.q_len = q_len,
                          .n_kv_heads = 2,
                          .gqa_group = 5,
                          .head_dim = head_dim,
                          .n_blocks = 4,
                          .block_size = 80,
                          .k_type = type,
                          .v_type = type,
                          .tells_heads = true},
                         base_seed());
      }
    }
  }
}

// The other way than this machine's maker suggests.
TEST_P(Attention, EitherWayOfMultiplyingBf16MatchesTheReference) {
  const bool usual = bf16_pairs();
  set_bf16_pairs(!usual);
  for (const KvType k_type : {KvType::kBf16, KvType::kFp8}) {
    for (const std::int64_t head_dim : {8, 80, 128}) {
      for (const KvType v_type : kPlainKvTypes) {
        expect_reference({.q_len = 70,
                          .n_kv_heads = 2,
                          .gqa_group = 4,
                          .head_dim = head_dim,
                          .n_blocks = 4,
                          .k_type = k_type,
                          .v_type = v_type},
                         base_seed());
      }
    }
  }
  set_bf16_pairs(usual);
}

TEST_P(Attention, PrefillOfManyQueriesMatchesTheReference) {
  for (const KvType type : kPlainKvTypes) {
    expect_reference({.q_len = 300,
                      .gqa_group = 3,
                      .head_dim = 64,
                      .n_blocks = 5,
                      .k_type = type,
                      .v_type = type,
                      .gaps = false},
                     base_seed());
    expect_reference({.q_len = 300,
                      .gqa_group = 2,
                      .head_dim = 64,
                      .n_blocks = 7,
                      .k_type = type,
                      .v_type = type,
                      .mask = {.sink = 5, .recent = 77},
                      .gaps = false},
                     base_seed());
  }
}

// Later keys exceed the largest of the first ones by far more than e can be raised to in bf16 or
// than a kernel may put off. Queries are numbers of bf16, and must not lose anything by scaling.
TEST_P(Attention, MaximaThatRiseLateMatchTheReference) {
  for (const KvType k_type : kPlainKvTypes) {
    for (const KvType v_type : kPlainKvTypes) {
      for (const std::int64_t q_len : {2, 70}) {
        const AttentionShape shape = {.q_len = q_len,
                                      .gqa_group = 3,
                                      .head_dim = 64,
                                      .n_blocks = 12,
                                      .k_type = k_type,
                                      .v_type = v_type,
                                      .gaps = false,
                                      .deviation = 30.0F};
        SCOPED_TRACE(describe(shape));
        AttentionProblem problem(stream(), shape, base_seed());
        const auto want = reference::attention(problem.reference_case());
        EXPECT_TRUE(close(problem.run(), want.out, operator_tolerance(DType::kBf16)));
      }
    }
  }
}

// Long enough that the keys are cut into ranges whose partial states are merged.
TEST_P(Attention, DecodeOverManyKeysMatchesTheReference) {
  for (const KvType type : kPlainKvTypes) {
    expect_reference({.q_len = 2,
                      .n_kv_heads = 2,
                      .gqa_group = 4,
                      .head_dim = 32,
                      .n_blocks = 330,
                      .k_type = type,
                      .v_type = type,
                      .after_keys = true},
                     base_seed());
  }
}

TEST_P(Attention, ResultsDoNotDependOnTheNumberOfThreads) {
  for (const std::int64_t q_len : {1, 200}) {
    AttentionProblem problem(stream(),
                             {.q_len = q_len,
                              .n_kv_heads = 2,
                              .gqa_group = 4,
                              .head_dim = 64,
                              .n_blocks = 150,
                              .after_keys = true},
                             base_seed());
    set_kernel_threads(1);
    const std::vector<float> one = problem.run();
    set_kernel_threads(3);
    EXPECT_EQ(one, problem.run());
  }
}

// Heads with different roles, prefill and decode, in one call: each gets the bits that it gets
// alone.
TEST_P(Attention, ItemsDoNotDependOnEachOther) {
  for (const KvType type : kPlainKvTypes) {
    AttentionShape shape = {.q_len = 70,
                            .n_kv_heads = 2,
                            .gqa_group = 3,
                            .head_dim = 64,
                            .n_blocks = 5,
                            .k_type = type,
                            .v_type = type};
    AttentionProblem prefill(stream(), shape, base_seed());
    shape.mask = {.sink = 20, .recent = 50};
    AttentionProblem streaming(stream(), shape, base_seed() + 1);
    shape.q_len = 1;
    shape.n_blocks = 60;
    shape.after_keys = true;
    AttentionProblem streaming_decode(stream(), shape, base_seed() + 2);
    shape.mask = {};
    AttentionProblem decode(stream(), shape, base_seed() + 3);
    AttentionProblem* const problems[] = {&prefill, &streaming, &streaming_decode, &decode};
    std::vector<std::vector<float>> alone;
    std::vector<AttentionItem> items;
    for (AttentionProblem* problem : problems) {
      alone.push_back(problem->run());
      problem->clear_state();
      const AttentionArgs own = problem->args();
      items.insert(items.end(), own.items.begin(), own.items.end());
    }
    AttentionArgs args = prefill.args();
    args.items = items;
    attention(stream(), args);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(problems[i]->finished(), alone[i]) << name_of(type) << " problem " << i;
    }
  }
}

// Queries as items of their own over the same blocks: forks of one document.
std::vector<AttentionItem> forks_of(const AttentionArgs& args) {
  std::vector<AttentionItem> out;
  for (const AttentionItem& item : args.items) {
    for (std::int64_t t = 0; t < item.q.dim(0); ++t) {
      AttentionItem fork = item;
      fork.q = item.q.slice(0, {t, t + 1});
      fork.q_positions = item.q_positions.subspan(static_cast<std::size_t>(t), 1);
      fork.state = item.state.tokens({t, t + 1});
      out.push_back(fork);
    }
  }
  return out;
}

TEST_P(Attention, ForksMatchTheReference) {
  for (const KvType type : kPlainKvTypes) {
    for (const std::int64_t head_dim : {64, 96, 128}) {
      for (const bool tells_heads : {false, true}) {
        AttentionProblem problem(stream(),
                                 {.q_len = 11,
                                  .n_kv_heads = 2,
                                  .gqa_group = 4,
                                  .head_dim = head_dim,
                                  .n_blocks = 30,
                                  .k_type = type,
                                  .v_type = type,
                                  .after_keys = true,
                                  .tells_heads = tells_heads},
                                 base_seed());
        problem.clear_state();
        AttentionArgs args = problem.args();
        const std::vector<AttentionItem> forks = forks_of(args);
        args.items = forks;
        attention(stream(), args);
        EXPECT_TRUE(close(problem.finished(), reference::attention(problem.reference_case()).out,
                          tolerance_of(stream(), {.k_type = type, .v_type = type})))
            << name_of(type) << " head_dim " << head_dim << " tells_heads " << tells_heads;
      }
    }
  }
}

// Forks with own parts of different lengths beside each other, and each alone.
TEST_P(Attention, AForkHasTheSameBitsAlone) {
  for (const KvType type : kPlainKvTypes) {
    AttentionProblem problem(stream(),
                             {.q_len = 13,
                              .gqa_group = 3,
                              .head_dim = 64,
                              .n_blocks = 40,
                              .k_type = type,
                              .v_type = type,
                              .after_keys = true},
                             base_seed());
    AttentionArgs args = problem.args();
    std::vector<AttentionItem> forks = forks_of(args);
    for (std::size_t i = 0; i < forks.size(); ++i) {
      forks[i].blocks = forks[i].blocks.first(40 - 3 * (i % 5));
      if (i % 6 == 5) forks[i].mask = {.sink = 100, .recent = 900};
    }
    problem.clear_state();
    args.items = forks;
    attention(stream(), args);
    const std::vector<float> together = problem.finished();
    problem.clear_state();
    for (const AttentionItem& fork : forks) {
      args.items = {&fork, 1};
      attention(stream(), args);
    }
    EXPECT_EQ(problem.finished(), together) << name_of(type);
  }
}

TEST_P(Attention, KeysSplitOverCallsGiveTheSame) {
  Random random(base_seed());
  for (int i = 0; i < 10 * intensity(); ++i) {
    AttentionShape shape = random_shape(random);
    shape.n_blocks = random.integer(3, 9);
    SCOPED_TRACE(describe(shape));
    AttentionProblem problem(stream(), shape, base_seed() + static_cast<std::uint64_t>(i));
    const std::vector<float> whole = problem.run();
    const std::int64_t cut = random.integer(1, shape.n_blocks - 1);
    problem.clear_state();
    AttentionArgs args = problem.args();
    for (const Extent part : {Extent{cut, shape.n_blocks}, Extent{0, cut}}) {
      const std::vector<AttentionItem> items = problem.items_with_blocks(part);
      args.items = items;
      attention(stream(), args);
    }
    EXPECT_TRUE(close(problem.finished(), whole, tolerance_of(stream(), shape)));
  }
}

TEST_P(Attention, SinkLogitsAndOffByOneMatchTheReference) {
  AttentionProblem problem(stream(), {.q_len = 5, .n_kv_heads = 2, .gqa_group = 2, .n_blocks = 2},
                           base_seed());
  problem.run();
  reference::AttentionCase c = problem.reference_case();
  for (const std::vector<float>& sinks :
       {std::vector<float>{0, 0, 0, 0}, std::vector<float>{-3.5F, 0.25F, 2, 40}}) {
    c.sink_logits.assign(sinks.begin(), sinks.end());
    EXPECT_TRUE(close(problem.finished(sinks), reference::attention(c).out,
                      operator_tolerance(DType::kF32)));
  }
}

// One block of f32 in memory of its own.
struct SmallBlock {
  StreamRef stream;
  KvBlockShape shape = {.block_size = 32, .head_dim = 16};
  Memory<std::byte> memory{stream, static_cast<std::int64_t>(shape.bytes())};
  explicit SmallBlock(StreamRef on) : stream(on) {}
  KvBlockRef ref(std::int64_t first_position, std::int64_t n_tokens) const {
    return {memory.data(), first_position, n_tokens};
  }
  void set(const std::vector<float>& k, const std::vector<float>& v) const {
    const auto n_tokens = static_cast<std::int64_t>(k.size()) / shape.head_dim;
    const Memory k_there(stream, k);
    const Memory v_there(stream, v);
    std::byte* data = memory.data();
    const KvAppendItem item = {
        TensorView<const float, 2>(k_there.data(), {n_tokens, shape.head_dim}),
        TensorView<const float, 2>(v_there.data(), {n_tokens, shape.head_dim}),
        {&data, 1},
        0};
    kv_append(stream, {shape, {&item, 1}});
  }
};

// Two queries of one head against the given blocks, starting from `state`; gives the new one.
SoftmaxState attend(const SmallBlock& block, const std::vector<float>& q,
                    const std::vector<std::int64_t>& positions,
                    const std::vector<KvBlockRef>& blocks, AttentionMask mask,
                    const SoftmaxState& state) {
  const auto q_len = static_cast<std::int64_t>(positions.size());
  const Memory q_there(block.stream, q);
  const StateThere state_there(block.stream, state);
  const AttentionItem item = {
      .q = TensorView<const float, 3>(q_there.data(), {q_len, 1, block.shape.head_dim}),
      .q_positions = positions,
      .blocks = blocks,
      .mask = mask,
      .state = state_there.view()};
  attention(block.stream, {block.shape, 1.0F, {&item, 1}});
  return state_there.state();
}

SoftmaxState empty_state(std::int64_t n_tokens, std::int64_t head_dim) {
  SoftmaxState out(n_tokens, 1, head_dim);
  clear(StreamRef::cpu(), out.view());
  return out;
}

// With q = 0 every weight is 1: l counts the visible keys and o is their sum, exactly.
TEST_P(Attention, CountsAndSumsSmallIntegersExactly) {
  const SmallBlock block(stream());
  std::vector<float> v;
  for (int i = 0; i < 20 * 16; ++i) v.push_back(static_cast<float>(i / 16));
  block.set(v, v);
  const std::int64_t start = (std::int64_t{1} << 40) + 3;  // far beyond 32 bits
  const SoftmaxState state =
      attend(block, std::vector<float>(3 * 16, 0.0F), {start - 1, start + 9, start + 100},
             {block.ref(start, 20)}, {.sink = start + 2, .recent = 95}, empty_state(3, 16));
  // Query 0 sees nothing; 1 sees tokens 0..9; 2 sees the sinks 0, 1 and the recent 6..19.
  const std::vector<float> l(state.l.data(), state.l.data() + 3);
  EXPECT_EQ(l, (std::vector<float>{0, 10, 16}));
  EXPECT_EQ(state.m.data()[0], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(state.m.data()[1], 0.0F);
  for (int d = 0; d < 16; ++d) {
    EXPECT_EQ(state.o.data()[d], 0.0F);
    EXPECT_EQ(state.o.data()[16 + d], 45.0F);
    EXPECT_EQ(state.o.data()[32 + d], 190.0F - (2 + 3 + 4 + 5));
  }
}

TEST_P(Attention, AQueryThatSeesNothingLeavesItsStateAlone) {
  const SmallBlock block(stream());
  const std::vector<float> k = Random(base_seed()).normals(32 * 16);
  block.set(k, k);
  SoftmaxState state(2, 1, 16);
  for (int i = 0; i < 32; ++i) state.o.data()[i] = 0.1F * static_cast<float>(i);
  for (int i = 0; i < 2; ++i) {
    state.m.data()[i] = 3.25F;
    state.l.data()[i] = 7.5F;
  }
  // The first query sees nothing; the second sees all, so the block is not skipped.
  state = attend(block, k, {5, 60}, {block.ref(20, 32)}, {}, state);
  EXPECT_EQ(state.m.data()[0], 3.25F);
  EXPECT_EQ(state.l.data()[0], 7.5F);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(state.o.data()[i], 0.1F * static_cast<float>(i));
  EXPECT_NE(state.l.data()[1], 7.5F);
}

TEST_P(Attention, HiddenBlocksAreNotTouched) {
  const SmallBlock block(stream());
  const std::vector<float> k = Random(base_seed()).normals(32 * 16);
  block.set(k, k);
  const auto* nowhere = reinterpret_cast<const std::byte*>(64);  // reading it would crash
  const SoftmaxState state =
      attend(block, std::vector<float>(16, 1.0F), {1000},
             {{nowhere, 1001, 32}, block.ref(0, 32), {nowhere, 900, 0}, {nowhere, 64, 32}},
             {.sink = 32, .recent = 100}, empty_state(1, 16));
  EXPECT_GT(state.l.data()[0], 0.0F);
}

// One row of many is not a number, and so is nothing but its result.
// As the first token of many models: nearly all of the probability, and a value of zeros. What the
// others say, ten millionths, is all of the output, and must not be rounded by what the first
// weighs.
TEST_P(Attention, ATokenWithoutAValueLeavesTheOthersTheirs) {
  for (const KvType type : kPlainKvTypes) {
    SmallBlock block(stream());
    block.shape = {.block_size = 32, .head_dim = 32, .k_type = type, .v_type = type};
    block.memory = Memory<std::byte>(stream(), static_cast<std::int64_t>(block.shape.bytes()));
    std::vector<float> k(32 * 32, 0.0F);
    std::vector<float> v(32 * 32, 0.0F);
    std::fill_n(k.begin(), 32, 0.5F);
    for (std::size_t i = 32; i < v.size(); ++i) v[i] = (i / 32 + i) % 3 == 0 ? 15.0F : 0.0F;
    block.set(k, v);
    const SoftmaxState state = attend(block, std::vector<float>(3 * 32, 1.0F), {100, 101, 102},
                                      {block.ref(0, 32)}, {}, empty_state(3, 32));
    for (int i = 0; i < 3; ++i) {
      for (std::size_t d = 0; d < 32; ++d) {
        double sum = 0.0;
        for (std::size_t token = 1; token < 32; ++token) sum += v[token * 32 + d];
        const double want = sum * std::exp(-16.0) / (1.0 + 31.0 * std::exp(-16.0));
        const double got = state.o.data()[i * 32 + static_cast<int>(d)] / state.l.data()[i];
        EXPECT_NEAR(got, want, 0.01 * want) << name_of(type) << " row " << i << " dim " << d;
      }
    }
  }
}

TEST_P(Attention, NanStaysInItsRow) {
  for (const KvType type : kPlainKvTypes) {
    SmallBlock block(stream());
    block.shape = {.block_size = 32, .head_dim = 32, .k_type = type, .v_type = type};
    block.memory = Memory<std::byte>(stream(), static_cast<std::int64_t>(block.shape.bytes()));
    const std::vector<float> k = Random(base_seed()).normals(32 * 32);
    block.set(k, k);
    std::vector<float> q = Random(base_seed() + 1).normals(40 * 32);
    q[7 * 32 + 3] = std::nanf("");
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < 40; ++i) positions.push_back(100 + i);
    const SoftmaxState state =
        attend(block, q, positions, {block.ref(0, 32)}, {}, empty_state(40, 32));
    for (int i = 0; i < 40; ++i) {
      EXPECT_EQ(std::isnan(state.l.data()[i]), i == 7) << name_of(type) << " row " << i;
      EXPECT_EQ(std::isnan(state.o.data()[i * 32]), i == 7) << name_of(type) << " row " << i;
    }
  }
}

TEST_P(Attention, NanIsNotSwallowed) {
  const SmallBlock block(stream());
  std::vector<float> k = Random(base_seed()).normals(32 * 16);
  block.set(k, k);
  const SoftmaxState state = attend(block, std::vector<float>(16, std::nanf("")), {1000},
                                    {block.ref(0, 32)}, {}, empty_state(1, 16));
  EXPECT_TRUE(std::isnan(state.l.data()[0]));
  const StateThere there(stream(), state);
  const Memory out(stream(), 16, 0.0F);
  finish_attention(stream(), {there.view(), {}, TensorView<float, 3>(out.data(), {1, 1, 16})});
  EXPECT_TRUE(std::isnan(out.values()[7]));
}

TEST(AttentionArguments, BadOnesAreRefused) {
  const auto refused = [](const AttentionArgs& args, std::string_view text) {
    try {
      attention(StreamRef::cpu(), args);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      return;
    }
    ADD_FAILURE() << "accepted: " << text;
  };
  AttentionProblem problem(StreamRef::cpu(), {.q_len = 2, .n_blocks = 2}, 1);
  AttentionArgs args = problem.args();
  args.shape.block_size = 24;
  refused(args, "block_size is 24");
  args = problem.args();
  args.shape.head_dim = 62;
  refused(args, "head_dim of q is 64, must be 62");
  args = problem.args();
  args.sm_scale = 0.0F;
  refused(args, "sm_scale");
  std::vector<AttentionItem> items(args.items.begin(), args.items.end());
  args = problem.args();
  args.items = items;
  const std::vector<std::int64_t> descending = {4, 3};
  items[0].q_positions = descending;
  refused(args, "item 0: query position 3 after 4");
  items[0] = problem.args().items[0];
  const std::vector<KvBlockRef> blocks = {{items[0].blocks[0].data, 0, 65}};
  items[0].blocks = blocks;
  refused(args, "block 0 has 65 tokens");
  AttentionProblem many(StreamRef::cpu(), {.gqa_group = 65, .n_blocks = 9, .tells_heads = true}, 1);
  refused(many.args(), "some of 65 heads see");
}

}  // namespace
}  // namespace longhaul::test
