#include "tools/bench/model_results.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/sizes.h"
#include "tools/bench/statistics.h"

namespace longhaul::bench {
namespace {

using enum Column::Align;

std::string params_text(std::int64_t n) {
  const auto value = static_cast<double>(n);
  return n >= 1'000'000'000 ? fmt::format("{:.2f} B", value / 1e9)
                            : fmt::format("{:.2f} M", value / 1e6);
}

std::string backend_text(const ModelFacts& f) {
  return f.gpu.empty() ? fmt::format("CPU {}", f.isa) : "CUDA";
}

std::string tokens_per_second_text(double average, double deviation) {
  return fmt::format("{:.2f} ± {:.2f}", average, deviation);
}

JsonArray list_of(const std::vector<double>& values, double factor) {
  JsonArray list;
  for (const double value : values) list.emplace_back(std::llround(value * factor));
  return list;
}

}  // namespace

std::string name_of(const ModelTest& test) {
  std::string name;
  if (test.n_prompt > 0) name = fmt::format("pp{}", test.n_prompt);
  if (test.n_gen > 0) {
    name += fmt::format("{}{}{}", name.empty() ? "" : "+", test.draft_max > 0 ? "quote" : "tg",
                        test.n_gen);
  }
  if (test.n_sequences > 1) name += fmt::format(" x{}", test.n_sequences);
  if (test.n_depth > 0) name += fmt::format(" @ d{}", test.n_depth);
  return name;
}

std::vector<Column> model_columns(const ShownColumns& shown) {
  const auto title = [](bool is_shown, const char* text) {
    return is_shown ? std::string(text) : std::string();
  };
  return {
      {.key = "cpu_info"},
      {.key = "gpu_info"},
      {.key = "isa"},
      {.key = "model_filename", .title = "model", .width = shown.model_width, .is_spare = true},
      {.key = "model_type"},
      {.key = "model_size", .title = "size", .align = kRight, .width = 10, .is_spare = true},
      {.key = "model_n_params", .title = "params", .align = kRight, .width = 10, .is_spare = true},
      {.key = "n_layers"},
      {.key = "n_layers_of_model"},
      {.key = "weight_type"},
      {.key = "backends", .title = "backend", .width = 10, .is_spare = true},
      {.key = "n_ranks", .title = title(shown.ranks, "ranks"), .align = kRight, .is_spare = true},
      {.key = "n_threads", .title = "threads", .align = kRight},
      {.key = "n_batch",
       .title = title(shown.chunk_len, "chunk_len"),
       .align = kRight,
       .is_spare = true},
      {.key = "type_k",
       .title = title(shown.cache_types, "type_k"),
       .align = kRight,
       .is_spare = true},
      {.key = "type_v",
       .title = title(shown.cache_types, "type_v"),
       .align = kRight,
       .is_spare = true},
      {.title = title(shown.heads, "retrieval heads"), .align = kRight, .is_spare = true},
      {.key = "n_kv_heads_of_layers"},
      {.key = "n_retrieval_heads"},
      {.key = "sink"},
      {.key = "recent"},
      {.key = "clock"},
      {.key = "n_prompt"},
      {.key = "n_gen"},
      {.key = "n_depth"},
      {.key = "n_sequences"},
      {.key = "draft_max"},
      {.key = "test", .title = "test", .align = kRight, .width = shown.test_width},
      {.key = "avg_ns"},
      {.key = "stddev_ns"},
      {.key = "avg_ts", .title = "t/s", .align = kRight, .width = 18},
      {.key = "stddev_ts"},
      {.key = "tokens_per_step", .title = title(shown.tokens_per_step, "t/step"), .align = kRight},
      {.key = "limit"},
      {.key = "bound_ts"},
      {.key = "of_bound", .title = "of bound", .align = kRight},
      {.key = "attainable_gflop_per_s"},
      {.key = "attainable_gb_per_s"},
      {.key = "samples_ns", .in_csv = false},
      {.key = "samples_ts", .in_csv = false}};
}

std::string facts_line(const ModelFacts& f, const ShownColumns& shown) {
  std::string text =
      fmt::format("{}: {}, {} parameters, {}", f.model, format_byte_size(f.size_bytes),
                  params_text(f.n_params), backend_text(f));
  if (shown.ranks) text += fmt::format(", {} ranks", f.n_ranks);
  if (shown.chunk_len) text += fmt::format(", chunks of {}", f.chunk_len);
  if (shown.cache_types) text += fmt::format(", keys {}, values {}", f.type_k, f.type_v);
  if (shown.heads) text += fmt::format(", {} of {} retrieval heads", f.n_retrieval, f.n_heads);
  return text;
}

std::vector<Cell> model_cells(const ModelFacts& f, const ModelTest& test,
                              const std::vector<ModelSample>& samples, Limit limit,
                              const Rates& rates) {
  require(!samples.empty(), "model_cells: no sample");
  const auto n_tokens = static_cast<double>(test.n_prompt + test.n_sequences * test.n_gen);
  std::int64_t n_steps = 0;
  std::vector<double> seconds, speeds, bounds;
  JsonArray speed_list;
  for (const ModelSample& sample : samples) {
    seconds.push_back(sample.seconds);
    speeds.push_back(n_tokens / sample.seconds);
    bounds.push_back(n_tokens / sample.bound_seconds);
    speed_list.emplace_back(speeds.back());
    n_steps += sample.n_steps;
  }
  const double per_step =
      n_steps == 0 ? 0
                   : static_cast<double>(std::ssize(samples) * test.n_sequences * test.n_gen) /
                         static_cast<double>(n_steps);
  const double speed = mean(speeds);
  const double of_bound = speed / mean(bounds);
  const double arithmetic = f.weight_type.starts_with("int") ? rates.int8_ops
                            : f.weight_type == "bf16"        ? rates.flops(DType::kBf16)
                                                             : rates.flops(DType::kF32);
  const bool on_gpu = !f.gpu.empty();
  return {{"", f.cpu},
          {"", f.gpu},
          {"", f.isa},
          {f.model, f.model},
          {"", f.model_type},
          {format_byte_size(f.size_bytes), f.size_bytes},
          {params_text(f.n_params), f.n_params},
          {"", f.n_layers},
          {"", f.n_layers_of_model},
          {"", f.weight_type},
          {backend_text(f), on_gpu ? "CUDA" : "CPU"},
          {fmt::format("{}", f.n_ranks), f.n_ranks},
          {fmt::format("{}", f.n_threads), f.n_threads},
          {fmt::format("{}", f.chunk_len), f.chunk_len},
          {f.type_k, f.type_k},
          {f.type_v, f.type_v},
          {fmt::format("{}/{}", f.n_retrieval, f.n_heads), {}},
          {"", f.n_heads},
          {"", f.n_retrieval},
          {"", f.sink},
          {"", f.recent},
          {"", std::string(name_of(f.clock))},
          {"", test.n_prompt},
          {"", test.n_gen},
          {"", test.n_depth},
          {"", test.n_sequences},
          {"", test.draft_max},
          {name_of(test), name_of(test)},
          {"", std::llround(mean(seconds) * 1e9)},
          {"", std::llround(standard_deviation(seconds) * 1e9)},
          {tokens_per_second_text(speed, standard_deviation(speeds)), speed},
          {"", standard_deviation(speeds)},
          {n_steps == 0 ? "" : fmt::format("{:.1f}", per_step), per_step},
          {"", std::string(name_of(limit))},
          {"", mean(bounds)},
          {fmt::format("{:.2f}", of_bound), of_bound},
          {"", arithmetic / 1e9},
          {"", rates.read_bytes / 1e9},
          {"", list_of(seconds, 1e9)},
          {"", std::move(speed_list)}};
}

}  // namespace longhaul::bench
