#include "tools/eval/eval_flags.h"

#include <CLI/CLI.hpp>

#include <limits>
#include <string>

#include "tools/device_flag.h"
#include "tools/weights_flag.h"

namespace longhaul {
namespace {

constexpr const char* kGroup = "Retrieval and streaming heads";

}  // namespace

void add_eval_model_flags(CLI::App& app, EvalModelFlags& f) {
  app.add_option("-m,--model", f.model,
                 "Model: a Hugging Face folder, or org/name[@revision] from the local hub cache")
      ->required();
  const std::string group = "Speed and memory";
  add_device_flag(app, f.device, group);
  app.add_option("-t,--threads", f.n_threads, "Threads (default: all cores)")
      ->check(CLI::Range(0, 4096))
      ->group(group);
  app.add_option("-b,--chunk-len,--batch-size", f.chunk_len, "Tokens of one prefill step")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 26))
      ->capture_default_str()
      ->group(group);
  add_weights_flag(app, f.weights, group);
  add_cache_type_options(app, f.cache_types, group);
  app.add_option("--block-size", f.block_size, "Tokens of a cache block")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-limit", f.kv_limit, "Most memory of KV caches, such as 8G (default: none)")
      ->group(group);
}

void add_profile_flags(CLI::App& app, HeadFlags& f) {
  app.add_option("--head-profile", f.head_profile,
                 "Folder with full_attention_heads.tsv and config.json (DuoAttention)")
      ->group(kGroup);
  app.add_option("--retrieval-ratio", f.choice.retrieval_ratio,
                 "Share of heads that keep every token (default: those with a gate of 0.5 or more)")
      ->check(CLI::Range(0.0, 1.0))
      ->group(kGroup);
}

void add_single_head_flags(CLI::App& app, HeadFlags& f) {
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  app.add_option("--sink", f.choice.sink,
                 "First tokens that streaming heads keep (default: the profile's)")
      ->check(CLI::Range(std::int64_t{0}, most))
      ->group(kGroup);
  app.add_option("--recent", f.choice.recent,
                 "Last tokens that streaming heads keep (default: the profile's)")
      ->check(CLI::Range(std::int64_t{1}, most))
      ->group(kGroup);
  app.add_flag("--all-dense", f.choice.all_dense,
               "Every head keeps every token, whatever the profile says")
      ->group(kGroup);
  app.add_flag("--all-streaming", f.choice.all_streaming, "No head keeps every token")
      ->group(kGroup);
  app.add_option("--streaming-head", f.choice.streaming_heads,
                 "LAYER:KV_HEAD that becomes a streaming head; may be given again")
      ->group(kGroup);
  app.add_option("--only-retrieval-head", f.choice.only_retrieval_head,
                 "LAYER:KV_HEAD that alone keeps every token")
      ->group(kGroup);
}

HeadChoice read_head_choice(const HeadFlags& flags) {
  HeadChoice choice = flags.choice;
  if (!flags.head_profile.empty()) choice.profile = read_head_profile(flags.head_profile);
  return choice;
}

}  // namespace longhaul
