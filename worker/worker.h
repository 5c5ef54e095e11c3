// One rank of the system: holds weights and caches, and does what the coordinator's commands say
// (cluster/wire/step.h). start here: step().
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/device/device_memory.h"
#include "cluster/wire/link.h"
#include "cluster/wire/phase.h"
#include "cluster/wire/report_board.h"
#include "cluster/wire/step.h"
#include "kernels/device_tensor.h"
#include "kernels/probes/device_probes.h"
#include "model/heads/head_table.h"
#include "model/token_class.h"
#include "worker/forward.h"
#include "worker/kv/block_pool.h"
#include "worker/kv/cache_layout.h"
#include "worker/kv/sequence_cache.h"
#include "worker/layer_compute.h"
#include "worker/logit_adjuster.h"
#include "worker/logits_reader.h"
#include "worker/ring/ring_place.h"
#include "worker/ring/ring_stage.h"
#include "worker/ring/trace.h"
#include "worker/snapshot/save_sequence.h"
#include "worker/weights.h"

namespace longhaul {

struct WorkerConfig {
  std::shared_ptr<const Weights> weights = nullptr;  // ranks of one process may share them
  DeviceId device = {};  // what computes and holds caches and activations; the weights are there
  std::optional<HeadTable> heads = std::nullopt;  // none: every head sees every token, but for
                                                  // the model's own windows
  KvType k_type = KvType::kF32;                   // of cached keys
  KvType v_type = KvType::kF32;                   // of cached values
  std::int64_t block_size = 64;                   // tokens of a cache block
  std::optional<std::size_t> cache_limit_bytes =
      std::nullopt;  // of slabs; none: what the system or the GPU gives
  // [vocab_size] what kinds of tokens there are, for heads that ask for that
  // (HeadTable::needs_token_classes).
  std::shared_ptr<const TokenClasses> token_classes = nullptr;
  int n_threads = 0;          // of the kernels; 0: OMP_NUM_THREADS, else the cores of the process
  bool shares_cores = false;  // another worker of this process computes while this one waits
  // The same bits with any chunks, batches and threads, and on any ranks
  // (partition/reproducible.h). With a place: the plan's.
  bool reproducible = false;
  bool decode_graphs = true;  // decode steps of a GPU that is alone are CUDA graphs
  // With other ranks: where this one stands. Heads, cache types and block size are then the plan's;
  // `weights` include those of its stage.
  std::optional<RingPlace> place = std::nullopt;
  PhaseBoard* board = nullptr;  // told what the worker is doing; must outlive it; may be null
  // Told, when it asks, what the worker did and holds; must outlive it; may be null.
  ReportBoard* reports = nullptr;
  Trace* trace = nullptr;  // of work and transfers on a ring; must outlive it; may be null
  // Called once, when all work is done and before Shutdown is answered: what it throws is the
  // answer. May be empty.
  std::function<void()> at_shutdown = {};
};

// Used by one thread, which is the step thread and, with a GPU, also makes the worker.
class Worker {
 public:
  // Throws kInvalidArgument for a configuration that makes no sense. With a place: collective over
  // its communicator, and so is every step.
  explicit Worker(const WorkerConfig& config);

  // Executes one command. A command that cannot be done is a StepFailed, not an exception; what it
  // found wrong before it changed anything leaves all sequences as they were, a failure in the
  // middle leaves those that it named unusable but for DropSequences. With other ranks a failure in
  // the middle breaks the job's communicators: every rank's step fails then. Blocks while it
  // computes.
  StepResult step(const StepCommand& command);

  // Answers commands until Shutdown (which is answered) or until the coordinator is gone.
  void serve(WorkerLink& link);

  // What it has of the device's memory: "weights 5 bytes, KV caches ..., ... bytes are free".
  std::string describe_memory() const;

  // For tests and benchmarks, all of these. Summed over all steps so far; with a GPU blocks until
  // they are done.
  const PhaseTimes& times() { return compute_.times().total(); }
  // Where in the text the tokens stand that this rank holds of a head; none of layers that it does
  // not serve. Throws kInvalidArgument for a sequence that there is not.
  std::vector<TokenPos> held_positions(SequenceId sequence, LayerId layer, KvHeadId kv_head);
  // And which query heads of the group see each of them.
  std::vector<SeenBy> held_seen_by(SequenceId sequence, LayerId layer, KvHeadId kv_head);
  std::size_t kv_bytes_in_use() const { return pool_.bytes_in_use(); }
  std::size_t kv_bytes_reserved() const { return pool_.bytes_reserved(); }
  // Decode steps that went to the GPU as one CUDA graph.
  std::int64_t n_graph_steps() const;

