#include "tests/golden/golden_gates.h"

#include <map>
#include <mutex>

#include "base/file.h"
#include "base/json.h"
#include "cluster/comm/in_process.h"
#include "model/model_folder.h"
#include "tests/golden/golden_models.h"
#include "tests/support/paths.h"
#include "worker/device_communicator.h"

namespace longhaul::test {

GoldenGates read_golden_gates(const std::string& model) {
  constexpr std::size_t kMaxBytes = 1 << 20;
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

TrainingRun train_golden_gates(const std::string& model, const GoldenGates& golden,
                               const std::vector<DeviceId>& devices, std::size_t n_steps) {
  const GoldenModel of_model = read_golden_model(model);
  const ModelFolder folder(of_model.folder);
  std::map<std::string, Weights> weights;  // by device
  for (const DeviceId& device : devices)
    weights.try_emplace(name_of(device), Weights::load(folder, DType::kF32, device));
  std::mutex mutex;
  TrainingRun run;
  run_in_process(static_cast<int>(devices.size()), [&](Communicator& host) {
    DeviceQueue queue(devices[static_cast<std::size_t>(host.rank())]);
    const auto of_device = communicator_of_device(host, queue.stream(), GpuTransport::kStaged);
    TrainingRun own = train_gates(
        {.weights = weights.at(name_of(queue.device())),
         .two_way = {.window = golden.window, .stream = queue.stream(), .block_size = 16},
         .optimiser = {.n_steps = static_cast<std::int64_t>(golden.lengths.size())},
         .text_of =
             [&](std::int64_t step) {
               const auto end =
                   of_model.tokens.begin() + golden.lengths[static_cast<std::size_t>(step)];
               return PasskeyText{{of_model.tokens.begin(), end}, golden.n_answer};
             },
         .state = initial_gates(golden.gates.size()),
         .stops = [&](std::int64_t step) { return step == static_cast<std::int64_t>(n_steps); }},
        of_device ? *of_device : host);
    const std::lock_guard lock(mutex);
    if (host.rank() == 0) run = std::move(own);
  });
  return run;
}

}  // namespace longhaul::test
