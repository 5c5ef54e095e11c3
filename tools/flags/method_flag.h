// A flag that names a cache method: --policy NAME[:key=value,...].
#pragma once
#include <optional>
#include <string>

#include "model/heads/cache_method.h"
#include "tools/flags/cli_app.h"

namespace longhaul {

// `value` gets what the user says and must outlive `app`. Other words are refused as CLI11 does it.
CLI::Option* add_method_flag(CLI::App& app, const std::string& name,
                             std::optional<CacheMethod>& value, const std::string& help);

}  // namespace longhaul
