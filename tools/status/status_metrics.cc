// Metrics of a job in Prometheus' text form: the stems that dashboards for vLLM know, under our
// own prefix, and what rings add. Written here and not by prometheus-cpp: that keeps counters of
// its own, with locks, beside the ones that the job has anyway; what is left to do is to print.
#include <fmt/format.h>

#include <initializer_list>
#include <utility>

#include "tools/status/status_forms.h"

namespace longhaul {
namespace {

using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n')
      text += "\\n";
    else
      text += c;
  }
  return text;
}

class Metrics {
 public:
  explicit Metrics(std::string_view model) : model_(escaped(model)) {}

  // What follows are its samples.
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = fmt::format("longhaul_{}", name);
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name_, help, name_, type);
  }
  template <typename T>
  void sample(T value, Labels labels = {}, std::string_view suffix = "") {
    text_ += fmt::format("{}{}{{model_name=\"{}\"", name_, suffix, model_);
    for (const auto& [label, of] : labels) text_ += fmt::format(",{}=\"{}\"", label, escaped(of));
    text_ += fmt::format("}} {}\n", value);
  }
  template <typename T>
  void one(std::string_view name, std::string_view type, std::string_view help, T value) {
    family(name, type, help);
    sample(value);
  }
  void histogram(std::string_view name, std::string_view help, const Durations& durations) {
    family(name, "histogram", help);
    const std::vector<std::int64_t> counts = durations.cumulative();
    for (std::size_t i = 0; i < counts.size(); ++i)
      sample(counts[i], {{"le", fmt::format("{}", Durations::bounds()[i])}}, "_bucket");
    sample(durations.count(), {{"le", "+Inf"}}, "_bucket");
    sample(durations.sum(), {}, "_sum");
    sample(durations.count(), {}, "_count");
  }
  std::string take() { return std::move(text_); }

 private:
  std::string model_;
  std::string name_;
  std::string text_;
};

void add_run(Metrics& out, const JobStatus& status) {
  const RunFigures& run = status.run;
  out.one("num_requests_running", "gauge", "Requests taken up and not ended.", run.n_running);
  out.one("num_requests_waiting", "gauge", "Requests not taken up yet.",
          run.n_requests - run.n_ok - run.n_failed - run.n_running);
  out.one("num_requests", "gauge", "Requests that this run has to answer.", run.n_requests);
  out.family("request_success_total", "counter", "Answered requests.");
  for (const auto& [reason, n] : run.finish_reasons) out.sample(n, {{"finished_reason", reason}});
  out.one("request_failure_total", "counter", "Failed requests.", run.n_failed);
  out.one("num_documents", "gauge", "Documents, or groups of them, to read.", run.n_documents);
  out.one("documents_read_total", "counter", "Of these, read whole.", run.n_documents_read);
  out.one("prompt_tokens_total", "counter", "Tokens prefilled, documents included.",
          run.n_prefilled);
  out.one("generation_tokens_total", "counter", "Tokens decoded.", run.n_decoded);
  out.one("prompt_tokens_per_second", "gauge", "While prefilling, since the start.",
          prefill_rate(run));
  out.one("generation_tokens_per_second", "gauge", "While decoding, since the start.",
          decode_rate(run));
  out.one("prefix_cache_queries", "counter", "Prompt tokens of answered requests.",
          run.n_prompt_tokens);
  out.one("prefix_cache_hits", "counter", "Of these, shared with a prompt before.",
          run.n_cached_tokens);
  out.one("eta_seconds", "gauge", "Of what is left, by the cost of steps so far; NaN: not known.",
          run.eta_seconds < 0 ? std::string("NaN") : fmt::format("{}", run.eta_seconds));
  out.one("run_seconds", "gauge", "Since the start.", status.seconds);
  out.histogram("request_queue_time_seconds", "From the run's start until taken up.", run.queued);
  out.histogram("time_to_first_token_seconds", "From being taken up.", run.first_token);
  out.histogram("request_prefill_time_seconds", "From being taken up to the first token.",
                run.first_token);
  out.histogram("request_decode_time_seconds", "From the first token to the end.", run.decode);
  out.histogram("e2e_request_latency_seconds", "From being taken up to the end.", run.whole);
  out.histogram("inter_token_latency_seconds", "Seconds of a decode step, for each token.",
                run.between_tokens);
  out.histogram("ring_step_seconds", "Seconds of a step, of the slowest rank.", run.steps);
  out.histogram("journal_fsync_seconds", "Writing and syncing a line of results.", status.writes);
}

