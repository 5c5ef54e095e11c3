#include "worker/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/device/step_graph.h"
#include "base/error.h"
#include "base/log.h"
#include "kernels/cpu/threads.h"
#include "kernels/kv_block_check.h"
#include "partition/reproducible.h"
#include "worker/alone_forward.h"
#include "worker/device_communicator.h"
#include "worker/ring/ring_forward.h"
#include "worker/snapshot/restore_sequence.h"

namespace longhaul {
namespace {

const Weights& checked_weights(const WorkerConfig& config) {
  require(config.weights != nullptr, "WorkerConfig: weights are missing");
  require(config.weights->device() == config.device,
          fmt::format("WorkerConfig: the device is {}, the weights are on {}",
                      name_of(config.device), name_of(config.weights->device())));
  return *config.weights;
}

KvBlockShape block_shape(const WorkerConfig& config) {
  KvBlockShape shape{.block_size = config.block_size,
                     .head_dim = config.weights->spec().head_dim,
                     .k_type = config.k_type,
                     .v_type = config.v_type};
  if (config.place) {
    const KvFormat& kv = config.place->plan->kv;
    shape = {kv.block_size, shape.head_dim, kv.k_type, kv.v_type};
  }
  check_kv_block_shape("KV caches", shape);
  return shape;
}

// Tells the board that a step is under way, until its scope ends.
class StepMark {
 public:
  StepMark(PhaseBoard* board, std::int64_t step) : board_(board) {
    if (board_ == nullptr) return;
    board_->set_step(step);
    board_->enter(Activity::kComputing);
  }
  ~StepMark() {
    if (board_ != nullptr) board_->enter(Activity::kIdle);
  }
  StepMark(const StepMark&) = delete;
  StepMark& operator=(const StepMark&) = delete;

