#include "worker/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "kernels/isa.h"
#include "worker/snapshot/save_sequence.h"

namespace longhaul {
namespace {

const Weights& checked_weights(const WorkerConfig& config) {
  require(config.weights != nullptr, "WorkerConfig: weights are missing");
  return *config.weights;
}

DType dtype_of(KvType type) {
  switch (type) {
    case KvType::kF32:
      return DType::kF32;
    case KvType::kBf16:
      return DType::kBf16;
    default:
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("KV cache of type {}: f32 and bf16 are supported", name_of(type)));
  }
}

KvBlockShape block_shape(const WorkerConfig& config) {
  const std::int64_t head_dim = config.weights->spec().head_dim;
  if (config.place) {
    const KvFormat& kv = config.place->plan->kv;
    return {.block_size = kv.block_size,
            .head_dim = head_dim,
            .k_dtype = dtype_of(kv.k_type),
            .v_dtype = dtype_of(kv.v_type)};
  }
  for (const DType dtype : {config.k_dtype, config.v_dtype}) {
    if (dtype != DType::kF32 && dtype != DType::kBf16) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("KV cache of type {}: f32 and bf16 are supported", name_of(dtype)));
    }
  }
  require(config.block_size > 0 && config.block_size % 16 == 0,
          fmt::format("block size is {}, it must be a positive multiple of 16", config.block_size));
  return {.block_size = config.block_size,
          .head_dim = head_dim,
          .k_dtype = config.k_dtype,
          .v_dtype = config.v_dtype};
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

HeadRoles roles_of(const WorkerConfig& config) {
  if (config.place) return config.place->plan->roles;
  const ModelSpec& spec = config.weights->spec();
  return config.roles ? *config.roles : HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
}

// Those that this worker serves: its stage's, or all that it has weights of.
Extent layers_of(const WorkerConfig& config) {
  const Extent loaded = config.weights->layers();
  if (!config.place) return loaded;
  const RingPlace& place = *config.place;
  const Extent layers =
      RingStage(*place.plan, place.replica, Rank{place.comm->job_rank()}, config.weights->spec())
          .stage()
          .layers;
  require(loaded.begin <= layers.begin && layers.end <= loaded.end,
          fmt::format("Worker: weights of layers [{}, {}) for a stage of layers [{}, {})",
                      loaded.begin, loaded.end, layers.begin, layers.end));
  return layers;
}

}  // namespace

Worker::Worker(const WorkerConfig& config)
    : weights_((checked_weights(config), config.weights)),
      comm_(config.place ? config.place->comm : nullptr),
      n_threads_(config.n_threads),
      layout_(weights_->spec(), roles_of(config), layers_of(config), block_shape(config)),
      pool_(layout_.shape(), config.cache_limit_bytes),
      compute_(*weights_),
      transformer_(compute_, layout_),
      logits_reader_(compute_),
      board_(config.board) {
  require(n_threads_ >= 0, fmt::format("{} threads", n_threads_));
  if (!config.place) return;
  rank_ = config.place->comm->job_rank();
  if (config.place->comm->size() == 1) return;
  ring_ = std::make_unique<RingWorker>(*config.place, compute_, layout_, board_, config.trace);
}

StepResult Worker::step(const StepCommand& command) {
  const Stopwatch watch;
  set_kernel_threads(n_threads_);
  const StepMark mark(board_, n_steps_++);
  try {
    StepDone done = std::visit([&](const auto& c) { return run(c); }, command);
    done.kv_bytes_in_use = pool_.bytes_in_use();
    kv_peak_bytes_ = std::max(kv_peak_bytes_, done.kv_bytes_in_use);
    done.seconds = watch.seconds();
    return done;
  } catch (const Error& error) {
    return StepFailed{.code = error.code(), .message = error.what()};
  } catch (const std::bad_alloc&) {
    return StepFailed{
        .code = ErrorCode::kOutOfMemory,
        .message = fmt::format("the system gave no memory for the step's activations; {} bytes of "
                               "KV cache are in use. Take shorter chunks or smaller batches",
                               pool_.bytes_in_use())};
  }
}

