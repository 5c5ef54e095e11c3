// Which heads keep every token: a user's choice becomes roles for a model.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "model/head_profile.h"
#include "model/model_spec.h"

namespace longhaul {

struct HeadSettings {
  std::filesystem::path profile;          // DuoAttention's folder; empty: every head keeps all
  std::optional<double> retrieval_ratio;  // not given: heads with a gate of 0.5 or more
  std::optional<std::int64_t> sink;       // tokens; not given: the profile's
  std::optional<std::int64_t> recent;     // tokens; not given: the profile's
};

struct ChosenHeads {
  HeadRoles roles;
  std::optional<HeadProfile> profile;  // that they were chosen from
};

// Reads the profile. Throws kInvalidArgument for one of another model, or none where the settings
// need one.
ChosenHeads choose_heads(const HeadSettings& settings, const ModelSpec& spec);

}  // namespace longhaul
