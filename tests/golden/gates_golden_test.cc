// Gates of tiny random models after 50 steps, beside those of a straightforward PyTorch
// implementation in double precision (gates.json, make_gate_goldens.py), on 1, 2 and 3 ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "base/file.h"
#include "base/json.h"
#include "cluster/comm/in_process.h"
#include "model/model_folder.h"
#include "tests/golden/golden_models.h"
#include "tests/support/paths.h"
#include "tools/identify/gate_training.h"

namespace longhaul::test {
namespace {

constexpr std::size_t kMaxBytes = 1 << 20;

struct GoldenGates {
  std::vector<std::int64_t> lengths;
  std::int64_t n_answer = 0;
  StudentWindow window;
  std::vector<double> gates;
  std::vector<double> distances;
};

GoldenGates read_gates(const std::string& model) {
  const auto path = source_path("tests/golden/gates.json");
  const Json json = parse_json(read_file(path, kMaxBytes), path.string());
  const JsonField root(json, path.string());
  const JsonField settings = root.at("settings");
  const auto integer = [&](const char* key) { return settings.at(key).as_integer(0, 1000); };
  GoldenGates out{.lengths = {},
                  .n_answer = integer("answer_tokens"),
                  .window = {.sink = integer("sink"), .recent = integer("recent")},
                  .gates = {},
                  .distances = {}};
  for (std::size_t i = 0; i < settings.at("lengths").size(); ++i)
    out.lengths.push_back(settings.at("lengths").at(i).as_integer(1, 300));
  const JsonField found = root.at("models").at(model);
  for (std::size_t layer = 0; layer < found.at("gates").size(); ++layer) {
    const JsonField row = found.at("gates").at(layer);
    for (std::size_t head = 0; head < row.size(); ++head)
      out.gates.push_back(row.at(head).as_number());
  }
  for (std::size_t i = 0; i < found.at("distances").size(); ++i)
    out.distances.push_back(found.at("distances").at(i).as_number());
  return out;
}

class Gates : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, Gates,
                         testing::Values("llama3_gqa", "llama_biases", "qwen3",
                                         "qwen2_layer_types"),
                         [](const auto& model) { return std::string(model.param); });

TEST_P(Gates, EqualTheOraclesAfterFiftySteps) {
  const GoldenGates want = read_gates(GetParam());
  const GoldenModel golden = read_golden_model(GetParam());
  const ModelFolder folder(golden.folder);
  const Weights weights = Weights::load(folder, DType::kF32);
  for (const int n_ranks : {1, 2, 3}) {
    std::mutex mutex;
    TrainingRun run;
    run_in_process(n_ranks, [&](Communicator& comm) {
      TrainingRun own =
          train_gates({.weights = weights,
                       .two_way = {.window = want.window, .block_size = 16},
                       .optimiser = {.n_steps = static_cast<std::int64_t>(want.lengths.size())},
                       .text_of =
                           [&](std::int64_t step) {
                             const auto end = golden.tokens.begin() +
                                              want.lengths[static_cast<std::size_t>(step)];
                             return PasskeyText{{golden.tokens.begin(), end}, want.n_answer};
                           },
                       .state = initial_gates(want.gates.size())},
                      comm);
      const std::lock_guard lock(mutex);
      if (comm.rank() == 0) run = std::move(own);
    });
    ASSERT_EQ(run.steps.size(), want.distances.size());
    for (std::size_t i = 0; i < want.gates.size(); ++i)
      EXPECT_NEAR(run.state.gates[i], want.gates[i], 5e-4) << n_ranks << " ranks, gate " << i;
    for (std::size_t i = 0; i < want.distances.size(); ++i) {
      EXPECT_NEAR(run.steps[i].distance, want.distances[i], 1e-6 + 5e-3 * want.distances[i])
          << n_ranks << " ranks, step " << i;
    }
  }
}

}  // namespace
}  // namespace longhaul::test
