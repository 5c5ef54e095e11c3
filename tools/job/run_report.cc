#include "tools/job/run_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/sizes.h"
#include "cluster/wire/named_json.h"

namespace longhaul {
namespace {

constexpr std::size_t kMostRanks = 64;  // of the table; JSON has all
constexpr std::size_t kMainPhases = 3;  // named in a row

// "attend 12.5, feed_forward 8.1, project 2.0"
std::string main_phases(const RankReport& report) {
  auto phases = report.phase_seconds;
  std::erase_if(phases, [](const auto& phase) { return phase.name == "ring wait"; });  // a column
  std::stable_sort(phases.begin(), phases.end(),
                   [](const auto& a, const auto& b) { return a.value > b.value; });
  std::string text;
  for (std::size_t i = 0; i < std::min(kMainPhases, phases.size()); ++i) {
    if (phases[i].value <= 0) break;
    text += fmt::format("{}{} {:.3g}", i == 0 ? "" : ", ", phases[i].name, phases[i].value);
  }
  return text;
}

std::string sent(const RankReport& report) {
  std::string text;
  for (const auto& kind : report.sent_bytes) {
    if (kind.value == 0) continue;
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", kind.name, format_byte_size(kind.value));
  }
  return text.empty() ? "nothing" : text;
}

Json planned_json(const RankBytes& bytes) {
  return JsonObject{{"weights", bytes.weights},
                    {"kv_retrieval", bytes.kv_retrieval},
                    {"kv_streaming", bytes.kv_streaming},
                    {"buffers", bytes.activations + bytes.ring_buffers},
                    {"limit", bytes.limit}};
}

std::string window_in_words(const HeadTable& heads) {
  std::string text;
  for (const KeyWindow& window : heads.windows())
    text += fmt::format("{}first {} and last {}", text.empty() ? "" : ", or ", window.sink,
                        window.recent);
  return text;
}

}  // namespace

std::string report_table(const std::vector<RankOutcome>& ranks, ReportForm form,
                         std::size_t width) {
  constexpr std::size_t kBelow = 6;  // columns before what stands below its rank
  const bool is_beside = form == ReportForm::kLong && width == kAnyWidth;
  const bool is_below = form == ReportForm::kLong && !is_beside;
  std::string text =
      fmt::format("  {:<17}{:>10}{:>11}{:>11}{:>11}{:>11}{}\n", "rank", "weights", "KV peak",
                  "KV limit", "buffers", "waited", is_beside ? "  seconds; bytes sent" : "");
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostRanks); ++i) {
    const auto& [host, report, planned, kv_limit] = ranks[i];
    text +=
        fmt::format("  {:<17.17}{:>10}{:>11}{:>11}{:>11}{:>9.1f} s",
                    fmt::format("{} {}", report.rank.value, host),
                    format_byte_size(report.weight_bytes), format_byte_size(report.kv_peak_bytes),
                    planned.limit == 0 ? "-" : format_byte_size(kv_limit),
                    format_byte_size(report.buffer_bytes), report.ring_wait_seconds);
    if (is_beside) text += fmt::format("  {}; {}", main_phases(report), sent(report));
    if (is_below) {
      const std::string what =
          fmt::format("seconds: {}; sent: {}", main_phases(report), sent(report));
      text += fmt::format("\n{:{}}{}", "", kBelow,
                          wrapped_text(what, {.width = width, .indent = kBelow}));
    }
    text += "\n";
  }
  if (ranks.size() > kMostRanks)
    text += fmt::format("  and {} more; --report FILE has them all\n", ranks.size() - kMostRanks);
  return text;
}

Json report_json(const std::vector<RankOutcome>& ranks) {
  JsonArray list;
  for (const auto& [host, report, planned, kv_limit] : ranks) {
    JsonObject rank{{"rank", report.rank.value},
                    {"host", host},
                    {"phase_seconds", named_json(report.phase_seconds)},
                    {"ring_wait_seconds", report.ring_wait_seconds},
                    {"sent_bytes", named_json(report.sent_bytes)},
                    {"weight_bytes", report.weight_bytes},
                    {"kv_retrieval_bytes", report.kv_retrieval_bytes},
                    {"kv_streaming_bytes", report.kv_streaming_bytes},
                    {"kv_retrieval_peak_bytes", report.kv_retrieval_peak_bytes},
                    {"kv_streaming_peak_bytes", report.kv_streaming_peak_bytes},
                    {"kv_peak_bytes", report.kv_peak_bytes},
                    {"buffer_bytes", report.buffer_bytes}};
    if (planned.limit > 0) {
      rank.emplace_back("planned_bytes", planned_json(planned));
      rank.emplace_back("kv_limit_bytes", kv_limit);
    }
    list.emplace_back(std::move(rank));
  }
  return JsonObject{{"format", "longhaul-report"}, {"version", 1}, {"ranks", std::move(list)}};
}

std::vector<KvOfMethod> kv_of_methods(const KvReportArgs& args) {
  const std::int64_t n_heads = args.heads.n_layers() * args.heads.n_kv_heads();
  const std::int64_t n_all = args.heads.count(HeadKind::kRetrieval);
  KvOfMethod all;
  KvOfMethod windowed;
  all.n_heads = n_all;
  const auto& [main, streaming_heads] = args.names;
  all.method = main.empty() ? "every token" : main;
  windowed.n_heads = n_heads - n_all;
  windowed.method = n_all == 0 && !main.empty() ? main
                    : streaming_heads.empty()   ? window_in_words(args.heads)
                                                : streaming_heads;
  all.predicted_bytes = args.predicted.kv_retrieval;
  windowed.predicted_bytes = args.predicted.kv_streaming;
  const Workload& work = args.workload;
  const std::int64_t n_blocks = work.document_blocks() + work.n_sequences * work.tail_blocks();
  all.everything_bytes = all.n_heads * n_blocks * args.kv.block_bytes();
  windowed.everything_bytes = windowed.n_heads * n_blocks * args.kv.block_bytes();
  std::vector<KvOfMethod> rows = {all, windowed};
  if (all.n_heads > 0 && windowed.n_heads > 0) {
    rows.push_back({.method = "all heads",
                    .n_heads = n_heads,
                    .predicted_bytes = all.predicted_bytes + windowed.predicted_bytes,
                    .everything_bytes = all.everything_bytes + windowed.everything_bytes});
  }
  for (const RankOutcome& rank : args.ranks) {
    rows[0].measured_bytes += rank.report.kv_retrieval_peak_bytes;
    rows[1].measured_bytes += rank.report.kv_streaming_peak_bytes;
    if (rows.size() > 2) rows[2].measured_bytes += rank.report.kv_peak_bytes;
  }
  std::erase_if(rows, [](const KvOfMethod& row) { return row.n_heads == 0; });
  return rows;
}

std::string kv_table(const std::vector<KvOfMethod>& methods, std::size_t width) {
  constexpr std::size_t kBefore = 2 + 5 + 12 + 12 + 13 + 2;  // columns before the method
  std::string text = fmt::format("  {:>5}{:>12}{:>12}{:>13}  {}\n", "heads", "KV peak", "predicted",
                                 "every token", "method");
  for (const KvOfMethod& row : methods) {
    text += fmt::format("  {:>5}{:>12}{:>12}{:>13}  {}\n", row.n_heads,
                        format_byte_size(row.measured_bytes), format_byte_size(row.predicted_bytes),
                        format_byte_size(row.everything_bytes),
                        wrapped_text(row.method, {.width = width, .indent = kBefore}));
  }
  return text;
}

}  // namespace longhaul