 private:
  PhaseBoard* board_;
};

HeadTable heads_of(const WorkerConfig& config) {
  const ModelSpec& spec = config.weights->spec();
  HeadTable heads = config.place   ? config.place->plan->heads
                    : config.heads ? *config.heads
                                   : dense_heads(spec);
  require_fits(heads, spec);
  if (config.place && config.place->comm->size() > 1) require_runnable(heads, RunsOn::kRing);
  return heads;
}

std::shared_ptr<const TokenClasses> token_classes_of(const WorkerConfig& config) {
  if (!heads_of(config).needs_token_classes()) return nullptr;
  require(
      config.token_classes != nullptr && static_cast<std::int64_t>(config.token_classes->size()) ==
                                             config.weights->spec().vocab_size,
      "WorkerConfig: the classes of the vocabulary's tokens are missing");
  return config.token_classes;
}

RowBits row_bits(const WorkerConfig& config) {
  const bool reproducible = config.place ? config.place->plan->reproducible : config.reproducible;
  if (!reproducible) return RowBits::kFastest;
  require_reproducible(heads_of(config), config.device.kind);
  return RowBits::kReproducible;
}

std::optional<RingStage> stage_of(const WorkerConfig& config) {
  if (!config.place) return std::nullopt;
  const RingPlace& place = *config.place;
  require(place.plan != nullptr && place.comm != nullptr,
          "RingPlace: the plan or the communicator is missing");
  return RingStage(*place.plan, place.replica, Rank{place.comm->job_rank()});
}

// Those that this worker serves: its stage's, or all that it has weights of.
Extent layers_of(const WorkerConfig& config, const std::optional<RingStage>& stage) {
  const Extent loaded = config.weights->layers();
  if (!stage) return loaded;
  const Extent layers = stage->stage().layers;
  require(loaded.begin <= layers.begin && layers.end <= loaded.end,
          fmt::format("Worker: weights of layers [{}, {}) for a stage of layers [{}, {})",
                      loaded.begin, loaded.end, layers.begin, layers.end));
  return layers;
}

// Null where the place does not ask for one, and where the GPU has less memory than the plan says:
// then memory is taken as long as there is some.
std::unique_ptr<cuda::MemoryArena> arena_of(const WorkerConfig& config) {
  if (config.device.kind == Device::kCpu || !config.place) return nullptr;
  if (config.place->arena == ArenaBytes{} || config.place->comm->size() == 1) return nullptr;
  try {
    return std::make_unique<cuda::MemoryArena>(config.place->arena);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    LONGHAUL_LOG(kWarning, kStep, "event=no_memory_arena reason=\"{}\"", error.what());
    return nullptr;
  }
}

// Collective over the place's communicator where NCCL may be used. Null where that one will do.
std::unique_ptr<Communicator> own_communicator(const WorkerConfig& config, StreamRef stream) {
  if (!config.place) return make_communicator({});
  return communicator_of_device(*config.place->comm, stream, config.place->transport);
}

}  // namespace

Worker::Worker(const WorkerConfig& config)
    : weights_((checked_weights(config), config.weights)),
      place_(config.place),
      stage_(stage_of(config)),
      queue_(config.device),
      arena_(arena_of(config)),
      own_comm_(own_communicator(config, queue_.stream())),
      comm_(own_comm_ ? *own_comm_ : *config.place->comm),
      n_threads_(config.n_threads),
      shares_cores_(config.shares_cores),
      decode_graphs_(config.decode_graphs),
      layout_(heads_of(config), layers_of(config, stage_), block_shape(config)),
      pool_(layout_.shape(), config.cache_limit_bytes, queue_.stream()),
      token_classes_(token_classes_of(config)),
      compute_(*weights_, queue_.stream(), row_bits(config)),
      logits_reader_(compute_),
      board_(config.board),
      reports_(config.reports),
      at_shutdown_(config.at_shutdown),
      rank_{comm_.job_rank()} {
  require(n_threads_ >= 0, fmt::format("{} threads", n_threads_));
  if (comm_.size() == 1) {
    forward_ = std::make_unique<AloneForward>(compute_, layout_);
    return;
  }
  const RingForwardConfig ring{
      .place = *place_, .stage = *stage_, .comm = comm_, .board = board_, .trace = config.trace};
  forward_ = std::make_unique<RingForward>(ring, compute_, layout_);
}

StepResult Worker::step(const StepCommand& command) {
  const Stopwatch watch;
  set_kernel_threads(n_threads_);
  const StepMark mark(board_, n_steps_++);
  try {
    StepDone done = std::visit([&](const auto& c) { return run(c); }, command);
    compute_.times().end_step();
    done.kv_bytes_in_use = pool_.bytes_in_use();
    note_peaks();
    done.seconds = watch.seconds();
    return done;
  } catch (const Error& error) {
    const bool tells_memory =
        error.code() == ErrorCode::kOutOfMemory && queue_.device().kind != Device::kCpu;
    return StepFailed{.code = error.code(),
                      .message = tells_memory
                                     ? fmt::format("{} ({})", error.what(), describe_memory())
                                     : error.what()};
  } catch (const std::bad_alloc&) {
    std::string message = fmt::format(
        "out of memory for the step's activations; {} bytes of KV cache are in use. Take shorter "
        "chunks or smaller batches",
        pool_.bytes_in_use());
    // Others wait for this rank's part of the files: what they all agree on is an Error.
    const bool is_of_files = std::holds_alternative<SaveSequence>(command) ||
                             std::holds_alternative<FinishSave>(command) ||
                             std::holds_alternative<RestoreSequence>(command);
    if (is_of_files && comm_.size() > 1) comm_.abort(ErrorCode::kOutOfMemory, message);
    return StepFailed{.code = ErrorCode::kOutOfMemory, .message = std::move(message)};
  }
}

void Worker::note_peaks() {
  const auto note = [](std::size_t& peak, std::size_t now) { peak = std::max(peak, now); };
  note(kv_retrieval_peak_bytes_, pool_.bytes_in_use(BlockUse::kRetrieval));
  note(kv_streaming_peak_bytes_, pool_.bytes_in_use(BlockUse::kStreaming));
  note(kv_peak_bytes_, pool_.bytes_in_use());
}

void Worker::serve(WorkerLink& link) {
  const auto next = [&] {
    try {
      while (!link.has_next() && forward_->advance()) std::this_thread::yield();
    } catch (const Error&) {  // of another rank: this one's next step says so as well
    }
    if (shares_cores_) leave_cores(link);
    return link.next();
  };
  while (const std::optional<StepCommand> command = next()) {
    StepResult result = step(*command);
    const bool picked =
        std::holds_alternative<StepDone>(result) && !std::get<StepDone>(result).picked.empty();
    link.answer(std::move(result));
    tell_report(picked);
    if (std::holds_alternative<Shutdown>(*command)) return;
  }
}

// Where the next command is not about to come, the other worker computes: without this one's
// helpers its own need not sleep between kernels (kernels/cpu/isa.h).
void Worker::leave_cores(WorkerLink& link) const {
  const Deadline soon = Clock::now() + std::chrono::microseconds(200);
  while (!link.has_next()) {
    if (Clock::now() > soon) return end_kernel_helpers();
    std::this_thread::yield();
  }
}

StepDone Worker::run(const OpenSequence& command) {
  check_sampling(command.sampling);
  check_logit_rules(command.rules, weights_->spec().vocab_size);
  add(command.sequence, {.cache = SequenceCache(layout_, pool_),
                         .sampling = command.sampling,
                         .rules = LogitAdjuster(command.rules),
                         .last_hidden = {}});
  return {};
}

StepDone Worker::run(const ForkSequence& command) {
  check_sampling(command.sampling);
  check_logit_rules(command.rules, weights_->spec().vocab_size);
  const Sequence& parent = find_settled(command.parent);
  add(command.child, {.cache = parent.cache.fork(),
                      .sampling = command.sampling,
                      .rules = LogitAdjuster(command.rules),
                      .n_tokens = parent.n_tokens,
                      .last_hidden = parent.last_hidden});
  return {};
}

StepDone Worker::run(const DropSequences& command) {
  for (const SequenceId id : command.sequences) find(id);
  for (const SequenceId id : command.sequences) sequences_.erase(id);
  return {};
}

StepDone Worker::run(const Shutdown& /*command*/) {
  forward_->drain();
  if (!at_shutdown_) return {};
  if (board_ != nullptr) board_->enter(Activity::kSaving);
  at_shutdown_();
  return {};
}

RankReport Worker::report(const PhaseTimes& spent) const {
  RankReport report;
  report.rank = rank_;
  for (std::size_t i = 0; i < kNPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    report.phase_seconds.push_back({std::string(name_of(phase)), spent[phase]});
  }
  report.ring_wait_seconds = spent[Phase::kRingWait];
  const TrafficCounters traffic = forward_->traffic();
  for (int i = 0; i < kTrafficKinds; ++i) {
    const auto kind = static_cast<Traffic>(i);
    if (traffic[kind].bytes == 0) continue;
    report.sent_bytes.push_back({std::string(name_of(kind)), traffic[kind].bytes});
  }
  report.buffer_bytes = static_cast<std::int64_t>(forward_->buffer_bytes());
  report.weight_bytes = static_cast<std::int64_t>(weights_->matrix_bytes());
  report.kv_retrieval_bytes = static_cast<std::int64_t>(pool_.bytes_in_use(BlockUse::kRetrieval));
  report.kv_streaming_bytes = static_cast<std::int64_t>(pool_.bytes_in_use(BlockUse::kStreaming));
  report.kv_retrieval_peak_bytes = static_cast<std::int64_t>(kv_retrieval_peak_bytes_);
  report.kv_streaming_peak_bytes = static_cast<std::int64_t>(kv_streaming_peak_bytes_);
  report.kv_peak_bytes = static_cast<std::int64_t>(kv_peak_bytes_);
  return report;
}

StepDone Worker::run(const ReportRank& /*command*/) {
  StepDone done;
  done.reports.push_back(report(times()));
  return done;
}

void Worker::tell_report(bool is_done) {
  if (reports_ == nullptr || !reports_->is_wanted()) return;
  // A GPU may have work queued, and its times would wait for that.
  if (is_done || queue_.device().kind == Device::kCpu) spent_ = times();
  reports_->put(report(spent_));
}

StepDone Worker::run(const SaveSequence& command) {
  if (board_ != nullptr) board_->enter(Activity::kSaving);
  require(save_ == nullptr, "a sequence is being saved already");
  const Sequence& sequence = find_settled(command.sequence);
  std::vector<float> last_hidden;
  if (forward_->answers() && sequence.last_hidden != nullptr) {
    const TensorView<const float, 2> row = sequence.last_hidden->view();
    last_hidden.resize(static_cast<std::size_t>(row.dim(1)));
    copy_to_host(queue_.stream(), std::as_writable_bytes(std::span(last_hidden)),
                 reinterpret_cast<const std::byte*>(row.data()));
  }
  save_ = std::make_unique<SaveUnderWay>(
      SaveSequenceArgs{.command = command,
                       .cache = sequence.cache,
                       .last_hidden = last_hidden,
                       .stream = queue_.stream(),
                       .spec = weights_->spec(),
                       .comm = comm_,
                       .writes_queries = !stage_ || stage_->position() == RingPos{0}});
  return command.goes_on ? StepDone{} : run(FinishSave{});
}

// Nothing is under way when its beginning failed, which was told then.
StepDone Worker::run(const FinishSave& /*command*/) {
  if (board_ != nullptr) board_->enter(Activity::kSaving);
  if (const auto save = std::exchange(save_, nullptr)) save->finish();
  return {};
}

StepDone Worker::run(const RestoreSequence& command) {
  if (board_ != nullptr) board_->enter(Activity::kLoading);
  require(!sequences_.contains(command.sequence),
          fmt::format("there is a sequence {} already", command.sequence.value));
  Sequence sequence{
      .cache = SequenceCache(layout_, pool_), .sampling = {}, .rules = {}, .last_hidden = {}};
  sequence.n_tokens = command.n_tokens;
  const bool is_split = stage_ && comm_.size() > 1;
  std::vector<float> last_hidden =
      restore_sequence({.command = command,
                        .cache = sequence.cache,
                        .stream = queue_.stream(),
                        .spec = weights_->spec(),
                        .comm = comm_,
                        .is_home =
                            [&](LayerId layer, KvHeadId kv_head, std::int64_t block) {
                              return !is_split || stage_->layer(layer).homes[kv_head].of_block(
                                                      block) == stage_->position();
                            },
                        .token_classes = token_classes_.get()});
  if (forward_->answers() && !last_hidden.empty()) {
    const auto n = static_cast<std::int64_t>(last_hidden.size());
    sequence.last_hidden =
        std::make_shared<DeviceTensor<float, 2>>(queue_.stream(), std::array{std::int64_t{1}, n});
    copy_from_host(queue_.stream(), reinterpret_cast<std::byte*>(sequence.last_hidden->data()),
                   std::as_bytes(std::span(last_hidden)));
  }
  add(command.sequence, std::move(sequence));
  return {};
}

std::string Worker::describe_memory() const {
  std::string text = fmt::format(
      "{} of this worker: weights {} bytes, KV caches {} in use of {} taken, activations {}, ring "
      "buffers {}",
      name_of(queue_.device()), weights_->matrix_bytes(), pool_.bytes_in_use(),
      pool_.bytes_reserved(), compute_.buffer_bytes(), forward_->buffer_bytes());
  if (queue_.device().kind != Device::kCpu) {
    const cuda::DeviceInfo gpu = cuda::device_info(queue_.device().ordinal);
    text += fmt::format(", the operators' scratch {}, tables of blocks {}; {} of {} bytes are free",
                        queue_.stream().cuda_stream().own_bytes(), pool_.tables().bytes(),
                        gpu.free_bytes, gpu.memory_bytes);
  }
  if (arena_) {
    const cuda::MemoryArena::Use use = arena_->use(cuda::MemoryKind::kGpu);
    const cuda::MemoryArena::Use pinned = arena_->use(cuda::MemoryKind::kPinned);
    text += fmt::format(", {} of the {} in this worker's arena, and {} of {} that are pinned",
                        use.bytes - use.bytes_taken, use.bytes, pinned.bytes - pinned.bytes_taken,
                        pinned.bytes);
    const std::int64_t n_outside = use.n_outside + pinned.n_outside;
    if (n_outside > 0) text += fmt::format(", which had no room {} times", n_outside);
  }
  return text;
}

std::int64_t Worker::n_graph_steps() const {
  if (queue_.device().kind == Device::kCpu) return 0;
  const cuda::StepGraph* steps = queue_.stream().cuda_stream().steps();
  return steps == nullptr ? 0 : steps->n_launched();
}

void Worker::throw_cache_full(std::size_t n_tokens, std::string_view detail) const {
  std::vector<std::pair<std::size_t, SequenceId>> sizes;
  for (const auto& [id, sequence] : sequences_) sizes.emplace_back(sequence.cache.bytes(), id);
  std::sort(sizes.rbegin(), sizes.rend());
  constexpr std::size_t kShown = 8;
  std::string items;
  for (std::size_t i = 0; i < std::min(kShown, sizes.size()); ++i) {
    const auto& [bytes, id] = sizes[i];
    items += fmt::format("{}sequence {}: {} bytes for {} tokens", i == 0 ? "" : "; ", id.value,
                         bytes, sequences_.at(id).n_tokens);
  }
  if (sizes.size() > kShown) items += fmt::format("; and {} more", sizes.size() - kShown);
  throw Error(
      ErrorCode::kOutOfMemory,
      fmt::format(
          "the KV cache is full in a step of {} tokens: {}. In use: {} bytes in blocks of {}, "
          "limit {} ({}; shared blocks counted for each). Drop sequences, take fewer at a "
          "time, or raise the limit",
          n_tokens, detail, pool_.bytes_in_use(), pool_.shape().bytes(),
          pool_.limit_bytes() ? fmt::format("{} bytes", *pool_.limit_bytes())
                              : std::string("what the system gives"),
          items));
}

Worker::Sequence& Worker::find(SequenceId id) {
  const auto found = sequences_.find(id);
  require(found != sequences_.end(), fmt::format("there is no sequence {}", id.value));
  return found->second;
}

std::vector<SeenBy> Worker::held_seen_by(SequenceId sequence, LayerId layer, KvHeadId kv_head) {
  const SequenceCache& cache = find(sequence).cache;
  const Extent layers = layout_.layers();
  if (layer.value < layers.begin || layer.value >= layers.end) return {};
  return cache.head(layer, kv_head).seen_by();
}

std::vector<TokenPos> Worker::held_positions(SequenceId sequence, LayerId layer, KvHeadId kv_head) {
  const SequenceCache& cache = find(sequence).cache;
  const Extent layers = layout_.layers();
  if (layer.value < layers.begin || layer.value >= layers.end) return {};
  return cache.positions(layer, kv_head);
}

Worker::Sequence& Worker::find_whole(SequenceId id) {
  Sequence& sequence = find(id);
  if (!sequence.is_whole) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        fmt::format("sequence {} was in a step that failed: it can only be dropped", id.value));
  }
  return sequence;
}

Worker::Sequence& Worker::find_settled(SequenceId id) {
  Sequence& sequence = find_whole(id);
  if (!sequence.guesses.empty()) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("sequence {} ends with {} guesses of which nobody said yet how many "
                            "were wrong: the next row of a decode batch does",
                            id.value, sequence.guesses.size()));
  }
  return sequence;
}

void Worker::add(SequenceId id, Sequence sequence) {
  require(!sequences_.contains(id), fmt::format("there is a sequence {} already", id.value));
  sequences_.emplace(id, std::move(sequence));
}

void Worker::check_allowed(const AllowedTokens& allowed) const {
  if (allowed == nullptr) return;
  require(allowed->size() <= weights_->spec().vocab_size && allowed->count() > 0,
          fmt::format("{} allowed tokens of a vocabulary of {}; the model's has {}",
                      allowed->count(), allowed->size(), weights_->spec().vocab_size));
}

void Worker::check_token(std::int32_t token) const {
  require(
      0 <= token && token < weights_->spec().vocab_size,
      fmt::format("token {} is not in the vocabulary of {}", token, weights_->spec().vocab_size));
}

}  // namespace longhaul
