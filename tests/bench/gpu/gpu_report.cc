#include "tests/bench/gpu/gpu_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

#include "base/clock.h"
#include "base/json.h"

namespace longhaul::bench {
namespace {

constexpr int kTimings = 7;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

CallTimes times_of(cuda::Stream& stream, Queueing queueing, const std::function<void()>& call) {
  const auto queue = [&] {
    if (queueing == Queueing::kReplay) stream.note_step();
    call();
    stream.submit();
  };
  // First uses load modules and choose algorithms; the second step is captured.
  for (int i = 0; i < 3; ++i) queue();
  stream.synchronise();
  cuda::Event begin;
  cuda::Event end;
  const auto time = [&](int n_calls) {
    begin.record(stream);
    for (int i = 0; i < n_calls; ++i) queue();
    end.record(stream);
    stream.finish(end);
    return end.milliseconds_since(begin) / n_calls;
  };
  const int n_calls = std::clamp(static_cast<int>(3.0 / std::max(time(1), 1e-3)), 1, 200);
  std::vector<double> on_gpu;
  std::vector<double> on_host;
  for (int i = 0; i < kTimings; ++i) on_gpu.push_back(time(n_calls));
  for (int i = 0; i < kTimings; ++i) {
    stream.synchronise();
    const Stopwatch watch;
    queue();
    on_host.push_back(watch.seconds() * 1e6);
  }
  stream.synchronise();
  return {.milliseconds = median(on_gpu), .host_microseconds = median(on_host)};
}

void GpuReport::note(const Figure& figure) const {
  const double scale = figure.unit == "TFLOP/s" ? 1e12 : 1e9;
  const double share = figure.attainable > 0 ? figure.rate / figure.attainable : 0;
  fmt::print("{:<52} {:>9.3f} ms  {:>8.1f} {:<7} ", figure.name, figure.times.milliseconds,
             figure.rate / scale, figure.unit);
  if (figure.attainable > 0) fmt::print("{:>4.0f} % of {}", 100 * share, figure.beside);
  fmt::print("  host {:.0f} us\n", figure.times.host_microseconds);
  std::fflush(stdout);
  if (figures_.empty()) return;
  std::ofstream file(figures_, std::ios::app);
  file << to_text(JsonObject{{"name", figure.name},
                             {"milliseconds", figure.times.milliseconds},
                             {"host_microseconds", figure.times.host_microseconds},
                             {"rate", figure.rate / scale},
                             {"unit", figure.unit},
                             {"attainable", figure.attainable / scale},
                             {"beside", figure.beside}})
       << std::endl;
}

double GpuReport::bytes(const std::string& name, double n_bytes, const std::function<void()>& call,
                        Queueing queueing) {
  const CallTimes times = times_of(stream_, queueing, call);
  note({.name = name,
        .times = times,
        .rate = n_bytes / times.milliseconds * 1e3,
        .unit = "GB/s",
        .attainable = rates_.read_bytes,
        .beside = "read"});
  return times.milliseconds;
}

double GpuReport::flops(const std::string& name, double n_flops,
                        const std::function<void()>& call) {
  const CallTimes times = times_of(stream_, Queueing::kOneByOne, call);
  note({.name = name,
        .times = times,
        .rate = n_flops / times.milliseconds * 1e3,
        .unit = "TFLOP/s",
        .attainable = rates_.pair_flops,
        .beside = "cuBLAS bf16"});
  return times.milliseconds;
}

double GpuReport::rate(const std::string& name, double n_bytes, const std::function<void()>& call) {
  const CallTimes times = times_of(stream_, Queueing::kOneByOne, call);
  note({.name = name,
        .times = times,
        .rate = n_bytes / times.milliseconds * 1e3,
        .unit = "GB/s",
        .attainable = 0,
        .beside = {}});
  return times.milliseconds;
}

}  // namespace longhaul::bench
