// Which heads keep every token: a user's choice becomes roles for a model.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "model/head_profile.h"
#include "model/heads/cache_method.h"
#include "model/model_folder.h"
#include "model/model_spec.h"

namespace longhaul {

struct HeadSettings {
  std::filesystem::path profile;          // DuoAttention's folder; empty: every head keeps all
  std::optional<double> retrieval_ratio;  // not given: heads with a gate of 0.5 or more
  std::optional<std::int64_t> sink;       // tokens; not given: the profile's
  std::optional<std::int64_t> recent;     // tokens; not given: the profile's
  HeadMethods methods;                    // --policy and --full-heads
};

struct ChosenHeads {
  HeadRoles roles;
  std::optional<HeadProfile> profile;  // that they were chosen from
  HeadTable table;                     // what roles and methods make of the model's heads
};

// Reads the profile. Throws kInvalidArgument for one of another model, or none where the settings
// need one, and for methods that do not go with it. `folder` is the model's, where it has one.
ChosenHeads choose_heads(const HeadSettings& settings, const ModelSpec& spec,
                         const ModelFolder* folder = nullptr);

// Throws kInvalidArgument when the profile says for which weights it was made and these are others.
// Reads samples of the weights' files, if there are any.
void check_profile_is_of(const HeadProfile& profile, const ModelFolder& folder);

}  // namespace longhaul
