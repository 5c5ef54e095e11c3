// JSON of a job's status, and what several of its forms say.
#include "base/json.h"

#include <utility>

#include "cluster/wire/named_json.h"
#include "tools/status/status_forms.h"

namespace longhaul {
namespace {

double rate(std::int64_t n, double seconds) {
  return seconds > 0 ? static_cast<double>(n) / seconds : 0;
}

Json eta(const RunFigures& run) { return run.eta_seconds < 0 ? Json() : Json(run.eta_seconds); }

Json documents_json(const JobStatus& status) {
  JsonArray list;
  for (std::size_t i = 0; i < status.run.documents.size(); ++i) {
    const RunFigures::Document& document = status.run.documents[i];
    JsonObject one{{"name", status.documents.at(i)}, {"bytes", document.n_bytes}};
    if (document.n_tokens >= 0) {
      one.emplace_back("tokens", document.n_tokens);
      one.emplace_back("tokens_read", document.n_read);
    }
    list.emplace_back(std::move(one));
  }
  return list;
}

Json planned_json(const RankPlanned& planned) {
  return JsonObject{{"weights", planned.bytes.weights},
                    {"kv", planned.kv_limit_bytes},
                    {"buffers", planned.bytes.activations + planned.bytes.ring_buffers},
                    {"limit", planned.bytes.limit}};
}

Json phase_json(const PhaseReport& phase) {
  JsonObject object{{"activity", std::string(name_of(phase.activity))},
                    {"seconds", static_cast<double>(phase.since_ms) / 1e3}};
  const auto add = [&](const char* name, std::int64_t value) {
    if (value >= 0) object.emplace_back(name, value);
  };
  add("step", phase.step);
  add("layer", phase.layer.value);
  add("hop", phase.hop);
  if (phase.activity == Activity::kWaiting) add("waits_for_rank", phase.peer.value);
  return object;
}

Json rank_json(const RankNow& rank) {
  JsonObject object{{"rank", rank.status.rank.value},
                    {"host", rank.status.host},
                    {"connected", rank.status.connected},
                    {"silent_seconds", static_cast<double>(rank.status.silent_ms) / 1e3},
                    {"phase", phase_json(rank.status.phase)}};
  if (rank.status.report) {
    const RankReport& report = *rank.status.report;
    object.emplace_back("memory_bytes", JsonObject{{"weights", report.weight_bytes},
                                                   {"kv", kv_bytes(report)},
                                                   {"kv_peak", report.kv_peak_bytes},
                                                   {"buffers", report.buffer_bytes}});
    object.emplace_back("ring_wait_seconds", report.ring_wait_seconds);
    object.emplace_back("phase_seconds", named_json(report.phase_seconds));
    object.emplace_back("sent_bytes", named_json(report.sent_bytes));
    object.emplace_back("sent_bytes_per_second", rank.sent_bytes_per_second);
  }
  if (rank.planned.bytes.limit > 0)
    object.emplace_back("planned_bytes", planned_json(rank.planned));
  return object;
}

}  // namespace

double prefill_rate(const RunFigures& run) { return rate(run.n_prefilled, run.prefill_seconds); }
double decode_rate(const RunFigures& run) { return rate(run.n_decoded, run.decode_seconds); }

double kv_usage(const RankNow& rank) {
  if (!rank.status.report || rank.planned.kv_limit_bytes <= 0) return -1;
  return static_cast<double>(kv_bytes(*rank.status.report)) /
         static_cast<double>(rank.planned.kv_limit_bytes);
}

std::string doing(const RankNow& rank) {
  if (!rank.status.connected) return "not connected";
  return to_text(rank.status.phase);
}

Json status_json(const JobStatus& status) {
  const RunFigures& run = status.run;
  JsonArray ranks;
  for (const RankNow& rank : status.ranks) ranks.push_back(rank_json(rank));
  JsonArray failures;
  for (const FailedNote& failure : status.failures) {
    failures.emplace_back(JsonObject{
        {"custom_id", failure.custom_id}, {"code", failure.code}, {"message", failure.message}});
  }
  return JsonObject{{"format", "longhaul-status"},
                    {"version", 1},
                    {"producer", "longhaul " + status.version},
                    {"model", status.model},
                    {"state", status.state},
                    {"plan", status.plan.empty() ? Json() : Json(status.plan)},
                    {"seconds", status.seconds},
                    {"eta_seconds", eta(run)},
                    {"requests", JsonObject{{"total", run.n_requests},
                                            {"done", run.n_ok},
                                            {"failed", run.n_failed},
                                            {"running", run.n_running}}},
                    {"documents", JsonObject{{"total", run.n_documents},
                                             {"read", run.n_documents_read},
                                             {"next", documents_json(status)}}},
                    {"tokens", JsonObject{{"prefilled", run.n_prefilled},
                                          {"prefilled_per_second", prefill_rate(run)},
                                          {"decoded", run.n_decoded},
                                          {"decoded_per_second", decode_rate(run)}}},
                    {"kv_bytes", run.kv_bytes},
                    {"link_bytes_per_second", status.link_gb_per_s * 1e9},
                    {"ranks", std::move(ranks)},
                    {"errors", std::move(failures)}};
}

}  // namespace longhaul
