#include "tools/eval/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tools/eval/svg.h"

namespace longhaul {
namespace {

constexpr double kCellWidth = 64;
constexpr double kCellHeight = 28;
constexpr double kLeft = 96;
constexpr double kTop = 72;
constexpr double kBottom = 52;
constexpr double kRight = 24;
constexpr double kCharacterWidth = 7.5;  // of the title's letters, about
constexpr Colour kEmpty = {221, 221, 221};

Colour between(Colour a, Colour b, double share) {
  const auto mix = [share](int x, int y) {
    return static_cast<int>(std::lround(x + share * (y - x)));
  };
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

Colour colour_of(HeatMap::Palette palette, double rate) {
  if (palette == HeatMap::Palette::kOneColour)
    return between({247, 251, 255}, {8, 64, 129}, std::clamp(rate, 0.0, 1.0));
  constexpr Colour kNone = {215, 84, 74};
  constexpr Colour kHalf = {250, 214, 106};
  constexpr Colour kAll = {92, 172, 104};
  const double clipped = std::clamp(rate, 0.0, 1.0);
  return clipped < 0.5 ? between(kNone, kHalf, 2 * clipped) : between(kHalf, kAll, 2 * clipped - 1);
}

void add_cell(SvgPicture& picture, const HeatMap& map, std::size_t row, std::size_t column) {
  const double x = kLeft + kCellWidth * static_cast<double>(column);
  const double y = kTop + kCellHeight * static_cast<double>(row);
  const std::optional<double>& value = map.values[row * map.columns.size() + column];
  const std::string tooltip =
      fmt::format("{} {}, {} {}: {}", map.x_name, map.columns[column], map.y_name, map.rows[row],
                  value ? fmt::format("{:.3f}", *value) : "nothing asked");
  picture.add(SvgRectangle{.x = x,
                           .y = y,
                           .width = kCellWidth - 1,
                           .height = kCellHeight - 1,
                           .fill = value ? colour_of(map.palette, *value) : kEmpty,
                           .tooltip = tooltip});
  if (!value) return;
  const std::string text = fmt::format("{:.2f}", *value);
  const bool is_dark = map.palette == HeatMap::Palette::kOneColour && *value > 0.5;
  picture.add(SvgText{.x = x + kCellWidth / 2,
                      .y = y + kCellHeight / 2 + 4,
                      .text = text,
                      .anchor = TextAnchor::kMiddle,
                      .colour = is_dark ? Colour{255, 255, 255} : SvgText{}.colour});
}

}  // namespace

std::string to_svg(const HeatMap& map) {
  require(map.values.size() == map.rows.size() * map.columns.size(),
          fmt::format("heat map: {} values for {} rows of {} columns", map.values.size(),
                      map.rows.size(), map.columns.size()));
  const double grid_width = kCellWidth * static_cast<double>(map.columns.size());
  const double grid_height = kCellHeight * static_cast<double>(map.rows.size());
  const auto n_letters = static_cast<double>(std::max(map.title.size(), map.subtitle.size()));
  const double width = kRight + std::max(kLeft + grid_width, 16 + kCharacterWidth * n_letters);
  SvgPicture picture(width, kTop + grid_height + kBottom);
  picture.add(SvgText{.x = 16, .y = 24, .text = map.title, .size = 15});
  picture.add(SvgText{.x = 16, .y = 44, .text = map.subtitle, .colour = {102, 102, 102}});
  for (std::size_t row = 0; row < map.rows.size(); ++row) {
    picture.add(SvgText{.x = kLeft - 8,
                        .y = kTop + kCellHeight * (static_cast<double>(row) + 0.5) + 4,
                        .text = map.rows[row],
                        .anchor = TextAnchor::kEnd});
    for (std::size_t column = 0; column < map.columns.size(); ++column) {
      add_cell(picture, map, row, column);
    }
  }
  for (std::size_t column = 0; column < map.columns.size(); ++column) {
    picture.add(SvgText{.x = kLeft + kCellWidth * (static_cast<double>(column) + 0.5),
                        .y = kTop + grid_height + 18,
                        .text = map.columns[column],
                        .anchor = TextAnchor::kMiddle});
  }
  picture.add(SvgText{.x = kLeft + grid_width / 2,
                      .y = kTop + grid_height + 40,
                      .text = map.x_name,
                      .anchor = TextAnchor::kMiddle});
  picture.add(SvgText{.x = 22,
                      .y = kTop + grid_height / 2,
                      .text = map.y_name,
                      .anchor = TextAnchor::kMiddle,
                      .rotation = -90});
  return picture.text();
}

}  // namespace longhaul
