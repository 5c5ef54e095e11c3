// Not a test: measures prefill and decode of one worker, with the share of each phase.
//   worker_speed MODEL_FOLDER|100m|100m-bf16 THREADS N_PROMPT CHUNK_LEN N_DECODE BATCH_SIZE
// "100m" is a synthetic model of about 100 million parameters.
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>

#include "base/clock.h"
#include "tests/unit/worker/tiny_models.h"
#include "worker/worker.h"

namespace longhaul {
namespace {

ModelSpec spec_100m() {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 32000;
  spec.d_model = 768;
  spec.d_ff = 2048;
  spec.n_layers = 12;
  spec.n_heads = 12;
  spec.n_kv_heads = 4;
  spec.head_dim = 64;
  spec.max_seq_len = 1 << 20;
  spec.tied_embeddings = true;
  spec.attention_window.assign(12, ModelSpec::kNoWindow);
  return spec;
}

Weights make_weights(const std::string& model) {
  if (model == "100m") return Weights::synthetic(spec_100m(), DType::kF32, 1);
  if (model == "100m-bf16") return Weights::synthetic(spec_100m(), DType::kBf16, 1);
  return Weights::load(ModelFolder(model));
}

// CPU time of all threads of the process: on a busy machine the better figure.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Start {
  Stopwatch watch;
  double cpu = cpu_seconds();
  PhaseTimes times;
};

void report(const std::string& what, std::int64_t n_tokens, const Start& start,
            const PhaseTimes& after) {
  const double seconds = start.watch.seconds();
  const double cpu = cpu_seconds() - start.cpu;
  const PhaseTimes& before = start.times;
  fmt::print("{}: {} tokens in {:.3f} s = {:.1f} tokens/s; {:.3f} s of CPU = {:.1f} tokens/s\n",
             what, n_tokens, seconds, static_cast<double>(n_tokens) / seconds, cpu,
             static_cast<double>(n_tokens) / cpu);
  double sum = 0;
  for (std::size_t i = 0; i < kNPhases; ++i) {
    const double phase = after.seconds[i] - before.seconds[i];
    sum += phase;
    fmt::print("  {:<14}{:8.1f} %\n", name_of(static_cast<Phase>(i)), 100 * phase / seconds);
  }
  fmt::print("  {:<14}{:8.1f} %\n", "rest", 100 * (1 - sum / seconds));
}

void measure(const std::string& model, int n_threads, std::int64_t n_prompt, std::int64_t chunk_len,
             std::int64_t n_decode, std::int64_t batch_size) {
  const auto weights = std::make_shared<const Weights>(make_weights(model));
  const KvType kv_type = natural_kv_type(weights->layer({0}).q.dtype);
  Worker worker({.weights = weights, .k_type = kv_type, .v_type = kv_type, .n_threads = n_threads});
  test::Random random(1);
  const auto prompt = test::random_tokens(random, n_prompt, weights->spec().vocab_size);
  const SequenceId document{0};
  test::done(worker.step(OpenSequence{.sequence = document, .sampling = {}}));
  test::prefill(worker, document, std::span(prompt).first(16), 16);  // warms up
  Start start{.watch = {}, .times = worker.times()};
  test::prefill(worker, document, prompt, chunk_len);
  report("prefill", n_prompt, start, worker.times());

  DecodeBatch batch;
  for (std::int64_t i = 1; i <= batch_size; ++i) {
    test::done(
        worker.step(ForkSequence{.parent = document, .child = SequenceId{i}, .sampling = {}}));
    batch.rows.push_back({SequenceId{i}, static_cast<std::int32_t>(i)});
  }
  test::done(worker.step(batch));
  start = Start{.watch = {}, .times = worker.times()};
  for (std::int64_t i = 0; i < n_decode; ++i) test::done(worker.step(batch));
  report(fmt::format("decode, batch {}", batch_size), n_decode * batch_size, start, worker.times());
  fmt::print("KV in use {} bytes, reserved {}\n", worker.kv_bytes_in_use(),
             worker.kv_bytes_reserved());
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  if (argc != 7) {
    fmt::print(stderr,
               "usage: {} MODEL_FOLDER|100m|100m-bf16 THREADS N_PROMPT CHUNK_LEN N_DECODE "
               "BATCH_SIZE\n",
               argv[0]);
    return 2;
  }
  longhaul::measure(argv[1], std::atoi(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]),
                    std::atoll(argv[5]), std::atoll(argv[6]));
}