template <typename Write>
void of_ranks(const JobStatus& status, const Write& write) {
  for (const RankNow& rank : status.ranks) {
    if (rank.status.report)
      write(rank, *rank.status.report, std::to_string(rank.status.rank.value));
  }
}

void add_ranks(Metrics& out, const JobStatus& status) {
  out.family("rank_up", "gauge", "Whether the rank is connected, and what it does.");
  for (const RankNow& rank : status.ranks) {
    out.sample(rank.status.connected ? 1 : 0, {{"rank", std::to_string(rank.status.rank.value)},
                                               {"host", rank.status.host},
                                               {"activity", name_of(rank.status.phase.activity)}});
  }
  out.family("rank_silent_seconds", "gauge", "Since the rank was last heard of.");
  for (const RankNow& rank : status.ranks) {
    out.sample(static_cast<double>(rank.status.silent_ms) / 1e3,
               {{"rank", std::to_string(rank.status.rank.value)}});
  }
  out.family("ring_wait_seconds", "summary", "Waiting for other ranks; the count is of steps.");
  of_ranks(status, [&](const RankNow& now, const RankReport& report, const std::string& rank) {
    out.sample(report.ring_wait_seconds, {{"rank", rank}}, "_sum");
    out.sample(now.status.phase.step + 1, {{"rank", rank}}, "_count");
  });
  out.family("phase_seconds_total", "counter", "Where steps' time went.");
  of_ranks(status, [&](const RankNow&, const RankReport& report, const std::string& rank) {
    for (const auto& phase : report.phase_seconds)
      out.sample(phase.value, {{"rank", rank}, {"phase", phase.name}});
  });
  out.family("mpi_bytes_total", "counter", "Sent to other ranks, by kind.");
  of_ranks(status, [&](const RankNow&, const RankReport& report, const std::string& rank) {
    for (const auto& kind : report.sent_bytes)
      out.sample(kind.value, {{"rank", rank}, {"kind", kind.name}});
  });
  out.family("kv_cache_usage_perc", "gauge", "Part of the planned KV caches in use, 0 to 1.");
  of_ranks(status, [&](const RankNow& now, const RankReport&, const std::string& rank) {
    if (const double usage = kv_usage(now); usage >= 0) out.sample(usage, {{"rank", rank}});
  });
  out.family("plan_vs_actual_bytes", "gauge", "Memory, as planned and as it is.");
  of_ranks(status, [&](const RankNow& now, const RankReport& report, const std::string& rank) {
    const auto sample = [&](std::string_view what, std::int64_t actual, std::int64_t planned) {
      out.sample(actual, {{"rank", rank}, {"what", what}, {"side", "actual"}});
      if (now.planned.bytes.limit > 0)
        out.sample(planned, {{"rank", rank}, {"what", what}, {"side", "plan"}});
    };
    const RankBytes& plan = now.planned.bytes;
    sample("weights", report.weight_bytes, plan.weights);
    sample("kv", kv_bytes(report), now.planned.kv_limit_bytes);
    sample("kv_peak", report.kv_peak_bytes, now.planned.kv_limit_bytes);
    sample("buffers", report.buffer_bytes, plan.activations + plan.ring_buffers);
  });
}

}  // namespace

std::string status_metrics(const JobStatus& status) {
  Metrics out(status.model);
  out.family("info", "gauge", "What runs.");
  out.sample(1, {{"version", status.version}, {"plan", status.plan}, {"state", status.state}});
  add_run(out, status);
  add_ranks(out, status);
  return out.take();
}

}  // namespace longhaul
