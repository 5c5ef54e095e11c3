// What all ranks do for `longhaul identify`: the tasks of its job, each an order that rank 0 gives
// and all ranks carry out together. A process has one of these, which its ranks share.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tools/eval/eval_model.h"
#include "tools/identify/finder_cost.h"
#include "tools/identify/gate_training.h"
#include "tools/identify/head_scores.h"
#include "tools/job/job.h"

namespace longhaul {

struct IdentifyConfig {
  PasskeyConfig texts;
  std::vector<std::filesystem::path> haystacks;  // one after the other; empty: made-up prose
  GateOptimiserConfig optimiser;
  StudentWindow window;
  CopyText copies;
};

class RankTasks {
 public:
  // `open` makes the process' model, once. Everything must outlive it.
  RankTasks(const IdentifyConfig& config, const JobConfig& job,
            std::function<std::shared_ptr<const EvalModel>()> open);

  // --- On rank 0; each blocks until all ranks are done ---

  // Called on the thread of rank 0's task.
  struct Watch {
    std::function<void(const TrainingStep&, const GateState&)> on_step;
    std::function<void(std::int64_t step, double share)> on_progress;
    std::function<bool()> stop_requested;
  };
  TrainingRun train(JobRanks& ranks, const GateState& from, Watch watch);
  // By name: "echo", "induction", "razor" of kCopies, "needle", "repetition". `on_progress` hears
  // how far each part is, in [0, 1].
  std::map<std::string, std::vector<double>> score(
      JobRanks& ranks, const std::vector<IdentifyPart>& parts,
      std::function<void(IdentifyPart, double share)> on_progress);
  // Of the longest text, with these gates, beside the mean square of the dense model's states.
  // Throws kCorruptData when it is not finite.
  double distance(JobRanks& ranks, const std::vector<double>& gates);

  const EvalModel& model();
  const PasskeyTexts& texts();
  // What a part computes with on so many ranks; of kTraining and kDistance with the longest text.
  // Memory depends on nothing else.
  TrainingShape shape_of(IdentifyPart part, std::int64_t n_ranks);

  // What the job calls on every rank.
  void run(Communicator& comm, ModelSource& model, const std::string& order);

 private:
  // A rank's weights, and its communicator, which takes memory of their device.
  struct RankOn {
    const Weights& weights;
    Communicator& comm;
    StreamRef stream;
  };
  TwoWayConfig two_way(StreamRef stream) const;
  void run_training(const RankOn& on, const JsonField& order);
  CopyText copies() const;
  std::vector<std::int32_t> twice_text() const;
  void run_scores(const RankOn& on, const JsonField& order);
  void run_distance(const RankOn& on, const JsonField& order);

  const IdentifyConfig& config_;
  const JobConfig& job_;
  std::function<std::shared_ptr<const EvalModel>()> open_;
  std::once_flag opened_;
  std::shared_ptr<const EvalModel> model_;
  std::unique_ptr<PasskeyTexts> texts_;
  Watch watch_;
  std::function<void(IdentifyPart, double)> on_score_progress_;
  // Written by rank 0.
  TrainingRun training_;
  std::map<std::string, std::vector<double>> scores_;
  double distance_ = 0;
};

}  // namespace longhaul
