#include "tests/multirank/ring_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

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

// Behind a token that is another one, as likely, guesses come true or not: what its row picked
// after it is not compared.
std::string compare(const std::vector<PickedToken>& want, const std::vector<PickedToken>& got,
                    double tolerance) {
  const auto pass_row = [](const std::vector<PickedToken>& picked, std::size_t& i) {
    const SequenceId sequence = picked[i].sequence;
    while (i < picked.size() && picked[i].sequence == sequence) ++i;
  };
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < want.size() && j < got.size()) {
    const PickedToken& w = want[i];
    const PickedToken& g = got[j];
    const bool same_token = w.token == g.token || is_as_likely(w, g.token, tolerance);
    if (!same_token || w.sequence != g.sequence) {
      return fmt::format("answer {}: token {} of sequence {}, not {} of {}", i, g.token,
                         g.sequence.value, w.token, w.sequence.value);
    }
    if (std::abs(w.logprob - g.logprob) > tolerance) {
      return fmt::format("answer {}: log-probability {}, not {}", i, g.logprob, w.logprob);
    }
    if (w.top.size() != g.top.size()) return fmt::format("answer {}: top differs", i);
    if (w.token == g.token) {
      ++i;
      ++j;
    } else {
      pass_row(want, i);
      pass_row(got, j);
    }
  }
  if (i < want.size() || j < got.size())
    return fmt::format("{} answers, not {}", got.size(), want.size());
  return {};
}

// The next tokens of a sequence's answer, from a fork that is dropped again; of one with penalties
// perhaps others.
std::vector<std::int32_t> look_ahead(Worker& worker, const DecodeBatch::Row& row, std::int64_t n,
                                     const SamplingParams& sampling) {
  const SequenceId ahead{1'000'000};
  done(worker.step(ForkSequence{row.sequence, ahead, sampling}));
  std::vector<std::int32_t> tokens = {row.token};
  while (static_cast<std::int64_t>(tokens.size()) <= n) {
    tokens.push_back(
        done(worker.step(DecodeBatch{.rows = {{ahead, tokens.back()}}})).picked.at(0).token);
  }
  done(worker.step(DropSequences{{ahead}}));
  return {tokens.begin() + 1, tokens.end()};
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
                                       std::vector<StepResult>& results, Guesses may_guess) {
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
  std::map<SequenceId, SamplingParams> sampling;
  // Guesses that are right, wrong, or right at first. Behind others nobody can look ahead.
  const auto guess = [&](DecodeBatch::Row& row) {
    const std::int64_t n = random.integer(1, 20);
    row.guesses =
        random.chance(0.3) ? tokens(n) : look_ahead(worker, row, n, sampling.at(row.sequence));
    if (random.chance(0.6))
      row.guesses[static_cast<std::size_t>(random.integer(0, n - 1))] = tokens(1)[0];
  };
  const auto decode = [&](int n_steps) {
    bool were_guesses = false;
    for (int i = 0; i < n_steps && !rows.empty(); ++i) {
      const bool guesses = may_guess == Guesses::kSome && !were_guesses && random.chance(0.4);
      for (DecodeBatch::Row& row : rows) {
        if (guesses && random.chance(0.7)) guess(row);
      }
      const StepDone answer = script.add(DecodeBatch{rows});
      auto picked = answer.picked.begin();
      for (DecodeBatch::Row& row : rows) {
        row.n_wrong = static_cast<std::int64_t>(row.guesses.size()) + 1;
        for (; picked != answer.picked.end() && picked->sequence == row.sequence; ++picked) {
          row.token = picked->token;
          --row.n_wrong;
        }
        row.guesses.clear();
      }
      were_guesses = guesses;
    }
    if (were_guesses) {  // so that every sequence is known whole
      const StepDone answer = script.add(DecodeBatch{rows});
      for (std::size_t r = 0; r < rows.size(); ++r)
        rows[r] = {rows[r].sequence, answer.picked[r].token};
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
      sampling[fork] = draws_this ? sampled : greedy;
      script.add(ForkSequence{doc, fork, sampling[fork],
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
    WorkerConfig of_rank{
        .weights = device.kind == Device::kCpu ? config.weights : config.gpu_weights,
        .device = device,
        .token_classes = config.token_classes,
        .n_threads = 1,
        .place =
            RingPlace{.plan = plan, .cluster = cluster, .comm = &comm, .history = config.history},
        .trace = config.traces == nullptr
                     ? nullptr
                     : &config.traces->at(static_cast<std::size_t>(comm.rank()))};
    if (config.adapt) config.adapt(comm.rank(), of_rank);
    Worker worker(of_rank);
    for (std::size_t i = 0; i < script.size(); ++i) {
      StepDone answer = done(worker.step(script[i]));
      std::vector<RankReport> reports;
      if (config.with_reports) reports = done(worker.step(ReportRank{})).reports;
      const std::lock_guard lock(mutex);
      merge_into(run.results[i], std::move(answer));
      for (RankReport& report : reports) run.reports[i].push_back(std::move(report));
    }
    if (config.look) {
      const std::lock_guard lock(mutex);
      config.look(worker);
    }
    done(worker.step(Shutdown{}));
  });
  for (auto& reports : run.reports) {
    std::sort(reports.begin(), reports.end(),
              [](const RankReport& a, const RankReport& b) { return a.rank < b.rank; });
  }
  return run;
}

std::vector<std::int64_t> chunk_lengths_to_try(std::int64_t n,
                                               [[maybe_unused]] std::int64_t n_ranks) {
#ifdef LONGHAUL_SANITIZES_ADDRESS
  if (n_ranks > 3) return {64, 1000, n};
#endif
  return {1, 64, 1000, n};
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
