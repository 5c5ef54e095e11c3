// Named figures as a JSON object, in their order.
#pragma once
#include <vector>

#include "base/json.h"
#include "cluster/wire/step.h"

namespace longhaul {

template <typename T>
Json named_json(const std::vector<Named<T>>& values) {
  JsonObject object;
  for (const Named<T>& value : values) object.emplace_back(value.name, value.value);
  return object;
}

}  // namespace longhaul
