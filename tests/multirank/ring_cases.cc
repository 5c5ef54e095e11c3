#include "tests/multirank/ring_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "cluster/comm/in_process.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

// n cut into `parts` consecutive extents at multiples of `unit`, some possibly empty.
IndexedVector<RingPos, Extent> random_slices(Random& random, std::int64_t n, std::size_t parts,
                                             std::int64_t unit = 1) {
  std::vector<std::int64_t> cuts{0, n};
  for (std::size_t i = 1; i < parts; ++i) cuts.push_back(random.integer(0, n / unit) * unit);
  std::sort(cuts.begin(), cuts.end());
  IndexedVector<RingPos, Extent> slices;
  for (std::size_t i = 0; i < parts; ++i) slices.push_back({cuts[i], cuts[i + 1]});
  return slices;
}

IndexedVector<RingPos, std::int64_t> random_shares(Random& random, std::size_t n) {
  std::vector<std::int64_t> shares(n, 0);
  std::int64_t left = Stage::kTokenShareTotal;
  for (std::size_t i = 0; i + 1 < n; ++i) {
    if (random.chance(0.2)) continue;
    shares[i] = random.integer(0, left);
    left -= shares[i];
  }
  shares.back() = left;
  std::shuffle(shares.begin(), shares.end(), random.engine());
  return IndexedVector<RingPos, std::int64_t>(std::move(shares));
}

Home random_home(Random& random, const std::vector<Rank>& ring, bool may_split) {
  std::vector<Rank> ranks = ring;
  std::shuffle(ranks.begin(), ranks.end(), random.engine());
  const std::int64_t most = may_split ? static_cast<std::int64_t>(ranks.size()) : 1;
  Home home;
  for (std::int64_t i = 0; i < random.integer(1, most); ++i) {
    home.shares.push_back({ranks[static_cast<std::size_t>(i)], random.integer(1, 5)});
  }
  return home;
}

Stage random_stage(Random& random, const ModelSpec& spec, const HeadTable& heads,
                   std::vector<Rank> ring, Extent layers, std::int64_t ffn_unit, bool whole_heads) {
  Stage stage;
  stage.layers = layers;
  stage.ring = IndexedVector<RingPos, Rank>(std::move(ring));
  stage.token_share = random_shares(random, stage.ring.size());
  for (const LayerId layer : stage.layer_ids()) {
    auto& homes = stage.home.emplace_back();
    for (const KvHeadId head : IdRange<KvHeadId>(spec.n_kv_heads)) {
      const bool may_split = !whole_heads && heads.window(layer, head).is_unlimited();
      homes.push_back(random_home(random, stage.ring.values(), may_split));
    }
  }
  stage.ffn_slice = random_slices(random, spec.d_ff, stage.ring.size(), ffn_unit);
  stage.vocab_slice.assign(stage.ring.size(), Extent{});
  if (layers.end == spec.n_layers) {
    stage.vocab_slice = random_slices(random, spec.vocab_size, stage.ring.size());
  }
  return stage;
}

// Applies commands to the reference worker and notes both.
class Script {
 public:
  Script(Worker& worker, std::vector<StepResult>& results) : worker_(worker), results_(results) {}
  StepDone add(StepCommand command) {
    results_.push_back(worker_.step(command));
    commands.push_back(std::move(command));
    return done(results_.back());
  }
  std::vector<StepCommand> commands;

 private:
  Worker& worker_;
  std::vector<StepResult>& results_;
};

void merge_into(StepDone& all, StepDone one) {
  if (!one.picked.empty()) all.picked = std::move(one.picked);
  if (!one.scored.empty()) all.scored = std::move(one.scored);
  all.kv_bytes_in_use += one.kv_bytes_in_use;
}

