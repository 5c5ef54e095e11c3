// Random plans and scripts of commands for rings of in-process ranks, and what they answer
// together.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cluster/wire/step.h"
#include "partition/plan.h"
#include "tests/support/random.h"
#include "worker/ring/ring_place.h"
#include "worker/worker.h"

namespace longhaul::test {

// A plan of one replica that check_structure accepts, good or bad: stages cut anywhere, any token
// shares (zeros too), homes of any weights, columns anywhere (those of the FFN at multiples of
// ffn_unit). A reproducible plan has one home for each head.
Plan random_plan(Random& random, const ModelSpec& spec, const HeadTable& heads,
                 std::int64_t n_ranks, std::int64_t n_stages, const KvFormat& kv,
                 std::int64_t ffn_unit = 1, bool reproducible = false);

// Commands that open, prefill, fork, score, decode and drop documents in an interleaved order, made
// with the answers of `worker` (whose results are appended to `results`).
enum class Draws { kNone, kSome };    // tokens that are sampled, not the likeliest
enum class Guesses { kNone, kSome };  // none where heads cannot take tokens back
std::vector<StepCommand> random_script(Random& random, Worker& worker, Draws draws,
                                       std::vector<StepResult>& results,
                                       Guesses guesses = Guesses::kSome);

// One token, some, many and all n. With the address sanitizer no chunks of one token with more than
// three ranks, whose threads would wait for each other for minutes.
std::vector<std::int64_t> chunk_lengths_to_try(std::int64_t n, std::int64_t n_ranks);

struct RingRun {
  std::vector<StepDone> results;                 // one for each command, merged over ranks
  std::vector<std::vector<RankReport>> reports;  // [command][rank], asked after each command
};
struct RingRunConfig {
  std::shared_ptr<const Weights> weights = nullptr;
  Plan plan;
  HistoryChoice history = HistoryChoice::kByCost;
  bool with_reports = false;
  std::vector<Trace>* traces = nullptr;                  // [ranks], filled
  std::vector<DeviceId> devices = {};                    // [ranks]; empty: all on CPUs
  std::shared_ptr<const Weights> gpu_weights = nullptr;  // of the ranks on GPU 0
  std::shared_ptr<const TokenClasses> token_classes = nullptr;
  std::function<void(int rank, WorkerConfig&)> adapt = nullptr;  // what else a worker is told
  std::function<void(Worker&)> look = nullptr;                   // at each rank's worker in the end
};
// Every rank executes the script on a thread of its own.
RingRun run_on_ring(const RingRunConfig& config, const std::vector<StepCommand>& script);

// Same picks (or, greedy, one that is as likely within the tolerance), and log-probabilities within
// the tolerance; returns what differs, empty if nothing.
std::string difference(const std::vector<StepResult>& want, const std::vector<StepDone>& got,
                       double tolerance);

}  // namespace longhaul::test
