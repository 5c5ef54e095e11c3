#include "tests/bench/gpu/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "partition/nearest_fit.h"
#include "tests/bench/gpu/filled_model.h"
#include "tools/bench/model_work.h"
#include "tools/bench/shapes.h"
#include "worker/worker.h"

namespace longhaul::bench {
namespace {

constexpr DeviceId kGpu{Device::kCuda, 0};
constexpr DType kWeights = DType::kI8;
constexpr KvType kCache = KvType::kInt4;
constexpr std::int64_t kBlockSize = 64;
constexpr std::uint64_t kSeed = 1;

FilledModelConfig filled_model(const ModelBenchCase& c) {
  return {.spec = c.spec,
          .heads = every_other_streaming(c.spec),
          .weights = kWeights,
          .blocks = {.block_size = kBlockSize,
                     .head_dim = c.spec.head_dim,
                     .k_type = kCache,
                     .v_type = kCache},
          .chunk_len = c.chunk_len,
          .cache_limit_bytes = c.cache_limit_bytes};
}

void print(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

double operations_of(const std::vector<Work>& steps) {
  return std::accumulate(steps.begin(), steps.end(), 0.0,
                         [](double sum, const Work& work) { return sum + work.operations(); });
}

void run_step(Worker& worker, const StepCommand& command) {
  const StepResult result = worker.step(command);
  if (const auto* failed = std::get_if<StepFailed>(&result)) {
    throw Error(failed->code, failed->message);
  }
}

std::vector<Work> work_of_prefill(const ModelSpec& spec, const ModelBenchCase& c) {
  const HeadTable heads = every_other_streaming(spec);
  const ModelWorkArgs args = {spec, heads, kWeights, {kCache, kCache, kBlockSize, spec.head_dim}};
  return prefill_work(args, {0, c.document_tokens}, c.chunk_len);
}

// A document is read by a worker, chunk by chunk, and the token after it picked.
double bench_prefill(const Rates& rates, const ModelBenchCase& c) {
  const ModelSpec spec = with_layers(c.spec, c.n_prefill_layers);
  Worker worker(
      {.weights = std::make_shared<const Weights>(Weights::synthetic(spec, kWeights, kSeed, kGpu)),
       .device = kGpu,
       .heads = every_other_streaming(spec),
       .k_type = kCache,
       .v_type = kCache,
       .block_size = kBlockSize});
  const auto read = [&](SequenceId id, std::int64_t n_tokens) {
    const std::vector<std::int32_t> tokens = some_tokens(n_tokens, spec.vocab_size);
    run_step(worker, OpenSequence{id, {}});
    for (std::int64_t begin = 0; begin < n_tokens; begin += c.chunk_len) {
      const std::int64_t end = std::min(n_tokens, begin + c.chunk_len);
      run_step(worker, PrefillChunk{.sequence = id,
                                    .tokens = {tokens.begin() + begin, tokens.begin() + end},
                                    .after = end == n_tokens ? AfterPrefill::kSample
                                                             : AfterPrefill::kNothing});
    }
    run_step(worker, DropSequences{{id}});
  };
  read(SequenceId{0}, c.chunk_len);  // loads kernels, makes buffers
  const Stopwatch watch;
  read(SequenceId{1}, c.document_tokens);
  const double seconds = watch.seconds();

  const std::vector<Work> work = work_of_prefill(spec, c);
  const double bound = bound_of(work, rates, DType::kBf16).seconds;
  const double of_all = bound_of(work_of_prefill(c.spec, c), rates, DType::kBf16).seconds;
  print(fmt::format(
      "prefill of {} tokens, {} of {} layers: {:.2f} s, {:.1f} TFLOP/s, {:.0f} % of the bound "
      "{:.2f} s",
      c.document_tokens, spec.n_layers, c.spec.n_layers, seconds,
      operations_of(work) / seconds / 1e12, 100 * bound / seconds, bound));
  print(fmt::format("  all {} layers at that share of their bound: {:.1f} s", c.spec.n_layers,
                    of_all * seconds / bound));
  return seconds;
}

double bench_decode(const Rates& rates, const ModelBenchCase& c, FilledModel& model) {
  while (model.n_tokens() < c.document_tokens) {
    const std::int64_t n = std::min(c.chunk_len, c.document_tokens - model.n_tokens());
    if (!model.append(n)) {
      print(fmt::format("decode: not run, for {} tokens do not fit", c.document_tokens));
      return 0;
    }
  }
  model.decode();  // chooses algorithms
  const Extent tokens{model.n_tokens(), model.n_tokens() + c.n_decode_steps};
  const Stopwatch watch;
  for (int i = 0; i < c.n_decode_steps; ++i) model.decode();
  const double seconds = watch.seconds() / c.n_decode_steps;
  const std::vector<Work> work = decode_work(model.work_args(), tokens);
  const double bound = bound_of(work, rates, DType::kBf16).seconds / c.n_decode_steps;
  print(fmt::format(
      "decode after {} tokens: {:.3f} ms a token, {:.0f} GB/s of {:.0f}, {:.0f} % of the bound "
      "{:.3f} ms",
      c.document_tokens, seconds * 1e3, work.front().bytes / seconds / 1e9, rates.read_bytes / 1e9,
      100 * bound / seconds, bound * 1e3));
  return seconds;
}

// The longest document that the planner takes with the memory that the GPU had before, to the last
// byte.
std::int64_t promised_tokens(const ModelBenchCase& c, const FilledModel& model) {
  PlanRequest request = {
      .spec = c.spec, .heads = model.heads(), .cluster = {}, .workload = {}, .options = {}};
  RankSpec rank;
  rank.memory_bytes = model.n_free_at_first();
  rank.device = Device::kCuda;
  request.cluster.ranks.push_back(rank);
  request.cluster.headroom = 0;
  request.workload.document_tokens = std::int64_t{1} << 30;  // searched up to here
  request.workload.tail_tokens = kBlockSize;
  request.workload.chunk_len = c.chunk_len;
  request.workload.k_type = kCache;
  request.workload.v_type = kCache;
  request.workload.block_size = kBlockSize;
  request.workload.weight_dtype = kWeights;
  return max_document_tokens(request).value_or(0);
}

// Fills the GPU beside what the longest attention takes.
std::int64_t bench_capacity(const ModelBenchCase& c, FilledModel& model, std::int64_t promised) {
  if (!c.cache_limit_bytes) model.reserve_scratch();
  std::int64_t fitting = model.n_tokens();
  while (model.append(c.chunk_len)) fitting = model.n_tokens();
  print(fmt::format("tokens that fit: {}; the planner's formula says {} ({:.1f} %)", fitting,
                    promised,
                    100.0 * static_cast<double>(promised) / static_cast<double>(fitting)));
  return fitting;
}

}  // namespace

ModelBenchCase large_model_case() {
  return {.spec = model_shape("llama-3.1-8b").spec,
          .document_tokens = std::int64_t{1} << 20,
          .chunk_len = 8192,
          .n_prefill_layers = 3,
          .n_decode_steps = 20};
}

ModelBenchResult bench_model(const Rates& rates, const ModelBenchCase& c) {
  print(
      fmt::format("{} layers of {} KV heads, {} heads, head_dim {}; weights {}, caches {}, every "
                  "other KV head streaming",
                  c.spec.n_layers, c.spec.n_kv_heads, c.spec.n_heads, c.spec.head_dim,
                  name_of(kWeights), name_of(kCache)));
  ModelBenchResult result;
  result.prefill_seconds = bench_prefill(rates, c);
  FilledModel model(filled_model(c));
  result.decode_seconds = bench_decode(rates, c, model);
  result.promised_tokens = promised_tokens(c, model);
  result.tokens_that_fit = bench_capacity(c, model, result.promised_tokens);
  return result;
}

}  // namespace longhaul::bench
