// A job's status as text for a terminal.
#include <fmt/format.h>

#include <algorithm>

#include "base/sizes.h"
#include "base/text_columns.h"
#include "tools/status/status_forms.h"

namespace longhaul {
namespace {

constexpr std::size_t kLeastWidth = 60;
constexpr std::size_t kMostRows = 32;  // of documents and of ranks

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Cut to so many columns, the end kept where `keeps_end`; characters stay whole.
std::string cut(std::string_view text, std::size_t width, bool keeps_end = false) {
  const std::size_t n = n_columns(text);
  if (n <= width) return std::string(text);
  const std::size_t first = keeps_end ? n - (width - 1) : 0;
  std::string kept(keeps_end ? 1 : 0, '~');
  std::size_t i = 0;  // characters that began
  for (const char c : text) {
    if (!continues(c)) ++i;
    if (i > first && i <= first + width - 1) kept += c;
  }
  if (!keeps_end) kept += '~';
  return kept;
}

std::string padded(std::string text, std::size_t width) {
  const std::size_t n = n_columns(text);
  if (n < width) text.append(width - n, ' ');
  return text;
}

std::string bar(double part, std::size_t width) {
  const auto n = static_cast<std::size_t>(std::clamp(part, 0.0, 1.0) * static_cast<double>(width));
  return std::string(n, '#') + std::string(width - n, '.');
}

std::string apart(std::string_view left, std::string_view right, std::size_t width) {
  const std::size_t n_right = n_columns(right);
  const std::string first = cut(left, width > n_right + 1 ? width - n_right - 1 : 1, true);
  return padded(first, width - n_right) + std::string(right) + "\n";
}

std::string document_rows(const JobStatus& status, std::size_t width) {
  if (status.run.documents.empty()) return "";
  constexpr std::size_t kBar = 20;
  const std::size_t name_width = width - kBar - 22;
  const std::string heading =
      fmt::format("documents {}/{}", status.run.n_documents_read, status.run.n_documents);
  std::string text =
      fmt::format("\n{}{:>13}  {:>4}\n", padded(heading, name_width), "tokens", "read");
  std::size_t n = 0;
  for (std::size_t i = 0; i < status.run.documents.size(); ++i) {
    const RunFigures::Document& document = status.run.documents[i];
    if (++n > kMostRows) break;
    text += padded(cut(without_controls(status.documents.at(i)), name_width, true), name_width);
    if (document.n_tokens < 0) {
      text += fmt::format("{:>13}\n", "waits");
      continue;
    }
    const double part = document.n_tokens == 0 ? 1
                                               : static_cast<double>(document.n_read) /
                                                     static_cast<double>(document.n_tokens);
    text += fmt::format("{:>13}  {:>3.0f}% {}\n", document.n_tokens, 100 * part, bar(part, kBar));
  }
  if (status.run.n_documents > static_cast<std::int64_t>(std::min(n, kMostRows)))
    text += fmt::format("and {} more\n",
                        status.run.n_documents - static_cast<std::int64_t>(std::min(n, kMostRows)));
  return text;
}

std::string memory_cell(const RankNow& rank) {
  if (!rank.status.report) return "";
  const std::string used = format_byte_size(kv_bytes(*rank.status.report));
  const double usage = kv_usage(rank);
  return usage < 0 ? used : fmt::format("{} {:.0f}%", used, 100 * usage);
}

std::string rank_rows(const JobStatus& status, std::size_t width) {
  if (status.ranks.empty()) return "";
  constexpr std::size_t kFixed = 15 + 16 + 9 + 13;
  const std::size_t doing_width = width - kFixed;
  std::string text = fmt::format("\n{}{}{:>16}{:>9}{:>13}\n", padded("rank", 15),
                                 padded("doing", doing_width), "KV of plan", "waited", "sends");
  for (std::size_t i = 0; i < std::min(status.ranks.size(), kMostRows); ++i) {
    const RankNow& rank = status.ranks[i];
    const std::string name =
        fmt::format("{} {}", rank.status.rank.value, without_controls(rank.status.host));
    std::string place;
    if (rank.status.phase.layer.value >= 0)
      place = fmt::format("L{} ", rank.status.phase.layer.value);
    std::string does = rank.status.connected
                           ? fmt::format("{}{}", place, name_of(rank.status.phase.activity))
                           : "not connected";
    if (rank.status.connected && rank.status.phase.activity == Activity::kWaiting)
      does += fmt::format(" for {}", rank.status.phase.peer.value);
    const double waited = rank.status.report ? rank.status.report->ring_wait_seconds : 0;
    text += padded(cut(name, 14), 15) + padded(cut(does, doing_width - 1), doing_width) +
            fmt::format("{:>16}{:>8.1f}s{:>11}/s\n", memory_cell(rank), waited,
                        format_byte_size(static_cast<std::int64_t>(rank.sent_bytes_per_second)));
  }
  if (status.ranks.size() > kMostRows)
    text += fmt::format("and {} more\n", status.ranks.size() - kMostRows);
  return text;
}

std::string failure_rows(const JobStatus& status, std::size_t width) {
  if (status.failures.empty()) return "";
  constexpr std::size_t kMost = 5;
  std::string text = fmt::format("\nfailed requests: {}\n", status.run.n_failed);
  const std::size_t n = status.failures.size();
  for (std::size_t i = n - std::min(n, kMost); i < n; ++i) {
    const FailedNote& failure = status.failures[i];
    text += cut(without_controls(
                    fmt::format("{} {}: {}", failure.custom_id, failure.code, failure.message)),
                width) +
            "\n";
  }
  return text;
}

}  // namespace

std::string without_controls(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, which terminals take for escapes too, are C2 80 to C2 9F.
    const bool is_c1 = c == 0xC2 && i + 1 < text.size() &&
                       static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                       static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (is_c1) ++i;
    out += c < 0x20 || c == 0x7F || is_c1 ? '?' : text[i];
  }
  return out;
}

std::string status_text(const JobStatus& status, std::size_t width) {
  width = std::max(width, kLeastWidth);
  const RunFigures& run = status.run;
  const std::int64_t n_ended = run.n_ok + run.n_failed;
  std::string eta = "ETA -";
  if (status.state == "ended")
    eta = "";
  else if (run.eta_seconds >= 0)
    eta = "ETA " + duration_text(run.eta_seconds);
  std::string text =
      apart("longhaul " + status.version + "  " + without_controls(status.model),
            fmt::format("{} {}  {}", status.state, duration_text(status.seconds), eta), width);
  const double part =
      run.n_requests == 0 ? 0 : static_cast<double>(n_ended) / static_cast<double>(run.n_requests);
  text += apart(fmt::format("requests {}/{}, {} failed, {} running", n_ended, run.n_requests,
                            run.n_failed, run.n_running),
                bar(part, 20), width);
  text += apart(
      fmt::format("prefill {} tokens, {}/s   decode {} tokens, {}/s",
                  count_text(static_cast<double>(run.n_prefilled)), count_text(prefill_rate(run)),
                  count_text(static_cast<double>(run.n_decoded)), count_text(decode_rate(run))),
      "KV " + format_byte_size(static_cast<std::int64_t>(run.kv_bytes)), width);
  return text + document_rows(status, width) + rank_rows(status, width) +
         failure_rows(status, width);
}

}  // namespace longhaul
