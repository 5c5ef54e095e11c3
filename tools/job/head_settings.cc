#include "tools/job/head_settings.h"

#include <utility>

#include "base/error.h"
#include "tools/job/input_errors.h"

namespace longhaul {

ChosenHeads choose_heads(const HeadSettings& settings, const ModelSpec& spec) {
  if (settings.profile.empty()) {
    require(!settings.retrieval_ratio && !settings.sink && !settings.recent,
            "--retrieval-ratio, --sink and --recent need --head-profile");
    HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
    HeadTable table = method_heads(spec, roles, settings.methods);
    return {std::move(roles), std::nullopt, std::move(table)};
  }
  HeadProfile profile = read_input([&] { return read_head_profile(settings.profile); });
  check_profile_fits(profile, spec);
  profile.sink = settings.sink.value_or(profile.sink);
  profile.recent = settings.recent.value_or(profile.recent);
  HeadRoles roles = choose_roles(profile, settings.retrieval_ratio);
  HeadTable table = method_heads(spec, roles, settings.methods);
  return {std::move(roles), std::move(profile), std::move(table)};
}

}  // namespace longhaul