// Another token is right too when the wanted worker held it for as likely.
bool is_as_likely(const PickedToken& want, std::int32_t token, double tolerance) {
  return std::any_of(want.top.begin(), want.top.end(), [&](const TokenLogprob& t) {
    return t.token == token && want.logprob - t.logprob < tolerance;
  });
}

std::string compare(const std::vector<PickedToken>& want, const std::vector<PickedToken>& got,
                    double tolerance) {
  if (want.size() != got.size()) return fmt::format("{} answers, not {}", got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    const bool same_token =
        want[i].token == got[i].token || is_as_likely(want[i], got[i].token, tolerance);
    if (!same_token || want[i].sequence != got[i].sequence) {
      return fmt::format("answer {}: token {} of sequence {}, not {} of {}", i, got[i].token,
                         got[i].sequence.value, want[i].token, want[i].sequence.value);
    }
    if (std::abs(want[i].logprob - got[i].logprob) > tolerance) {
      return fmt::format("answer {}: log-probability {}, not {}", i, got[i].logprob,
                         want[i].logprob);
    }
    if (want[i].top.size() != got[i].top.size()) return fmt::format("answer {}: top differs", i);
  }
  return {};
}

}  // namespace

Plan random_plan(Random& random, const ModelSpec& spec, const HeadTable& heads,
                 std::int64_t n_ranks, std::int64_t n_stages, const KvFormat& kv,
                 std::int64_t ffn_unit, bool reproducible) {
  Plan plan;
  plan.reproducible = reproducible;
  plan.kv = kv;
  plan.chunk_len = 64;
  plan.heads = heads;
  std::vector<Rank> ranks;
  for (std::int64_t r = 0; r < n_ranks; ++r) ranks.push_back(Rank{r});
  std::shuffle(ranks.begin(), ranks.end(), random.engine());
  Replica replica;
  Extent layers;
  std::size_t first = 0;
  for (std::int64_t s = 0; s < n_stages; ++s) {
    const std::int64_t left = n_stages - s - 1;
    layers.begin = layers.end;
    layers.end = left == 0 ? spec.n_layers : random.integer(layers.begin + 1, spec.n_layers - left);
    const auto n_left = static_cast<std::int64_t>(ranks.size() - first);
    const std::int64_t n = left == 0 ? n_left : random.integer(1, n_left - left);
    const auto begin = ranks.begin() + static_cast<std::ptrdiff_t>(first);
    replica.stages.push_back(
        random_stage(random, spec, heads, {begin, begin + n}, layers, ffn_unit, reproducible));
    first += static_cast<std::size_t>(n);
  }
  plan.replicas.push_back(std::move(replica));
  return plan;
}

