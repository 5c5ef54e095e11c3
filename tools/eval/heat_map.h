// A table of rates as a picture: one coloured cell per value. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace longhaul {

struct HeatMap {
  enum class Palette {
    kRates,      // red for 0, yellow for a half, green for 1: bad and good
    kOneColour,  // white for 0, dark blue for 1: little and much, for people without colour vision,
                 // too
  };
  std::string title = {};
  std::string subtitle = {};  // may be empty
  std::string x_name = {};
  std::string y_name = {};
  std::vector<std::string> columns = {};  // labels, left to right
  std::vector<std::string> rows = {};     // labels, top to bottom
  // [rows, columns], each in [0, 1]; empty cells are grey.
  std::vector<std::optional<double>> values = {};
  Palette palette = Palette::kRates;
};

std::string to_svg(const HeatMap& map);

}  // namespace longhaul
