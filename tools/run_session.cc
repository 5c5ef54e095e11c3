#include "tools/run_session.h"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdio>
#include <set>
#include <utility>

#include "build_info.h"
#include "coordinator/fingerprint.h"
#include "coordinator/sha256.h"
#include "kernels/isa.h"
#include "tools/byte_size.h"
#include "tools/device_flag.h"
#include "tools/environment.h"
#include "tools/weights_flag.h"

namespace longhaul {
namespace {

std::optional<HeadProfile> head_profile(const RunOptions& options, const ModelSpec& spec) {
  if (options.head_profile.empty()) return std::nullopt;
  HeadProfile profile = read_head_profile(options.head_profile);
  check_profile_fits(profile, spec);
  profile.sink = options.sink.value_or(profile.sink);
  profile.recent = options.recent.value_or(profile.recent);
  return profile;
}

KvBudget kv_budget(const RunOptions& options, const ModelSpec& spec, const HeadRoles& roles,
                   std::int64_t bytes_per_head_and_token) {
  const auto head_bytes = static_cast<std::size_t>(bytes_per_head_and_token);
  const auto n_heads = static_cast<std::size_t>(spec.n_layers * spec.n_kv_heads);
  const auto n_retrieval = static_cast<std::size_t>(roles.n_retrieval());
  KvBudget budget;
  if (!options.kv_limit.empty()) budget.limit_bytes = parse_byte_size(options.kv_limit);
  budget.retrieval_bytes_per_token = n_retrieval * head_bytes;
  budget.streaming_bytes_per_token = (n_heads - n_retrieval) * head_bytes;
  budget.window = roles.sink + roles.recent;
  budget.block_size = options.block_size;
  budget.chunk_len = options.chunk_len.value_or(default_chunk_len(1));
  return budget;
}

std::int64_t context_size(const RunOptions& options, const ModelSpec& spec) {
  const std::int64_t size = options.ctx_size.value_or(spec.max_seq_len);
  if (size > spec.max_seq_len) {
    fmt::print(stderr,
               "longhaul: warning: --ctx-size {} is more than the {} tokens that the model was "
               "made for; answers about later tokens may be poor\n",
               size, spec.max_seq_len);
  }
  return size;
}

std::vector<std::int32_t> end_tokens(const ModelFolder& model) {
  std::set<std::int32_t> ids(model.config().eos_token_ids.begin(),
                             model.config().eos_token_ids.end());
  ids.insert(model.generation().eos_token_ids.begin(), model.generation().eos_token_ids.end());
  return {ids.begin(), ids.end()};
}

Json roles_json(const HeadRoles& roles) {
  JsonArray mask;
  for (std::int64_t layer = 0; layer < roles.n_layers; ++layer) {
    std::string row;
    for (std::int64_t head = 0; head < roles.n_kv_heads; ++head)
      row += roles.role(layer, head) == HeadRole::kRetrieval ? '1' : '0';
    mask.emplace_back(std::move(row));
  }
  return JsonObject{{"sink", roles.sink},
                    {"recent", roles.recent},
                    {"n_retrieval", roles.n_retrieval()},
                    {"retrieval_mask", std::move(mask)}};  // a row for each layer
}

// Only where the files' type was changed: results of runs that leave it alone are as they were.
void add_weights(const RunSession& session, const RunOptions& options, JsonObject& object) {
  if (asked_weights(options.weights)) {
    object.emplace_back("weights", std::string(name_of(session.weights)));
  }
}

Json fingerprint_of(const RunSession& session, const RunOptions& options) {
  Json sampling = to_json(session.preparation.defaults.params);
  JsonArray eos;
  for (const std::int32_t id : session.preparation.eos) eos.emplace_back(id);
  JsonObject settings{{"default_sampling", std::move(sampling)},
                      {"default_max_tokens", session.preparation.defaults.max_tokens},
                      {"end_tokens", std::move(eos)},
                      {"parse_special", session.preparation.parse_special},
                      {"cache_type_k", std::string(name_of(session.k_type))},
                      {"cache_type_v", std::string(name_of(session.v_type))},
                      {"heads", roles_json(session.roles)}};
  add_weights(session, options, settings);
  return JsonObject{{"model", model_fingerprint(session.model)}, {"settings", std::move(settings)}};
}

// Documents' caches go to --save-kv DIR; what cannot work is refused before anything is computed.
std::optional<SaveCaches> saving(const RunSession& session, const RunOptions& options) {
  if (options.save_kv.empty()) return std::nullopt;
  if (!build_info::kHasHdf5) {
    throw Error(ErrorCode::kUnsupported,
                "--save-kv writes HDF5, and this build of Longhaul has no HDF5; install its "
                "development files (Debian: libhdf5-openmpi-dev) and build again");
  }
  std::error_code error;
  std::filesystem::create_directories(options.save_kv, error);
  if (error || ::access(options.save_kv.c_str(), W_OK | X_OK) != 0) {
    throw Error(ErrorCode::kIo, fmt::format("--save-kv {}: files cannot be made in this folder",
                                            options.save_kv.string()));
  }
  const Json& model = *session.fingerprint.find("model");
  const JsonField settings = JsonField(session.fingerprint, "fingerprint").at("settings");
  JsonObject what{{"model", model},
                  {"cache_type_k", settings.at("cache_type_k").json()},
                  {"cache_type_v", settings.at("cache_type_v").json()},
                  {"heads", settings.at("heads").json()}};
  add_weights(session, options, what);
  const std::string identity = to_text(Json(std::move(what)));
  const Json* tokenizer = model.find("tokenizer_sha256");
  return SaveCaches{
      .folder = options.save_kv.string(),
      .identity = identity,
      .facts = {{"model_id", options.model},
                {"model_sha256", sha256_of(to_text(model))},
                {"tokenizer_sha256", JsonField(*tokenizer, "tokenizer_sha256").as_string()},
                {"settings", identity}}};
}

void warn_about_generation_config(const RunSession& session, const RunOptions& options) {
  const GenerationConfig& generation = session.model.generation();
  if (!generation.do_sample || generation.unsupported.empty() || options.sampling.temperature)
    return;
  fmt::print(stderr,
             "longhaul: warning: generation_config.json asks for {}, which Longhaul does not have; "
             "answers are sampled without it\n",
             fmt::join(generation.unsupported, ", "));
}

}  // namespace

RunSession open_session(const RunOptions& options) {
  ModelFolder model(find_model_folder(options.model, hub_cache()));
  Tokenizer tokenizer = Tokenizer::from_file(model.tokenizer_path());
  RunSession session{.model = std::move(model),
                     .tokenizer = std::move(tokenizer),
                     .roles = {},
                     .profile = {},
                     .preparation = {},
                     .engine = {},
                     .fingerprint = {},
                     .system_fingerprint = {}};
  const ModelSpec& spec = session.model.config().spec;
  session.profile = head_profile(options, spec);
  session.roles = session.profile ? choose_roles(*session.profile, options.retrieval_ratio)
                                  : HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  session.device = describe(chosen_device(options.device));
  session.weights = weights_in_memory(options.weights, session.model);
  session.k_type = cache_type(options.cache_types.k, session.weights);
  session.v_type = cache_type(options.cache_types.v, session.weights);
  session.preparation = {
      .defaults = sampling_defaults(options.sampling, session.model.generation()),
      .eos = end_tokens(session.model),
      .vocab_size = spec.vocab_size,
      .ctx_size = context_size(options, spec),
      .parse_special = options.parse_special,
      .n_threads = options.n_threads};
  session.engine.scheduler = {
      .chunk_len = options.chunk_len.value_or(default_chunk_len(1)),
      .max_sequences = options.parallel,
      .budget = kv_budget(options, spec, session.roles,
                          kv_token_bytes(session.k_type, spec.head_dim) +
                              kv_token_bytes(session.v_type, spec.head_dim))};
  session.engine.step_timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(options.step_timeout_seconds * 1e3));
  session.fingerprint = fingerprint_of(session, options);
  session.system_fingerprint = fmt::format("longhaul-{}-{}", build_info::kVersion,
                                           sha256_of(to_text(session.fingerprint)).substr(0, 12));
  session.engine.scheduler.save = saving(session, options);
  warn_about_generation_config(session, options);
  return session;
}

