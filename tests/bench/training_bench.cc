// The time and memory of training steps of gates, beside their bounds: random weights of a
// published shape, random tokens.
//
//   training_bench [SHAPE [LAYERS [TOKENS [ANSWER [STEPS [f32|bf16]]]]]]
//   training_bench llama-3.2-1b 16 4096 512 2 bf16
//
// bound: operations of a step (tools/identify/training_cost.h) over what a matrix product attains
// right before and after. formula: bytes by the same file; measured: what grew in this process.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cluster/comm/in_process.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/threads.h"
#include "tools/bench/shapes.h"
#include "tools/eval/random_draws.h"
#include "tools/identify/training_cost.h"
#include "tools/identify/two_way_pass.h"
#include "tools/job/speed_probe.h"

namespace longhaul {
namespace {

// That this process has computed: on a machine that others use, too, less than the clock says.
double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec) * 1e-6;
}

double peak_gib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

void run(int argc, char** argv) {
  const auto word = [&](int i, const char* preset) { return argc > i ? argv[i] : preset; };
  const auto number = [&](int i, const char* preset) { return std::atoll(word(i, preset)); };
  const ModelSpec spec =
      bench::with_layers(bench::model_shape(word(1, "llama-3.2-1b")).spec, number(2, "16"));
  const std::int64_t n_tokens = number(3, "4096");
  const std::int64_t n_answer = number(4, "512");
  const DType dtype = std::string(word(6, "bf16")) == "f32" ? DType::kF32 : DType::kBf16;
  const Weights weights = Weights::synthetic(spec, dtype, 1);
  RandomDraws draws(1);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < n_tokens; ++i) {
    tokens.push_back(
        static_cast<std::int32_t>(draws.below(static_cast<std::size_t>(spec.vocab_size))));
  }
  const std::vector<double> gates(static_cast<std::size_t>(spec.n_layers * spec.n_kv_heads), 0.5);
  TrainingShape shape{.window = {},
                      .n_tokens = n_tokens,
                      .n_answer = n_answer,
                      .kv_value_bytes = dtype == DType::kBf16 ? 2U : 4U,
                      .weight_dtype = dtype};
  const TrainingFlops flops = training_flops(spec, shape);
  const TrainingBytes bytes = training_bytes(spec, shape);
  fmt::print("{} layers, {} tokens, {} compared, weights {}, {}, {} threads\n", spec.n_layers,
             n_tokens, n_answer, name_of(dtype), name_of(active_isa()), kernel_threads());
  fmt::print("TFLOP: teacher {:.3f}, student {:.3f}, backward {:.3f}\n", flops.teacher / 1e12,
             flops.student / 1e12, flops.backward / 1e12);
  measure_speed(dtype, -1);  // whose memory is none of ours
  const double before = peak_gib();
  run_in_process(1, [&](Communicator& comm) {
    std::vector<double> marks;
    Stopwatch watch;
    TwoWayPass pass(weights,
                    {.window = {},
                     .kv_type = dtype == DType::kBf16 ? KvType::kBf16 : KvType::kF32,
                     .on_progress =
                         [&](double share) {
                           if (share >= 0.7 && marks.empty()) marks.push_back(watch.seconds());
                           if (share >= 0.799 && marks.size() == 1)
                             marks.push_back(watch.seconds());
                         }},
                    comm);
    for (std::int64_t step = 0; step < number(5, "2"); ++step) {
      const double rate_before = measure_speed(dtype, -1).gflops;
      marks.clear();
      watch = Stopwatch();
      const double cpu_before = cpu_seconds();
      pass.run(tokens, n_answer, gates, TwoWayPass::Wants::kGradient);
      const double seconds = watch.seconds();
      const double cpu = (cpu_seconds() - cpu_before) / kernel_threads();
      const double rate = std::max(rate_before, measure_speed(dtype, -1).gflops);
      const double bound = flops.total() / (rate * 1e9);
      fmt::print(
          "step {}: {:.2f} s (teacher {:.2f}, student {:.2f}, backward {:.2f}); bound {:.2f} s at "
          "{:.0f} GFLOP/s: {:.2f} of it; {:.2f} s of computing a thread: {:.2f}\n",
          step, seconds, marks.at(0), marks.at(1) - marks.at(0), seconds - marks.at(1), bound, rate,
          bound / seconds, cpu, bound / cpu);
    }
    fmt::print(
        "memory: formula {:.3f} GiB (rows {:.3f}, keys {:.3f}, forward {:.3f}, backward "
        "{:.3f}); measured {:.3f} GiB\n",
        static_cast<double>(bytes.total()) / (1 << 30), static_cast<double>(bytes.kept) / (1 << 30),
        static_cast<double>(bytes.keys) / (1 << 30), static_cast<double>(bytes.forward) / (1 << 30),
        static_cast<double>(bytes.backward) / (1 << 30), peak_gib() - before);
  });
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  longhaul::run(argc, argv);
  return 0;
}