std::vector<StepCommand> random_script(Random& random, Worker& worker, Draws draws,
                                       std::vector<StepResult>& results) {
  constexpr std::int64_t kVocab = 40;  // the smallest of random_spec
  const auto tokens = [&](std::int64_t n) { return random_tokens(random, n, kVocab); };
  const SamplingParams greedy{.n_logprobs = 3};
  const SamplingParams sampled{.temperature = 0.8, .top_p = 0.9, .seed = 5, .n_logprobs = 0};
  LogitRules penalties{.bias = {{3, -2.0F}, {17, 1.5F}},
                       .repetition_penalty = 1.3,
                       .frequency_penalty = 0.4,
                       .presence_penalty = 0.2,
                       .prompt_tokens = IdSet(kVocab)};
  for (const std::int32_t token : tokens(10)) penalties.prompt_tokens.insert(token);
  const auto rules = std::make_shared<const LogitRules>(std::move(penalties));
  Script script(worker, results);
  std::vector<DecodeBatch::Row> rows;
  const auto pick_into_row = [&](const StepDone& answer) {
    rows.push_back({answer.picked.at(0).sequence, answer.picked.at(0).token});
  };
  const auto decode = [&](int n_steps) {
    for (int i = 0; i < n_steps && !rows.empty(); ++i) {
      const StepDone answer = script.add(DecodeBatch{rows});
      for (std::size_t r = 0; r < rows.size(); ++r) rows[r].token = answer.picked[r].token;
    }
  };
  std::int64_t next_id = 0;
  for (int document = 0; document < 2; ++document) {
    const SequenceId doc{next_id++};
    script.add(OpenSequence{doc, {}});
    const std::int64_t n_chunks = random.integer(1, 4);
    for (std::int64_t c = 0; c < n_chunks; ++c) {
      const std::int64_t score = random.chance(0.3) ? 2 : -1;
      script.add(PrefillChunk{doc, tokens(random.integer(1, 150)), AfterPrefill::kNothing, score});
      if (random.chance(0.5)) decode(1);  // of the document before
    }
    for (std::int64_t f = 0; f < random.integer(1, 3); ++f) {
      const SequenceId fork{next_id++};
      const bool draws_this = draws == Draws::kSome && random.chance(0.3);
      script.add(ForkSequence{doc, fork, draws_this ? sampled : greedy,
                              draws == Draws::kSome && random.chance(0.5) ? rules : nullptr});
      pick_into_row(script.add(PrefillChunk{fork, tokens(random.integer(1, 40)),
                                            AfterPrefill::kSample, random.chance(0.3) ? 1 : -1}));
    }
    decode(static_cast<int>(random.integer(1, 20)));
    if (random.chance(0.5)) script.add(DropSequences{{doc}});
  }
  decode(3);
  return script.commands;
}

RingRun run_on_ring(const RingRunConfig& config, const std::vector<StepCommand>& script) {
  const auto plan = std::make_shared<const Plan>(config.plan);
  std::int64_t n_ranks = 0;
  for (const Stage& stage : plan->replicas.front().stages) {
    n_ranks += static_cast<std::int64_t>(stage.ring.size());
  }
  const auto cluster = std::make_shared<const ClusterSpec>(equal_cluster(n_ranks, 1 << 30));
  RingRun run;
  run.results.resize(script.size());
  run.reports.resize(script.size());
  std::mutex mutex;
  run_in_process(static_cast<int>(n_ranks), [&](Communicator& comm) {
    const DeviceId device = config.devices.empty()
                                ? DeviceId{}
                                : config.devices.at(static_cast<std::size_t>(comm.rank()));
    Worker worker(
        {.weights = device.kind == Device::kCpu ? config.weights : config.gpu_weights,
         .device = device,
         .n_threads = 1,
         .place =
             RingPlace{.plan = plan, .cluster = cluster, .comm = &comm, .history = config.history},
         .trace = config.traces == nullptr
                      ? nullptr
                      : &config.traces->at(static_cast<std::size_t>(comm.rank()))});
    for (std::size_t i = 0; i < script.size(); ++i) {
      StepDone answer = done(worker.step(script[i]));
      std::vector<RankReport> reports;
      if (config.with_reports) reports = done(worker.step(ReportRank{})).reports;
      const std::lock_guard lock(mutex);
      merge_into(run.results[i], std::move(answer));
      for (RankReport& report : reports) run.reports[i].push_back(std::move(report));
    }
    done(worker.step(Shutdown{}));
  });
  for (auto& reports : run.reports) {
    std::sort(reports.begin(), reports.end(),
              [](const RankReport& a, const RankReport& b) { return a.rank < b.rank; });
  }
  return run;
}

std::string difference(const std::vector<StepResult>& want, const std::vector<StepDone>& got,
                       double tolerance) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto& w = std::get<StepDone>(want[i]);
    for (const auto& [name, a, b] : {std::tuple{"picked", &w.picked, &got[i].picked},
                                     std::tuple{"scored", &w.scored, &got[i].scored}}) {
      const std::string text = compare(*a, *b, tolerance);
      if (!text.empty()) return fmt::format("command {}, {}: {}", i, name, text);
    }
  }
  return {};
}

}  // namespace longhaul::test