void Worker::serve(WorkerLink& link) {
  while (const std::optional<StepCommand> command = link.next()) {
    link.answer(step(*command));
    if (std::holds_alternative<Shutdown>(*command)) return;
  }
}

StepDone Worker::run(const OpenSequence& command) {
  check_sampling(command.sampling);
  add(command.sequence,
      {.cache = SequenceCache(layout_, pool_), .sampling = command.sampling, .last_hidden = {}});
  return {};
}

StepDone Worker::run(const ForkSequence& command) {
  check_sampling(command.sampling);
  const Sequence& parent = find_whole(command.parent);
  add(command.child, {.cache = parent.cache.fork(),
                      .sampling = command.sampling,
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
  if (ring_) ring_->drain();
  return {};
}

StepDone Worker::run(const ReportRank& /*command*/) {
  RankReport report;
  report.rank = rank_;
  for (std::size_t i = 0; i < kNPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    report.phase_seconds.push_back({std::string(name_of(phase)), times()[phase]});
  }
  report.ring_wait_seconds = times()[Phase::kRingWait];
  if (ring_) {
    const TrafficCounters traffic = ring_->traffic();
    for (int i = 0; i < kTrafficKinds; ++i) {
      const auto kind = static_cast<Traffic>(i);
      if (traffic[kind].bytes == 0) continue;
      report.sent_bytes.push_back({std::string(name_of(kind)), traffic[kind].bytes});
    }
    report.buffer_bytes = static_cast<std::int64_t>(ring_->buffer_bytes());
  }
  report.weight_bytes = static_cast<std::int64_t>(weights_->matrix_bytes());
  report.kv_retrieval_bytes = static_cast<std::int64_t>(pool_.bytes_in_use(BlockUse::kRetrieval));
  report.kv_streaming_bytes = static_cast<std::int64_t>(pool_.bytes_in_use(BlockUse::kStreaming));
  report.kv_peak_bytes = static_cast<std::int64_t>(kv_peak_bytes_);
  StepDone done;
  done.reports.push_back(std::move(report));
  return done;
}

StepDone Worker::run(const SaveSequence& command) {
  save_sequence({.command = command,
                 .cache = find_whole(command.sequence).cache,
                 .spec = weights_->spec(),
                 .comm = comm_});
  return {};
}

// Runs what the ranks do together. When it fails here, the others are told: nobody waits.
template <typename Work>
StepDone Worker::together(const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    if (ring_) ring_->abort(ErrorCode::kPeerFailed, error.what());
    throw;
  }
}

StepDone Worker::run(const PrefillChunk& command) {
  Sequence& sequence = find_whole(command.sequence);
  require(!command.tokens.empty(),
          fmt::format("sequence {}: a chunk without tokens", command.sequence.value));
  for (const std::int32_t token : command.tokens) check_token(token);
  sequence.is_whole = false;
  StepDone done = together([&] {
    return ring_ ? prefill_on_ring(command, sequence) : prefill_alone(command, sequence);
  });
  sequence.is_whole = true;
  return done;
}

StepDone Worker::prefill_alone(const PrefillChunk& command, Sequence& sequence) {
  const auto n_new = static_cast<std::int64_t>(command.tokens.size());
  const BatchSegment segment{
      .cache = &sequence.cache, .rows = {0, n_new}, .first_position = sequence.n_tokens};
  const bool scores = command.score_logprobs >= 0;
  const auto hidden = forward({.tokens = command.tokens,
                               .segments = {&segment, 1},
                               .wanted = Extent{scores ? 0 : n_new - 1, n_new}});
  StepDone done;
  if (scores) done.scored = score(command, sequence, hidden);
  sequence.n_tokens += n_new;
  answer_last(command, sequence, hidden, done);
  return done;
}

StepDone Worker::prefill_on_ring(const PrefillChunk& command, Sequence& sequence) {
  const auto n_new = static_cast<std::int64_t>(command.tokens.size());
  const bool scores = command.score_logprobs >= 0;
  const WantedRows wanted = scores ? WantedRows::kAll : WantedRows::kLast;
  const std::int64_t first = sequence.n_tokens;
  const auto hidden = ring_->prefill(sequence.cache, first, command.tokens, wanted);
  StepDone done;
  if (scores && ring_->is_last_stage()) {
    const RingChunk chunk = ring_->chunk_of(first, n_new, wanted);
    done.scored = ring_->gather_scored(chunk, score_own_slabs(command, sequence, chunk, hidden));
    if (ring_->answers() && first > 0) {
      const TensorView<const float, 2> before(sequence.last_hidden.data(), {1, hidden.dim(1)});
      const LogitsQuestion question = score_question(command, sequence, 0);
      std::vector<PickedToken> of_first;
      logits_reader_.answer(before, {&question, 1}, of_first);
      done.scored.insert(done.scored.begin(), std::move(of_first.front()));
    }
  }
  sequence.n_tokens += n_new;
  if (ring_->answers()) answer_last(command, sequence, hidden, done);
  return done;
}

// The last row of a chunk: kept for the next chunk, and asked for the next token.
void Worker::answer_last(const PrefillChunk& command, Sequence& sequence,
                         const TensorView<const float, 2>& hidden, StepDone& done) {
  const Extent last{hidden.dim(0) - 1, hidden.dim(0)};
  keep_last_hidden(sequence, hidden, last.begin);
  if (command.after != AfterPrefill::kSample) return;
  const LogitsQuestion question{.sequence = command.sequence,
                                .sampling = &sequence.sampling,
                                .position = sequence.n_tokens,
                                .n_logprobs = sequence.sampling.n_logprobs};
  logits_reader_.answer(hidden.slice(0, last), {&question, 1}, done.picked);
}

StepDone Worker::run(const DecodeBatch& command) {
  if (command.rows.empty()) return {};
  std::vector<Sequence*> rows;
  std::vector<std::int32_t> tokens;
  std::unordered_set<SequenceId> seen;
  for (const DecodeBatch::Row& row : command.rows) {
    check_token(row.token);
    require(seen.insert(row.sequence).second,
            fmt::format("sequence {} is twice in the batch", row.sequence.value));
    rows.push_back(&find_whole(row.sequence));
    tokens.push_back(row.token);
  }
  for (Sequence* sequence : rows) sequence->is_whole = false;
  StepDone done = together([&] {
    StepDone answer;
    if (ring_) {
      decode_on_ring(command, rows, tokens, answer);
    } else {
      decode_alone(command, rows, tokens, answer);
    }
    return answer;
  });
  for (Sequence* sequence : rows) sequence->is_whole = true;
  return done;
}

void Worker::decode_alone(const DecodeBatch& command, std::span<Sequence* const> rows,
                          std::span<const std::int32_t> tokens, StepDone& done) {
  std::vector<BatchSegment> segments;
  for (Sequence* sequence : rows) {
    const auto i = static_cast<std::int64_t>(segments.size());
    segments.push_back(
        {.cache = &sequence->cache, .rows = {i, i + 1}, .first_position = sequence->n_tokens});
  }
  const auto hidden = forward({.tokens = tokens, .segments = segments});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ++rows[i]->n_tokens;
    keep_last_hidden(*rows[i], hidden, static_cast<std::int64_t>(i));
  }
  logits_reader_.answer(hidden, picks(command, rows), done.picked);
}