 private:
  struct Sequence {
    SequenceCache cache;
    SamplingParams sampling;
    LogitAdjuster rules;
    std::int64_t n_tokens = 0;               // guesses included
    std::vector<std::int32_t> guesses = {};  // the last of them, which may be wrong
    // Of its newest certain token, [1, d_model]: scores the next chunk's first. Forks share it
    // until they have a newer one; null before the first chunk.
    std::shared_ptr<DeviceTensor<float, 2>> last_hidden;
    bool is_whole = true;  // false from the start of a step that changes it to its end
  };

  void leave_cores(WorkerLink& link) const;

  StepDone run(const OpenSequence& command);
  StepDone run(const ForkSequence& command);
  StepDone run(const DropSequences& command);
  StepDone run(const PrefillChunk& command);
  StepDone run(const DecodeBatch& command);
  StepDone run(const Shutdown& command);
  StepDone run(const ReportRank&);
  StepDone run(const SaveSequence& command);
  StepDone run(const FinishSave& command);
  StepDone run(const RestoreSequence& command);
  StepDone run(const MeasureRates& command);

  RankReport report(const PhaseTimes& spent) const;
  // After a step; `is_done`: its tokens were picked, so that nothing is queued.
  void tell_report(bool is_done);
  void note_peaks();

  Sequence& find(SequenceId id);
  Sequence& find_whole(SequenceId id);
  Sequence& find_settled(SequenceId id);  // that no guesses hang on
  void add(SequenceId id, Sequence sequence);
  void check_token(std::int32_t token) const;
  void check_allowed(const AllowedTokens& allowed) const;
  // Row hidden_rows[i] of `hidden` is of rows[i].
  void keep_last_hidden(std::span<Sequence* const> rows, const TensorView<const float, 2>& hidden,
                        std::span<const std::int64_t> hidden_rows);
  void check_row(const DecodeBatch::Row& row, DecodeKind kind, const Sequence& sequence) const;
  // The step's tokens from the sequence's n_tokens on, for heads that ask what kinds they are.
  void note_classes(Sequence& sequence, std::span<const std::int32_t> tokens) const;
  // Keeps the guesses of its last row that came true.
  void settle(Sequence& sequence, std::int64_t n_wrong);
  template <typename Work>
  StepDone together(const Work& work, bool reading_is_last);
  template <typename Pass>
  auto forward(std::size_t n_tokens, const Pass& pass);
  StepDone prefill(const PrefillChunk& command, Sequence& sequence);
  StepDone decode(const DecodeBatch& command, std::span<Sequence* const> rows);
  struct Picks {
    std::vector<LogitsQuestion> questions;  // of each row's token and its guesses
    std::deque<LogitAdjuster> rules;        // that those after guesses ask by
  };
  Picks picks(const DecodeBatch& command, std::span<Sequence* const> rows);
  void answer_last(const PrefillChunk& command, Sequence& sequence,
                   const TensorView<const float, 2>& hidden, StepDone& done);
  LogitsQuestion score_question(const PrefillChunk& command, const Sequence& sequence,
                                std::int64_t i) const;
  std::vector<PickedToken> score(const PrefillChunk& command, const Sequence& sequence,
                                 const HiddenRows& hidden);
  [[noreturn]] void throw_cache_full(std::size_t n_tokens, std::string_view detail) const;

  std::shared_ptr<const Weights> weights_;
  std::optional<RingPlace> place_;
  std::optional<RingStage> stage_;  // with a place: what it is in the plan, which place_ owns
  DeviceQueue queue_;
  std::unique_ptr<cuda::MemoryArena> arena_;  // may be null
  // A communicator of its own: of one rank when it has no place, and with a GPU one that takes
  // spans of its memory; null where the place's is used as it is.
  std::unique_ptr<Communicator> own_comm_;
  Communicator& comm_;  // of the replica
  int n_threads_;
  bool shares_cores_;
  bool decode_graphs_;
  CacheLayout layout_;
  BlockPool pool_;
  std::shared_ptr<const TokenClasses> token_classes_;  // null where no head asks
  LayerCompute compute_;
  LogitsReader logits_reader_;
  std::unique_ptr<Forward> forward_;
  PhaseBoard* board_;
  ReportBoard* reports_;
  std::function<void()> at_shutdown_;
  PhaseTimes spent_;  // as last told to reports_
  Rank rank_;
  std::int64_t n_steps_ = 0;
  // The most of the cache in use at the end of any step.
  std::size_t kv_retrieval_peak_bytes_ = 0;
  std::size_t kv_streaming_peak_bytes_ = 0;
  std::size_t kv_peak_bytes_ = 0;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::unique_ptr<SaveUnderWay> save_;  // its files are being written; uses pool and communicator
  DeviceProbeArgs probe_args_;
  std::function<Rates()> probes_;  // by probe_args_; empty until rates are asked for
};

}  // namespace longhaul