WorkerConfig worker_config(const RunSession& session, const RunOptions& options) {
  WorkerConfig config;
  config.device = chosen_device(options.device);
  config.weights = std::make_shared<const Weights>(
      Weights::load(session.model, asked_weights(options.weights), config.device));
  config.roles = session.roles;
  config.k_type = session.k_type;
  config.v_type = session.v_type;
  config.block_size = options.block_size;
  const std::size_t limit = session.engine.scheduler.budget.limit_bytes;
  if (limit != KvBudget::kNoLimit) config.cache_limit_bytes = limit;
  config.n_threads = options.n_threads;
  return config;
}

void print_summary(const RunSession& session) {
  const ModelSpec& spec = session.model.config().spec;
  const auto n_heads = spec.n_layers * spec.n_kv_heads;
  std::string heads = fmt::format("all {} KV heads keep every token", n_heads);
  if (session.roles.n_retrieval() < n_heads) {
    heads =
        fmt::format("{} of {} KV heads keep every token, the others the first {} and last {}",
                    session.roles.n_retrieval(), n_heads, session.roles.sink, session.roles.recent);
  }
  fmt::print(stderr,
             "longhaul {}: {} ({}, {} layers), context {} tokens, weights {}, caches {}/{}, "
             "{}\n"
             "  heads: {}\n"
             "  unless a request says otherwise: {}, at most {} new tokens\n",
             build_info::kVersion, session.model.path().string(), spec.model_type, spec.n_layers,
             session.preparation.ctx_size, name_of(session.weights), name_of(session.k_type),
             name_of(session.v_type), session.device, heads,
             describe(session.preparation.defaults.params),
             session.preparation.defaults.max_tokens);
}

}  // namespace longhaul
