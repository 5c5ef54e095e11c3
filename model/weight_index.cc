#include "model/weight_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace longhaul {
namespace {

void check_file_name(const JsonField& field) {
  constexpr std::size_t kLongest = 255;
  const std::string& name = field.as_string();
  const bool has_control =
      std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (name.empty() || name.size() > kLongest || has_control ||
      name.find_first_of("/\\") != std::string::npos || name.find("..") != std::string::npos) {
    field.fail("is not the plain name of a file in the model's folder");
  }
  if (!name.ends_with(".safetensors")) {
    field.fail(fmt::format("{} does not end in .safetensors", to_text(Json(name))));
  }
}

}  // namespace

WeightIndex parse_weight_index(std::string_view text, std::string_view source) {
  const Json json = parse_json(text, source);
  const JsonField root(json, std::string(source));
  const JsonField map = root.at("weight_map");
  const auto* members = std::get_if<JsonObject>(&map.json().value());
  if (members == nullptr) {
    map.fail(fmt::format("expected an object, found {}", map.json().kind_name()));
  }
  if (members->empty()) map.fail("names no tensor");
  WeightIndex index;
  for (const auto& [tensor, file] : *members) {
    const JsonField field(file, std::string(source), fmt::format("weight_map.{}", tensor));
    check_file_name(field);
    index.emplace(tensor, field.as_string());
  }
  return index;
}

}  // namespace longhaul
