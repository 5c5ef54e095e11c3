// Which heads keep every token: a user's choice becomes roles for a model.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "model/head_profile.h"
#include "model/heads/cache_method.h"
#include "model/model_folder.h"
#include "model/model_spec.h"
#include "partition/kv_format.h"

namespace longhaul {

struct HeadSettings {
  std::filesystem::path profile;          // DuoAttention's folder; empty: every head keeps all
  std::optional<double> retrieval_ratio;  // not given: heads with a gate of 0.5 or more
  std::optional<std::int64_t> sink;       // tokens; not given: the profile's
  std::optional<std::int64_t> recent;     // tokens; not given: the profile's
  HeadMethods methods;                    // --policy and --full-heads
};

// Roles alone, without methods.
struct ProfileRoles {
  HeadRoles roles;
  std::optional<HeadProfile> profile;  // that they were chosen from, with the settings' window
};

// Reads the profile and chooses by it. Without one every head keeps all, and sink and recent are
// those of heads that are made streaming heads later. Throws kInvalidArgument for a profile of
// another model or of other weights, and for a ratio without one. `folder` is the model's, where it
// has one.
ProfileRoles roles_by_profile(const HeadSettings& settings, const ModelSpec& spec,
                              const ModelFolder* folder = nullptr);

struct ChosenHeads {
  HeadRoles roles;
  std::optional<HeadProfile> profile;  // that they were chosen from
  HeadTable table;                     // what roles and methods make of the model's heads
};

// The heads of a run: roles by the profile, and what methods make of them. Throws what
// roles_by_profile does, and kInvalidArgument for a window without a profile and for methods that
// do not go with it.
ChosenHeads choose_heads(const HeadSettings& settings, const ModelSpec& spec,
                         const ModelFolder* folder = nullptr);

// Throws kInvalidArgument, by the name of the flag that asks for guesses, where these heads could
// not take a wrong one back.
void require_can_take_back(const HeadTable& heads, std::string_view flag);

// Throws kInvalidArgument where caches of this form cannot hold what these heads keep, or a model's
// heads and blocks of so many tokens not be of these types.
void require_cacheable(const HeadTable& heads, const KvFormat& kv);

}  // namespace longhaul
