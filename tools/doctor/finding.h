// What `longhaul doctor` says about one thing.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"

namespace longhaul {

enum class Health { kPass, kWarn, kFail };
std::string_view name_of(Health health);  // "PASS", ...

struct Finding {
  Health health = Health::kPass;
  std::string check;  // "memory"
  std::string text;   // what was found
  std::string why;    // why it matters, and
  std::string mend;   // how to mend it; both empty for kPass
};

// The worst of them; kPass for none.
Health worst_of(const std::vector<Finding>& findings);
// A line for each, with why and what to do below those that do not pass, in 80 columns; and a last
// line that counts them.
std::string to_text(const std::vector<Finding>& findings);
Json to_json(const std::vector<Finding>& findings);

}  // namespace longhaul
