#include "tools/bench/bench_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kernels/cpu/isa.h"
#include "kernels/probes/cpu_probes.h"
#include "tools/bench/machine.h"

namespace longhaul::bench {
namespace {

std::vector<Work> work_of(const BenchModel& model, const ModelTest& test, std::int64_t chunk_len) {
  const std::int64_t prompt_end = test.n_depth + test.n_prompt;
  ModelWorkArgs args = model.work_args();
  args.n_document = test.n_depth;
  std::vector<Work> steps = prefill_work(args, {test.n_depth, prompt_end}, chunk_len);
  if (test.n_prompt > 0) args.n_prompt = prompt_end;
  const auto decoding = decode_work(args, {prompt_end, prompt_end + test.n_gen}, test.n_sequences);
  steps.insert(steps.end(), decoding.begin(), decoding.end());
  return steps;
}

ModelFacts facts_of(const BenchSessionArgs& args) {
  ModelFacts facts = args.model.facts();
  facts.cpu = cpu_name();
  facts.isa = name_of(active_isa());
  facts.n_ranks = std::ssize(args.replica.job.hosts);
  facts.chunk_len = args.replica.steps.chunk_len;
  facts.clock = args.clock;
  return facts;
}

}  // namespace

std::int64_t cpu_read_bytes(const std::vector<std::string>& hosts) {
  constexpr std::int64_t kLeast = std::int64_t{64} << 20;
  std::map<std::string, std::int64_t> n_ranks;
  std::int64_t most = 1;
  for (const std::string& host : hosts) most = std::max(most, ++n_ranks[host]);
  return std::max(kLeast, CpuProbes::kReadBytes / most);
}

BenchSession::BenchSession(const BenchSessionArgs& args)
    : args_(args),
      facts_(facts_of(args)),
      runner_({.link = args.replica.link,
               .steps = args.replica.steps,
               .vocab_size = args.model.spec().vocab_size,
               .clock = args.clock,
               .cpu_read_bytes = cpu_read_bytes(args.replica.job.hosts)}) {}

std::vector<Cell> BenchSession::run(const ModelTest& test) {
  const std::vector<Work> work = work_of(args_.model, test, facts_.chunk_len);
  const DType dtype = args_.model.work_args().weight_dtype;
  if (args_.warms_up) warm_up(test);
  std::vector<ModelSample> samples;
  Rates before = measure();
  Rates best = before;
  Bound bound;
  for (int i = 1; i <= args_.n_repetitions; ++i) {
    args_.on_progress(fmt::format("{}: {} of {}", name_of(test), i, args_.n_repetitions));
    const ModelRunner::Run run = runner_.run(test);
    const Rates after = measure();
    bound = bound_of(work, better_of(before, after), dtype);
    samples.push_back(
        {.seconds = run.seconds, .bound_seconds = bound.seconds, .n_steps = run.n_steps});
    best = better_of(best, after);
    before = after;
  }
  return model_cells(facts_, test, samples, bound.limit, best);
}

// Of all ranks together.
Rates BenchSession::measure() {
  const RingRates ring = runner_.rates();
  facts_.n_ranks = ring.n_ranks;
  facts_.n_threads = ring.n_threads;
  return ring.together;
}

// Fills the depth, maps weights, makes buffers.
void BenchSession::warm_up(ModelTest test) {
  args_.on_progress(fmt::format("{}: warming up", name_of(test)));
  test.n_prompt = std::min(test.n_prompt, facts_.chunk_len);
  test.n_gen = std::min<std::int64_t>(test.n_gen, 1);
  runner_.run(test);
}

}  // namespace longhaul::bench
