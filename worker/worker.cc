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

namespace longhaul {
namespace {

const Weights& checked_weights(const WorkerConfig& config) {
  require(config.weights != nullptr, "WorkerConfig: weights are missing");
  return *config.weights;
}

KvBlockShape block_shape(const WorkerConfig& config) {
  for (const DType dtype : {config.k_dtype, config.v_dtype}) {
    if (dtype != DType::kF32 && dtype != DType::kBf16) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("KV cache of type {}: f32 and bf16 are supported", name_of(dtype)));
    }
  }
  require(config.block_size > 0 && config.block_size % 16 == 0,
          fmt::format("block size is {}, it must be a positive multiple of 16", config.block_size));
  return {.block_size = config.block_size,
          .head_dim = config.weights->spec().head_dim,
          .k_dtype = config.k_dtype,
          .v_dtype = config.v_dtype};
}

HeadRoles roles_of(const WorkerConfig& config) {
  const ModelSpec& spec = config.weights->spec();
  return config.roles ? *config.roles : HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
}

}  // namespace

Worker::Worker(const WorkerConfig& config)
    : weights_((checked_weights(config), config.weights)),
      n_threads_(config.n_threads),
      layout_(weights_->spec(), roles_of(config), weights_->layers(), block_shape(config)),
      pool_(layout_.shape(), config.cache_limit_bytes),
      transformer_(*weights_, layout_),
      logits_reader_(transformer_) {
  require(n_threads_ >= 0, fmt::format("{} threads", n_threads_));
}

StepResult Worker::step(const StepCommand& command) {
  const Stopwatch watch;
  set_kernel_threads(n_threads_);
  try {
    StepDone done = std::visit([&](const auto& c) { return run(c); }, command);
    done.kv_bytes_in_use = pool_.bytes_in_use();
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

StepDone Worker::run(const ReportRank& /*command*/) {
  RankReport report;
  for (std::size_t i = 0; i < kNPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    report.phase_seconds.push_back({std::string(name_of(phase)), times()[phase]});
  }
  report.weight_bytes = static_cast<std::int64_t>(weights_->matrix_bytes());
  report.kv_retrieval_bytes = static_cast<std::int64_t>(pool_.bytes_in_use());
  StepDone done;
  done.reports.push_back(std::move(report));
  return done;
}

StepDone Worker::run(const PrefillChunk& command) {
  Sequence& sequence = find_whole(command.sequence);
  require(!command.tokens.empty(),
          fmt::format("sequence {}: a chunk without tokens", command.sequence.value));
  for (const std::int32_t token : command.tokens) check_token(token);

  const auto n_new = static_cast<std::int64_t>(command.tokens.size());
  const BatchSegment segment{
      .cache = &sequence.cache, .rows = {0, n_new}, .first_position = sequence.n_tokens};
  sequence.is_whole = false;
  const bool scores = command.score_logprobs >= 0;
  const auto hidden = forward({.tokens = command.tokens,
                               .segments = {&segment, 1},
                               .wanted = Extent{scores ? 0 : n_new - 1, n_new}});
  const Extent last{hidden.dim(0) - 1, hidden.dim(0)};

  StepDone done;
  if (scores) done.scored = score(command, sequence, hidden);
  sequence.n_tokens += n_new;
  keep_last_hidden(sequence, hidden, last.begin);
  if (command.after == AfterPrefill::kSample) {
    const LogitsQuestion question{.sequence = command.sequence,
                                  .sampling = &sequence.sampling,
                                  .position = sequence.n_tokens,
                                  .n_logprobs = sequence.sampling.n_logprobs};
    logits_reader_.answer(hidden.slice(0, last), {&question, 1}, done.picked);
  }
  sequence.is_whole = true;
  return done;
}

StepDone Worker::run(const DecodeBatch& command) {
  if (command.rows.empty()) return {};
  std::vector<Sequence*> rows;
  std::vector<std::int32_t> tokens;
  std::vector<BatchSegment> segments;
  std::unordered_set<SequenceId> seen;
  for (const DecodeBatch::Row& row : command.rows) {
    check_token(row.token);
    require(seen.insert(row.sequence).second,
            fmt::format("sequence {} is twice in the batch", row.sequence.value));
    rows.push_back(&find_whole(row.sequence));
    const auto i = static_cast<std::int64_t>(tokens.size());
    tokens.push_back(row.token);
    segments.push_back({.cache = &rows.back()->cache,
                        .rows = {i, i + 1},
                        .first_position = rows.back()->n_tokens});
  }
  for (Sequence* sequence : rows) sequence->is_whole = false;
  const auto hidden = forward({.tokens = tokens, .segments = segments});

  std::vector<LogitsQuestion> questions;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Sequence& sequence = *rows[i];
    ++sequence.n_tokens;
    keep_last_hidden(sequence, hidden, static_cast<std::int64_t>(i));
    questions.push_back({.sequence = command.rows[i].sequence,
                         .sampling = &sequence.sampling,
                         .position = sequence.n_tokens,
                         .n_logprobs = sequence.sampling.n_logprobs});
  }
  StepDone done;
  logits_reader_.answer(hidden, questions, done.picked);
  for (Sequence* sequence : rows) sequence->is_whole = true;
  return done;
}

// Token i of the chunk is scored by the hidden row of the token before it.
std::vector<PickedToken> Worker::score(const PrefillChunk& command, const Sequence& sequence,
                                       const TensorView<const float, 2>& hidden) {
  const auto n_new = static_cast<std::int64_t>(command.tokens.size());
  std::vector<LogitsQuestion> questions;
  for (std::int64_t i = 0; i < n_new; ++i) {
    questions.push_back({.sequence = command.sequence,
                         .token = command.tokens[static_cast<std::size_t>(i)],
                         .position = sequence.n_tokens + i,
                         .n_logprobs = command.score_logprobs});
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
