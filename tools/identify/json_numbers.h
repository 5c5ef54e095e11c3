// Lists of numbers in the JSON that `longhaul identify` keeps and sends.
#pragma once
#include <fmt/format.h>

#include <cstddef>
#include <vector>

#include "base/json.h"

namespace longhaul {

inline JsonArray to_array(const std::vector<double>& values) {
  return JsonArray(values.begin(), values.end());
}

inline std::vector<double> numbers_of(const JsonField& field) {
  std::vector<double> out;
  for (std::size_t i = 0; i < field.size(); ++i) out.push_back(field.at(i).as_number());
  return out;
}

// Refuses any other count.
inline std::vector<double> numbers_of(const JsonField& field, std::size_t count) {
  if (field.size() != count) field.fail(fmt::format("expected {} numbers", count));
  return numbers_of(field);
}

}  // namespace longhaul
