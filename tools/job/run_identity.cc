#include "tools/job/run_identity.h"

#include <cstdint>
#include <utility>

#include "base/sha256.h"
#include "coordinator/fingerprint.h"
#include "kernels/cpu/isa.h"
#include "model/heads/heads_json.h"
#include "tools/job/plan_files.h"

namespace longhaul {
namespace {

// Only where the user says a method: what runs without one wrote is as it was.
void add_methods(const AnswerConfig& answers, const ChosenHeads& heads, JsonObject& object) {
  if (!answers.heads.methods.empty()) object.emplace_back("head_policies", to_json(heads.table));
}

// Only where the files' type was changed: results of runs that leave it alone are as they were.
void add_weights(const JobConfig& job, JsonObject& object) {
  if (job.weights) object.emplace_back("weights", std::string(name_of(*job.weights)));
  if (job.fp8_inputs == Fp8Inputs::kQuantised) object.emplace_back("fp8_activations", true);
}

// Likewise.
void add_stop(const AnswerConfig& answers, JsonObject& object) {
  if (answers.sampling.stop.empty()) return;
  JsonArray stop;
  for (const std::string& text : answers.sampling.stop) stop.emplace_back(text);
  object.emplace_back("default_stop", std::move(stop));
}

// Likewise; with what the bits of such runs hang on (docs/reproducible.md).
void add_reproducible(const JobConfig& job, JsonObject& object) {
  if (!job.reproducible) return;
  object.emplace_back("reproducible", true);
  object.emplace_back("block_size", block_size_of(job));
  object.emplace_back("isa", std::string(name_of(active_isa())));
}

// All that its prompts are written with.
void add_chat(const ChatSetup& chat, JsonObject& object) {
  object.emplace_back("chat_template_sha256", sha256_of(chat.usual.text()));
  if (chat.with_tools)
    object.emplace_back("chat_template_with_tools_sha256", sha256_of(chat.with_tools->text()));
  object.emplace_back("chat_bos_token", chat.bos_token);
  object.emplace_back("chat_eos_token", chat.eos_token);
}

}  // namespace

Json fingerprint_of(const RunSession& session, const JobConfig& job, const AnswerConfig& answers) {
  Json sampling = to_json(session.preparation.defaults.params, session.preparation.defaults.rules);
  JsonArray eos;
  for (const std::int32_t id : session.preparation.eos) eos.emplace_back(id);
  JsonObject settings{{"default_sampling", std::move(sampling)},
                      {"default_max_tokens", session.preparation.defaults.max_tokens},
                      {"end_tokens", std::move(eos)},
                      {"parse_special", session.preparation.parse_special},
                      {"cache_type_k", std::string(name_of(session.kv.k_type))},
                      {"cache_type_v", std::string(name_of(session.kv.v_type))},
                      {"heads", to_json(session.heads.roles)}};
  if (const ChatSetup* chat = session.preparation.chat.get()) add_chat(*chat, settings);
  add_methods(answers, session.heads, settings);
  add_weights(job, settings);
  add_stop(answers, settings);
  add_reproducible(job, settings);
  return JsonObject{{"model", model_fingerprint(*session.model)},
                    {"settings", std::move(settings)}};
}

std::string identity_of(const RunSession& session, const JobConfig& job,
                        const AnswerConfig& answers) {
  const JsonField settings = JsonField(session.fingerprint, "fingerprint").at("settings");
  JsonObject what{{"model", *session.fingerprint.find("model")},
                  {"cache_type_k", settings.at("cache_type_k").json()},
                  {"cache_type_v", settings.at("cache_type_v").json()},
                  {"heads", settings.at("heads").json()}};
  add_methods(answers, session.heads, what);
  add_weights(job, what);
  add_reproducible(job, what);
  return to_text(Json(std::move(what)));
}

}  // namespace longhaul