void Worker::decode_on_ring(const DecodeBatch& command, std::span<Sequence* const> rows,
                            std::span<const std::int32_t> tokens, StepDone& done) {
  std::vector<DecodeRow> decode_rows;
  for (Sequence* sequence : rows) decode_rows.push_back({&sequence->cache, sequence->n_tokens});
  const auto hidden = ring_->decode(decode_rows, tokens);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ++rows[i]->n_tokens;
    if (ring_->answers()) keep_last_hidden(*rows[i], hidden, static_cast<std::int64_t>(i));
  }
  if (ring_->is_last_stage()) {
    ring_->pick(hidden, picks(command, rows), logits_reader_, done.picked);
  }
}

// What is asked of each row after its token was appended.
std::vector<LogitsQuestion> Worker::picks(const DecodeBatch& command,
                                          std::span<Sequence* const> rows) {
  std::vector<LogitsQuestion> questions;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    questions.push_back({.sequence = command.rows[i].sequence,
                         .sampling = &rows[i]->sampling,
                         .position = rows[i]->n_tokens,
                         .n_logprobs = rows[i]->sampling.n_logprobs});
  }
  return questions;
}

// Token i of a chunk, scored by whoever has the hidden row of the token before it.
LogitsQuestion Worker::score_question(const PrefillChunk& command, const Sequence& sequence,
                                      std::int64_t i) const {
  return {.sequence = command.sequence,
          .token = command.tokens[static_cast<std::size_t>(i)],
          .position = sequence.n_tokens + i,
          .n_logprobs = command.score_logprobs};
}

