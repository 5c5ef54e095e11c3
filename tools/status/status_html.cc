// A job's status as a page. Everything that comes from users (names of documents, ids, messages) is
// escaped where it is put in.
#include <fmt/format.h>

#include <algorithm>

#include "base/sizes.h"
#include "base/xml_text.h"
#include "status_page.h"
#include "tools/status/status_forms.h"

namespace longhaul {
namespace {

constexpr std::size_t kMostRanks = 256;

std::string card(std::string_view what, std::string_view value, std::string_view more = "") {
  return fmt::format("<div class=\"card\"><span>{}</span><b>{}</b>{}</div>\n", what,
                     xml_escaped(value), more);
}

std::string progress(std::int64_t value, std::int64_t of) {
  return fmt::format("<progress value=\"{}\" max=\"{}\"></progress>", value,
                     std::max<std::int64_t>(1, of));
}

std::string soft(std::string_view text) {
  return fmt::format("<span>{}</span>", xml_escaped(text));
}

// The rest is between its tags.
std::string cell(std::string_view heading, std::string_view content, std::string_view kind = "") {
  return fmt::format("<td data-of=\"{}\"{}><div>{}</div></td>", heading,
                     kind.empty() ? "" : fmt::format(" class=\"{}\"", kind), content);
}

std::string table(std::initializer_list<std::string_view> headings, std::string_view rows) {
  std::string text = "<table><thead><tr>";
  for (const std::string_view heading : headings) text += fmt::format("<th>{}</th>", heading);
  return text + "</tr></thead><tbody>\n" + std::string(rows) + "</tbody></table>\n";
}

// Its number and its unit stay together.
std::string size_text(std::int64_t bytes) {
  std::string text = format_byte_size(bytes);
  const std::size_t at = text.find(' ');
  return at == std::string::npos ? text : text.replace(at, 1, "&nbsp;");
}

std::string cards(const JobStatus& status) {
  const RunFigures& run = status.run;
  const std::int64_t n_ended = run.n_ok + run.n_failed;
  std::string eta = run.eta_seconds < 0 ? "not known yet" : duration_text(run.eta_seconds);
  if (status.state == "ended") eta = "ended";
  const auto tokens = [](std::int64_t n) { return count_text(static_cast<double>(n)) + " tokens"; };
  std::string text = "<div class=\"cards\">\n";
  text += card("Time left", eta, soft("running for " + duration_text(status.seconds)));
  text += card("Requests", fmt::format("{} of {}", n_ended, run.n_requests),
               progress(n_ended, run.n_requests) +
                   soft(fmt::format("{} under way, {} failed", run.n_running, run.n_failed)));
  if (run.n_documents > 0) {
    text += card("Documents read", fmt::format("{} of {}", run.n_documents_read, run.n_documents),
                 progress(run.n_documents_read, run.n_documents));
  }
  text += card("Prefill", count_text(prefill_rate(run)) + "/s", soft(tokens(run.n_prefilled)));
  text += card("Decode", count_text(decode_rate(run)) + "/s", soft(tokens(run.n_decoded)));
  text += card("KV caches", format_byte_size(static_cast<std::int64_t>(run.kv_bytes)));
  return text + "</div>\n";
}

std::string documents(const JobStatus& status) {
  const RunFigures& run = status.run;
  if (run.documents.empty()) return "";
  std::string rows;
  for (std::size_t i = 0; i < run.documents.size(); ++i) {
    const RunFigures::Document& document = run.documents[i];
    rows += "<tr>" + cell("Name", xml_escaped(status.documents.at(i)), "name");
    if (document.n_tokens < 0) {
      rows += cell("Tokens", "waits") + cell("Read", "", "bar");
    } else {
      rows += cell("Tokens", fmt::format("{}", document.n_tokens)) +
              cell("Read", progress(document.n_read, document.n_tokens), "bar");
    }
    rows += "</tr>\n";
  }
  std::string text = "<section><h2>Documents</h2>\n" + table({"Name", "Tokens", "Read"}, rows);
  if (run.n_documents > static_cast<std::int64_t>(run.documents.size())) {
    text += fmt::format("<p class=\"note\">{} of {} documents are shown.</p>\n",
                        run.documents.size(), run.n_documents);
  }
  return text + "</section>\n";
}

std::string caches(const RankNow& rank) {
  if (!rank.status.report) return "";
  std::string text = size_text(kv_bytes(*rank.status.report));
  const double usage = kv_usage(rank);
  if (usage < 0) return text;
  return fmt::format(
      "{} of {}<br><meter value=\"{:.3f}\" min=\"0\" max=\"1\" high=\"0.95\"></meter>", text,
      size_text(rank.planned.kv_limit_bytes), usage);
}

std::string memory(const RankNow& rank) {
  if (!rank.status.report) return "";
  const RankReport& report = *rank.status.report;
  const RankBytes& plan = rank.planned.bytes;
  const auto of_plan = [&](std::int64_t planned) {
    return plan.limit == 0 ? std::string() : " of " + size_text(planned);
  };
  return fmt::format("{}{}<br>{}{}", size_text(report.weight_bytes), of_plan(plan.weights),
                     size_text(report.buffer_bytes), of_plan(plan.activations + plan.ring_buffers));
}

std::string waited(const RankReport& report) {
  double all = 0;
  for (const auto& phase : report.phase_seconds) all += phase.value;
  std::string text = fmt::format("{:.3g} s", report.ring_wait_seconds);
  if (all > 0) text += fmt::format(", {:.0f}% of steps", 100 * report.ring_wait_seconds / all);
  return text;
}

std::string link(const JobStatus& status, const RankNow& rank) {
  std::string text = size_text(static_cast<std::int64_t>(rank.sent_bytes_per_second)) + "/s";
  if (status.link_gb_per_s > 0) {
    text += fmt::format(", {:.0f}% of the link",
                        100 * rank.sent_bytes_per_second / (status.link_gb_per_s * 1e9));
  }
  return fmt::format("{}<br>{} in all", text, size_text(sent_bytes(*rank.status.report)));
}

std::string ranks(const JobStatus& status) {
  if (status.ranks.empty()) return "";
  std::string rows;
  for (std::size_t i = 0; i < std::min(status.ranks.size(), kMostRanks); ++i) {
    const RankNow& rank = status.ranks[i];
    std::string does = xml_escaped(doing(rank));
    if (rank.status.silent_ms >= 5000)
      does += fmt::format(", <b>not heard of for {} s</b>", rank.status.silent_ms / 1000);
    rows += "<tr>" + cell("Rank", fmt::format("{}", rank.status.rank.value)) +
            cell("Host", xml_escaped(rank.status.host), "name") +
            cell("Does", does, rank.status.connected ? "" : "bad") +
            cell("KV caches", caches(rank)) + cell("Weights, buffers", memory(rank)) +
            cell("Ring waits", rank.status.report ? waited(*rank.status.report) : "") +
            cell("Sends", rank.status.report ? link(status, rank) : "") + "</tr>\n";
  }
  std::string text =
      "<section><h2>Ranks</h2>\n" +
      table({"Rank", "Host", "Does", "KV caches", "Weights, buffers", "Ring waits", "Sends"}, rows);
  if (status.ranks.size() > kMostRanks) {
    text += fmt::format("<p class=\"note\">{} of {} ranks are shown; status.json has all.</p>\n",
                        kMostRanks, status.ranks.size());
  }
  return text + "</section>\n";
}

std::string errors(const JobStatus& status) {
  if (status.failures.empty()) return "";
  std::string text = fmt::format("<section class=\"errors\"><h2>Failed requests: {}</h2><ul>\n",
                                 status.run.n_failed);
  for (auto failure = status.failures.rbegin(); failure != status.failures.rend(); ++failure) {
    text += fmt::format("<li><b>{}</b> {}: {}</li>\n", xml_escaped(failure->custom_id),
                        xml_escaped(failure->code), xml_escaped(failure->message));
  }
  return text + "</ul></section>\n";
}

std::string replaced(std::string_view text, std::string_view what, std::string_view with) {
  std::string out;
  for (;;) {
    const std::size_t at = text.find(what);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += with;
    text.remove_prefix(at + what.size());
  }
}

}  // namespace

std::string status_html(const JobStatus& status) {
  return fmt::format("<header><h1>Longhaul</h1><p class=\"state\">{}</p><p>{}{}</p></header>\n",
                     xml_escaped(status.state), xml_escaped(status.model),
                     status.plan.empty() ? "" : ", plan " + xml_escaped(status.plan)) +
         cards(status) + errors(status) + documents(status) + ranks(status);
}

std::string status_page(const JobStatus& status, std::string_view nonce) {
  // The view last: what users wrote is not looked at again.
  return replaced(replaced(kStatusPage, "{{nonce}}", nonce), "{{view}}", status_html(status));
}

}  // namespace longhaul
