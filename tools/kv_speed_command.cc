#include "tools/kv_speed_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/kv_speed.h"
#include "tools/bench/table.h"
#include "tools/flags/count_flag.h"
#include "tools/flags/environment.h"
#include "tools/flags/job_flags.h"
#include "tools/job/exit_status.h"
#include "tools/standard_streams.h"

namespace longhaul {
namespace {

struct KvSpeedFlags {
  std::filesystem::path folder = "bench-kv";
  std::int64_t n_layers = 4;
  std::int64_t n_kv_heads = 8;
  std::int64_t head_dim = 128;
  std::int64_t n_tokens = 32768;
  JobConfig types;
  std::string output = "md";
};

std::vector<bench::Column> columns() {
  using Align = bench::Column::Align;
  return {{.key = "k_type", .title = "k", .width = 5},
          {.key = "v_type", .title = "v", .width = 5},
          {.key = "bytes", .title = "MiB", .align = Align::kRight, .width = 7},
          {.key = "what", .title = "what", .width = 13},
          {.key = "mb_per_s", .title = "MB/s", .align = Align::kRight, .width = 6},
          {.key = "plain_mb_per_s", .title = "plain", .align = Align::kRight, .width = 6},
          {.key = "share", .title = "share", .align = Align::kRight},
          {.key = "direct_mb_per_s", .title = "direct", .align = Align::kRight}};
}

std::vector<bench::Cell> row(const bench::KvSpeedCase& c, const bench::KvSpeed& speed,
                             const std::string& what, double seconds, double plain_seconds,
                             double direct_seconds) {
  const double rate = static_cast<double>(speed.n_bytes) / seconds / 1e6;
  const double plain = static_cast<double>(speed.n_bytes) / plain_seconds / 1e6;
  const double direct = static_cast<double>(speed.n_bytes) / direct_seconds / 1e6;
  const std::string k(name_of(c.shape.k_type));
  const std::string v(name_of(c.shape.v_type));
  return {{k, k},
          {v, v},
          {fmt::format("{:.1f}", static_cast<double>(speed.n_bytes) / 0x1p20), speed.n_bytes},
          {what, what},
          {fmt::format("{:.0f}", rate), rate},
          {fmt::format("{:.0f}", plain), plain},
          {fmt::format("{:.2f}", rate / plain), rate / plain},
          {fmt::format("{:.0f}", direct), direct}};
}

int run(const KvSpeedFlags& flags) {
  std::vector<std::pair<KvType, KvType>> types;
  if (flags.types.k_type || flags.types.v_type) {
    types.emplace_back(flags.types.k_type.value_or(KvType::kBf16),
                       flags.types.v_type.value_or(KvType::kBf16));
  } else {
    for (const KvType type : kPlainKvTypes) types.emplace_back(type, type);
  }
  bench::Table table(bench::table_format_from(flags.output), columns());
  print_now(table.begin());
  for (const auto& [k_type, v_type] : types) {
    const bench::KvSpeedCase c{.folder = flags.folder,
                               .shape = {.block_size = usual_block_size(flags.types),
                                         .head_dim = flags.head_dim,
                                         .k_type = k_type,
                                         .v_type = v_type},
                               .n_layers = flags.n_layers,
                               .n_kv_heads = flags.n_kv_heads,
                               .n_tokens = flags.n_tokens};
    const bench::KvSpeed speed = bench::measure_kv_speed(c);
    const auto print = [&](const char* what, double seconds, double plain, double direct) {
      print_now(table.row(row(c, speed, what, seconds, plain, direct)));
    };
    print("save", speed.save, speed.plain_write, speed.direct_write);
    print("restore", speed.restore, speed.plain_read, speed.direct_read);
    print("to new memory", speed.read_to_new_memory, speed.plain_read, speed.direct_read);
  }
  print_now(table.end());
  return kExitDone;
}

}  // namespace

Command add_bench_kv_command(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand(
      "kv", "Saving and restoring caches, beside writing and reading a plain file");
  const auto flags = std::make_shared<KvSpeedFlags>();
  const auto count = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40);
  app->add_option("--folder", flags->folder, "On the disk to be measured")
      ->type_name("FOLDER")
      ->capture_default_str();
  app->add_option("--layers", flags->n_layers, "Layers")->check(count)->capture_default_str();
  app->add_option("--kv-heads", flags->n_kv_heads, "KV heads of a layer, that keep every token")
      ->check(count)
      ->capture_default_str();
  app->add_option("--head-dim", flags->head_dim, "Dimensions of a head")
      ->check(count)
      ->capture_default_str();
  app->add_option("--tokens", flags->n_tokens, "Tokens")
      ->transform(with_letters())
      ->check(count)
      ->capture_default_str();
  add_cache_flags(*app, flags->types,
                  "Cache types (default: f32, bf16, int8, fp8 and int4 in turn, for both)");
  app->add_option("-o,--output", flags->output, "md, csv, json or jsonl")
      ->type_name("FORMAT")
      ->capture_default_str();
  name_environment_variables(*app);
  app->footer(
      R"(Both include checksums of all bytes, saving the sync. plain: a file of as many
bytes; it is written and synced in the same process, and read after the system
was told to forget it, on one thread, as dd does it. share: of its speed. direct:
the same past the page cache, on as many threads as caches are saved and restored
with. "to new memory": that, read into as much memory as the caches take, which
the system has to give and clear, as a restore needs it. Each is the fastest of
three, taken in turns.)");
  return {app, [flags] { return run(*flags); }};
}

}  // namespace longhaul