// The tokens after those of this rank's slabs.
std::vector<PickedToken> Worker::score_own_slabs(const PrefillChunk& command,
                                                 const Sequence& sequence, const RingChunk& chunk,
                                                 const TensorView<const float, 2>& hidden) {
  std::vector<PickedToken> scored;
  std::int64_t row = 0;
  for (const Extent& slab : chunk.made[static_cast<std::size_t>(ring_->stage().position())]) {
    std::vector<LogitsQuestion> questions;
    for (std::int64_t t = slab.begin; t < std::min(slab.end, chunk.tokens.end - 1); ++t) {
      questions.push_back(score_question(command, sequence, t + 1 - chunk.tokens.begin));
    }
    const auto n = static_cast<std::int64_t>(questions.size());
    logits_reader_.answer(hidden.slice(0, {row, row + n}), questions, scored);
    row += slab.size();
  }
  return scored;
}

// Token i of the chunk is scored by the hidden row of the token before it.
std::vector<PickedToken> Worker::score(const PrefillChunk& command, const Sequence& sequence,
                                       const TensorView<const float, 2>& hidden) {
  const auto n_new = static_cast<std::int64_t>(command.tokens.size());
  std::vector<LogitsQuestion> questions;
  for (std::int64_t i = 0; i < n_new; ++i) {
    questions.push_back(score_question(command, sequence, i));
  }
  std::vector<PickedToken> scored;
  if (sequence.n_tokens > 0) {
    const TensorView<const float, 2> before(sequence.last_hidden.data(), {1, hidden.dim(1)});
    logits_reader_.answer(before, std::span(questions).first(1), scored);
  }
  logits_reader_.answer(hidden.slice(0, {0, n_new - 1}), std::span(questions).subspan(1), scored);
  return scored;
}

TensorView<const float, 2> Worker::forward(const Batch& batch) {
  try {
    return transformer_.forward(batch);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    throw_cache_full(batch, error.what());
  }
}

void Worker::throw_cache_full(const Batch& batch, std::string_view detail) const {
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
          batch.n_rows(), detail, pool_.bytes_in_use(), pool_.shape().bytes(),
          pool_.limit_bytes() ? fmt::format("{} bytes", *pool_.limit_bytes())
                              : std::string("what the system gives"),
          items));
}

Worker::Sequence& Worker::find(SequenceId id) {
  const auto found = sequences_.find(id);
  require(found != sequences_.end(), fmt::format("there is no sequence {}", id.value));
  return found->second;
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

void Worker::add(SequenceId id, Sequence sequence) {
  require(!sequences_.contains(id), fmt::format("there is a sequence {} already", id.value));
  sequences_.emplace(id, std::move(sequence));
}

void Worker::check_token(std::int32_t token) const {
  require(
      0 <= token && token < weights_->spec().vocab_size,
      fmt::format("token {} is not in the vocabulary of {}", token, weights_->spec().vocab_size));
}

void Worker::keep_last_hidden(Sequence& sequence, const TensorView<const float, 2>& hidden,
                              std::int64_t row) {
  const float* data = hidden.data() + row * hidden.stride(0);
  sequence.last_hidden.assign(data, data + hidden.dim(1));
}

}  // namespace longhaul
