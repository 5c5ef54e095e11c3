// A sequence's caches saved from a GPU: the files hold what a CPU's hold, read back through HDF5's
// own functions, which convert every type to doubles.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "model/heads/cache_method.h"
#include "tests/gpu/wide_model.h"
#include "tests/gpu/worker_plays.h"
#include "tests/support/paths.h"
#include "worker/snapshot/hdf5_file.h"

namespace longhaul::test {
namespace {

namespace fs = std::filesystem;

std::vector<double> read_values(hid_t file, const std::string& name) {
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  EXPECT_GE(dataset, 0) << name;
  if (dataset < 0) return {};
  const hid_t space = H5Dget_space(dataset);
  std::vector<double> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  EXPECT_GE(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  H5Sclose(space);
  H5Dclose(dataset);
  return values;
}

// Streaming heads beside others, a partial last block, and a block shared with a fork.
fs::path save(const fs::path& folder, KvType type, const DeviceId& device) {
  HeadRoles roles = HeadRoles::all_retrieval(3, 3);
  roles.sink = 4;
  roles.recent = 20;
  roles.roles[1] = roles.roles[5] = HeadRole::kStreaming;
  Player player({.weights = std::make_shared<const Weights>(
                     Weights::synthetic(tiny_spec(), DType::kF32, 7, device)),
                 .device = device,
                 .heads = duo_attention_heads(tiny_spec(), roles),
                 .k_type = type,
                 .v_type = type,
                 .block_size = 16,
                 .n_threads = 1});
  Random random(1);
  const auto tokens = random_tokens(random, 87, 97);
  player.open(kA);
  player.prefill(kA, tokens, 40);
  player.step(ForkSequence{.parent = kA, .child = {2}, .sampling = {}});
  player.feed({SequenceId{2}}, random, 3);
  player.step(SaveSequence{.sequence = kA,
                           .folder = folder.string(),
                           .name = "doc",
                           .tokens = tokens,
                           .facts = {{"content_id", "1"}}});
  return folder / "doc.part-0000.h5";
}

struct Difference {
  std::size_t n_values = 0;
  std::size_t n_other = 0;  // further apart than the tolerance
};

// How far apart two values may be: by so much, or by a part of either.
struct Allowance {
  double absolute = 0;
  double relative = 0;
};

Difference difference(const std::vector<double>& a, const std::vector<double>& b,
                      const Allowance& allowance) {
  EXPECT_EQ(a.size(), b.size());
  Difference out{a.size(), 0};
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double allowed =
        std::max(allowance.absolute, allowance.relative * std::max(std::abs(a[i]), std::abs(b[i])));
    if (!(std::abs(a[i] - b[i]) <= allowed)) ++out.n_other;
  }
  return out;
}

// Values before they are stored agree to float32's rounding, which gives few of them the
// neighbouring bf16 or code. Behind attention over codes, and over bf16 where the CPU multiplies
// pairs, queries are rounded differently, and all are a little off: codes by two steps, which are
// equal ones but for fp8's, an eighth of a value.
Allowance allowance_of_saved(KvType type, const std::string& name, bool is_first_layer) {
  const bool is_code = is_quantised(type) && name.size() == 1;
  if (type == KvType::kF32 || is_first_layer) return {.absolute = is_code ? 0.0 : 2e-5};
  if (!is_code) return {.absolute = 2e-2};
  return {.absolute = 2.0, .relative = type == KvType::kFp8 ? 2.0 / 8 : 0.0};
}

class SavedOnGpu : public OnGpu, public testing::WithParamInterface<KvType> {};

// Values before they are stored agree to float32's rounding, which gives few of them the
// neighbouring bf16 or code.
TEST_P(SavedOnGpu, FilesHoldWhatTheCpusHold) {
  const TemporaryFolder cpu_folder;
  const TemporaryFolder gpu_folder;
  const fs::path cpu_path = save(cpu_folder.path(), GetParam(), {});
  const fs::path gpu_path = save(gpu_folder.path(), GetParam(), kGpu);
  const hid_t cpu = H5Fopen(cpu_path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t gpu = H5Fopen(gpu_path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(cpu, 0);
  ASSERT_GE(gpu, 0);
  std::size_t n_values = 0;
  for (const std::string layer : {"00", "01", "02"}) {
    for (const std::string head : {"00", "01", "02"}) {
      const std::string path = "/layers/" + layer + "/kv_heads/" + head + "/";
      EXPECT_EQ(read_values(gpu, path + "positions"), read_values(cpu, path + "positions"));
      std::vector<std::string> names{"k", "v"};
      if (is_quantised(GetParam())) names.insert(names.end(), {"k_scale", "v_scale"});
      if (has_minima(GetParam())) names.insert(names.end(), {"k_minimum", "v_minimum"});
      for (const std::string& name : names) {
        const Difference found =
            difference(read_values(gpu, path + name), read_values(cpu, path + name),
                       allowance_of_saved(GetParam(), name, layer == "00"));
        EXPECT_LE(static_cast<double>(found.n_other), 0.02 * static_cast<double>(found.n_values))
            << path << name << ": " << found.n_other << " of " << found.n_values;
        n_values += found.n_values;
      }
    }
  }
  EXPECT_GT(n_values, 9U * 2 * 24);
  H5Fclose(gpu);
  H5Fclose(cpu);
}

INSTANTIATE_TEST_SUITE_P(All, SavedOnGpu, testing::ValuesIn(kPlainKvTypes),
                         [](const auto& test) { return std::string(name_of(test.param)); });

// A document that was read under a method, and one that was saved and comes back: the same tokens
// are held, and answers go on alike.
void expect_saved_comes_back(const CacheMethod& method, std::size_t n_held) {
  const TemporaryFolder folder;
  const auto config = [&]() -> WorkerConfig {
    const HeadRoles roles = HeadRoles::all_retrieval(3, 3);
    return {.weights = std::make_shared<const Weights>(
                Weights::synthetic(tiny_spec(), DType::kF32, 7, kGpu)),
            .device = kGpu,
            .heads = method_heads(tiny_spec(), roles, {.all = method, .full = std::nullopt}),
            .block_size = 16,
            .n_threads = 1};
  };
  const auto go_on = [](Player& player) {
    Random random(2);
    player.step(
        ForkSequence{.parent = kA, .child = kB, .sampling = SamplingParams{.n_logprobs = 1'000}});
    player.prefill(kB, random_tokens(random, 9, 97), 9);
    player.feed({kB}, random, 4);
    return player.seen().picked;
  };
  Random random(1);
  const auto tokens = random_tokens(random, 87, 97);
  Player before(config());
  before.open(kA);
  before.step(PrefillChunk{.sequence = kA, .tokens = tokens, .after = AfterPrefill::kDocumentEnd});
  before.step(SaveSequence{.sequence = kA,
                           .folder = folder.path().string(),
                           .name = "doc",
                           .tokens = tokens,
                           .facts = {{"content_id", "1"}}});
  Player after(config());
  after.step(RestoreSequence{.sequence = kA,
                             .folder = folder.path().string(),
                             .name = "doc",
                             .content_id = "1",
                             .n_tokens = 87});
  for (const LayerId layer : IdRange<LayerId>(3)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(3)) {
      const auto held = before.worker().held_positions(kA, layer, kv_head);
      EXPECT_EQ(held.size(), n_held);
      EXPECT_EQ(after.worker().held_positions(kA, layer, kv_head), held);
    }
  }
  expect_same_answers(go_on(after), go_on(before), kFloat32);
}

// Chosen tokens lie in runs within blocks, and come back to a GPU as they lay.
TEST_F(OnGpu, SavedCachesOfChosenTokensComeBack) {
  expect_saved_comes_back(SnapKvMethod{{.capacity = 37, .window = 5, .kernel = 3}}, 37);
}

// Bounds of pages are not in files: a GPU makes them from the keys that came back.
TEST_F(OnGpu, SavedCachesOfChosenPagesComeBack) {
  expect_saved_comes_back(QuestMethod{.budget = 24, .page = 8, .dense = 0}, 87);
}

// Closed blocks as codes and the newest tokens as floats: a GPU's files come back to a GPU, and to
// a CPU with the same answers but for rounding.
TEST_F(OnGpu, SavedCachesOfGroupsComeBackOnEitherDevice) {
  for (const KvType type : kGroupedKvTypes) {
    const TemporaryFolder folder;
    const MakeConfig make = wide_model(type);
    Random random(1);
    const auto tokens = random_tokens(random, 87, 97);
    Player before(make(kGpu));
    before.open(kA);
    before.prefill(kA, tokens, 40);
    before.step(SaveSequence{.sequence = kA,
                             .folder = folder.path().string(),
                             .name = "doc",
                             .tokens = tokens,
                             .facts = {{"content_id", "1"}}});
    const auto go_on = [](Player& player) {
      Random next(2);
      player.step(
          ForkSequence{.parent = kA, .child = kB, .sampling = SamplingParams{.n_logprobs = 1'000}});
      const std::size_t n_before = player.seen().picked.size();
      player.prefill(kB, random_tokens(next, 9, 97), 9);
      player.feed({kB}, next, 4);
      const auto& all = player.seen().picked;
      return std::vector<PickedToken>(all.begin() + static_cast<std::ptrdiff_t>(n_before),
                                      all.end());
    };
    const std::vector<PickedToken> want = go_on(before);
    for (const DeviceId& device : {kGpu, DeviceId{}}) {
      Player after(make(device));
      after.step(RestoreSequence{.sequence = kA,
                                 .folder = folder.path().string(),
                                 .name = "doc",
                                 .content_id = "1",
                                 .n_tokens = 87});
      expect_same_answers(go_on(after), want, device == kGpu ? kFloat32 : tolerance_of(type));
    }
  }
}

}  // namespace
}  // namespace longhaul::test
