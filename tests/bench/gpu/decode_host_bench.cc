// What the host does for a token that a GPU decodes (decode_host.h).
//   decode_host_bench [TOKENS [LAYERS [RUNS]]]     a million, 32, 5 unless said
#include <fmt/format.h>

#include <cstdlib>

#include "tests/bench/gpu/decode_host.h"
#include "tests/bench/gpu/filled_model.h"
#include "tests/cuda_on_host/device_memory.h"

namespace longhaul::bench {
namespace {

void print_times(const char* name, const HeadTable& heads, const ModelSpec& spec,
                 std::int64_t n_tokens, int n_runs) {
  const DecodeHostTimes times = time_decode_host(spec, heads, n_tokens, n_runs);
  fmt::print(
      "{}, {} tokens, {} layers of {} KV heads: {:.3f} ms of the host for a token (best of {} runs "
      "{:.3f}, longest step {:.3f}); {} of {} steps were replays; {:.1f} launches a layer, "
      "{} bytes to the GPU\n",
      name, n_tokens, spec.n_layers, spec.n_kv_heads, times.median_seconds * 1e3, n_runs,
      times.best_seconds * 1e3, times.longest_seconds * 1e3, times.n_replays, times.n_steps,
      static_cast<double>(times.n_commands) / static_cast<double>(spec.n_layers), times.n_bytes);
}

}  // namespace
}  // namespace longhaul::bench

int main(int n_arguments, char** arguments) {
  using namespace longhaul;
  using namespace longhaul::bench;
  const auto argument = [&](int i, long otherwise) {
    return n_arguments > i ? std::strtol(arguments[i], nullptr, 10) : otherwise;
  };
  cuda_on_host::leave_work_undone(std::size_t{64} << 30);
  const std::int64_t n_tokens = argument(1, 1 << 20);
  const ModelSpec spec = narrow_model(argument(2, 32));
  const int n_runs = static_cast<int>(argument(3, 5));
  print_times("half of the heads streaming", every_other_streaming(spec), spec, n_tokens, n_runs);
  const HeadTable all =
      duo_attention_heads(spec, HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads));
  print_times("no head streaming", all, spec, n_tokens, n_runs);
}
