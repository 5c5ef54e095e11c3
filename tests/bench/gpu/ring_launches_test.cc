// How many kernels, and launches of NCCL, a decode step takes for a layer on each rank of a ring:
// on emulated GPUs, whose work is left undone but for what ranks exchange.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/device/step_graph.h"
#include "cluster/comm/in_process.h"
#include "partition/plan.h"
#include "tests/bench/gpu/decode_host.h"
#include "tests/bench/gpu/filled_model.h"
#include "tests/cuda_on_host/device_memory.h"
#include "tests/multirank/support/fake_gpus.h"
#include "worker/device_communicator.h"
#include "worker/ring/ring_forward.h"

namespace longhaul::bench {
namespace {

constexpr std::int64_t kBlockSize = 64;
constexpr std::int64_t kTokensOfRank = 700;  // of a head: more than one range of attention

enum class Homes {
  kNeighbours,  // each head has one home, each rank a run of heads
  kDealt,       // each head has one home, neighbours have different ones
  kAllSplit,    // the blocks of every head lie with all ranks
};

struct LaunchCase {
  const char* name;
  std::int64_t n_ranks;
  Homes homes;
  DType weights;
  std::size_t most;  // for a layer, on the rank that has most

  friend void PrintTo(const LaunchCase& c, std::ostream* out) { *out << c.name; }
};

class RingLaunches : public testing::TestWithParam<LaunchCase> {
 protected:
  static void SetUpTestSuite() {
    cuda_on_host::leave_work_undone(std::size_t{8} << 30U);
    test::set_fake_gpus(4);
    ASSERT_NE(::dlopen(LONGHAUL_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
  }
};

ModelSpec spec_of(std::int64_t n_layers) {
  ModelSpec spec = narrow_model(n_layers);
  spec.d_ff = 4 * kInt8Group;
  return spec;
}

Home home_of(const LaunchCase& c, std::int64_t head, std::int64_t n_heads) {
  switch (c.homes) {
    case Homes::kNeighbours:
      return {{{Rank{head * c.n_ranks / n_heads}, 1}}};
    case Homes::kDealt:
      return {{{Rank{head % c.n_ranks}, 1}}};
    case Homes::kAllSplit:
      break;
  }
  Home home;
  for (std::int64_t r = 0; r < c.n_ranks; ++r) home.shares.push_back({Rank{r}, 1});
  return home;
}

Plan plan_of(const LaunchCase& c, const ModelSpec& spec) {
  Stage stage;
  stage.layers = {0, spec.n_layers};
  for (std::int64_t r = 0; r < c.n_ranks; ++r) {
    const auto slice_of = [&](std::int64_t n) {
      return Extent{r * n / c.n_ranks, (r + 1) * n / c.n_ranks};
    };
    stage.ring.push_back(Rank{r});
    stage.token_share.push_back(Stage::kTokenShareTotal / c.n_ranks);
    stage.ffn_slice.push_back(slice_of(spec.d_ff));
    stage.vocab_slice.push_back(slice_of(spec.vocab_size));
  }
  for (std::int64_t layer = 0; layer < spec.n_layers; ++layer) {
    auto& homes = stage.home.emplace_back();
    for (std::int64_t head = 0; head < spec.n_kv_heads; ++head)
      homes.push_back(home_of(c, head, spec.n_kv_heads));
  }
  return {.model = {},
          .kv = {.k_type = KvType::kBf16,
                 .v_type = KvType::kBf16,
                 .block_size = kBlockSize,
                 .head_dim = spec.head_dim},
          .chunk_len = 1024,
          .heads = dense_heads(spec),
          .replicas = {{.stages = {stage}}}};
}

// Of the second decode step after a prompt, on this rank: in the first one memory grows, which
// submits what has been noted.
std::size_t launches_of_rank(const Plan& plan, const ModelSpec& spec, DType dtype,
                             Communicator& host) {
  const int rank = host.rank();
  cuda::Stream stream(rank);
  const auto comm = communicator_of_device(host, stream.ref(), GpuTransport::kNcclWherePossible);
  const Weights weights = Weights::synthetic(spec, dtype, 1, {Device::kCuda, rank});
  const RingStage stage(plan, 0, Rank{rank});
  const CacheLayout layout(plan.heads, {0, spec.n_layers},
                           {.block_size = kBlockSize,
                            .head_dim = spec.head_dim,
                            .k_type = plan.kv.k_type,
                            .v_type = plan.kv.v_type});
  BlockPool pool(layout.shape(), std::nullopt, stream.ref());
  LayerCompute compute(weights, stream.ref());
  const RingPlace place = {.plan = std::make_shared<const Plan>(plan),
                           .cluster = std::make_shared<const ClusterSpec>(
                               equal_cluster(host.size(), std::int64_t{1} << 30)),
                           .comm = comm.get(),
                           .transport = GpuTransport::kNcclWherePossible};
  RingForward forward({.place = place, .stage = stage, .comm = *comm}, compute, layout);
  SequenceCache cache(layout, pool);
  const std::vector<std::int32_t> prompt =
      some_tokens(host.size() * kTokensOfRank, spec.vocab_size);
  forward.prefill({.cache = cache, .tokens = prompt});
  const std::vector<std::int32_t> token = {1};
  for (std::int64_t step = 0; step < 2; ++step) {
    const DecodeRow row = {.cache = &cache, .position = {std::ssize(prompt) + step}};
    const NotedStep noted(stream.ref());
    forward.decode({&row, 1}, token);
    submit_noted(stream.ref());
  }
  const std::size_t n = stream.steps()->n_commands();
  stream.synchronise();
  host.barrier();  // nobody leaves before all have what they exchange
  return n;
}

std::vector<std::size_t> launches(const LaunchCase& c, std::int64_t n_layers) {
  const ModelSpec spec = spec_of(n_layers);
  const Plan plan = plan_of(c, spec);
  std::vector<std::size_t> of_ranks(static_cast<std::size_t>(c.n_ranks));
  run_in_process(static_cast<int>(c.n_ranks), [&](Communicator& host) {
    of_ranks[static_cast<std::size_t>(host.rank())] = launches_of_rank(plan, spec, c.weights, host);
  });
  return of_ranks;
}

TEST_P(RingLaunches, AreFewForALayer) {
  constexpr std::int64_t kLayers = 3;
  const LaunchCase& c = GetParam();
  const std::vector<std::size_t> of_one = launches(c, 1);
  const std::vector<std::size_t> of_all = launches(c, kLayers);
  std::size_t most = 0;
  for (std::size_t r = 0; r < of_all.size(); ++r) {
    const std::size_t besides = of_all[r] - of_one[r];
    EXPECT_EQ(besides % (kLayers - 1), 0U) << "rank " << r;
    most = std::max(most, besides / (kLayers - 1));
  }
  EXPECT_EQ(most, c.most);
}

INSTANTIATE_TEST_SUITE_P(
    All, RingLaunches,
    testing::Values(LaunchCase{"TwoBf16", 2, Homes::kNeighbours, DType::kBf16, 16},
                    LaunchCase{"FourBf16", 4, Homes::kNeighbours, DType::kBf16, 16},
                    LaunchCase{"TwoInt8", 2, Homes::kNeighbours, DType::kI8, 15},
                    LaunchCase{"FourInt8", 4, Homes::kNeighbours, DType::kI8, 15},
                    LaunchCase{"TwoDealtBf16", 2, Homes::kDealt, DType::kBf16, 25},
                    LaunchCase{"TwoDealtInt8", 2, Homes::kDealt, DType::kI8, 24},
                    LaunchCase{"TwoSplitBf16", 2, Homes::kAllSplit, DType::kBf16, 18},
                    LaunchCase{"FourSplitBf16", 4, Homes::kAllSplit, DType::kBf16, 18},
                    LaunchCase{"TwoSplitInt8", 2, Homes::kAllSplit, DType::kI8, 23},
                    LaunchCase{"FourSplitInt8", 4, Homes::kAllSplit, DType::kI8, 23}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace longhaul::bench
