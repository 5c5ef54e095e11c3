#include "tools/job/head_settings.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "coordinator/fingerprint.h"
#include "kernels/kv_block_check.h"
#include "tools/job/input_errors.h"

namespace longhaul {

namespace {

// Reads samples of the weights' files, if there are any.
void check_profile_is_of(const HeadProfile& profile, const ModelFolder& folder) {
  if (!profile.weights_sha256) return;
  require(may_be_of_weights(*profile.weights_sha256, folder),
          fmt::format("the head profile was made for other weights than those of {}; give the one "
                      "that was made for this model, or make one: longhaul identify",
                      folder.path().string()));
}

}  // namespace

ProfileRoles roles_by_profile(const HeadSettings& settings, const ModelSpec& spec,
                              const ModelFolder* folder) {
  if (settings.profile.empty()) {
    require(!settings.retrieval_ratio,
            "--retrieval-ratio needs --head-profile: it chooses heads by a profile");
    HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
    roles.sink = settings.sink.value_or(roles.sink);
    roles.recent = settings.recent.value_or(roles.recent);
    return {std::move(roles), std::nullopt};
  }
  HeadProfile profile = read_input([&] { return read_head_profile(settings.profile); });
  check_profile_fits(profile, spec);
  if (folder != nullptr) check_profile_is_of(profile, *folder);
  profile.sink = settings.sink.value_or(profile.sink);
  profile.recent = settings.recent.value_or(profile.recent);
  HeadRoles roles = choose_roles(profile, settings.retrieval_ratio);
  return {std::move(roles), std::move(profile)};
}

ChosenHeads choose_heads(const HeadSettings& settings, const ModelSpec& spec,
                         const ModelFolder* folder) {
  require(!settings.profile.empty() || (!settings.sink && !settings.recent),
          "--sink and --recent need --head-profile");
  ProfileRoles chosen = roles_by_profile(settings, spec, folder);
  HeadTable table = method_heads(spec, chosen.roles, settings.methods);
  return {std::move(chosen.roles), std::move(chosen.profile), std::move(table)};
}

void require_can_take_back(const HeadTable& heads, std::string_view flag) {
  if (heads.can_take_back()) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}: a wrong guess cannot be taken back where a method drops tokens at "
                          "every step (h2o, fastgen, tova:after=token), merges them (dmc), reads "
                          "chosen pages (quest) or sums up what has left (razor); leave it out, or "
                          "use another --policy",
                          flag));
}

void require_cacheable(const HeadTable& heads, const KvFormat& kv) {
  require_storable(heads, kv.k_type, kv.v_type);
  check_kv_block_shape("KV caches", {.block_size = kv.block_size,
                                     .head_dim = kv.head_dim,
                                     .k_type = kv.k_type,
                                     .v_type = kv.v_type});
}

}  // namespace longhaul
