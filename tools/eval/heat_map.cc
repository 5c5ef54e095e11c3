#include "tools/eval/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "tools/eval/svg.h"

namespace longhaul {
namespace {

constexpr double kCellWidth = 64;
constexpr double kCellHeight = 28;
constexpr double kLeftMargin = 96;
constexpr double kLine = 20;  // of the title
constexpr double kBottomMargin = 52;
constexpr double kRightMargin = 104;     // the legend stands there
constexpr double kLeastWidth = 460;      // room for a title
constexpr double kCharacterWidth = 7.5;  // of the title's letters, about
constexpr Colour kEmpty = {221, 221, 221};

Colour between(Colour a, Colour b, double share) {
  const auto mix = [share](int x, int y) {
    return static_cast<int>(std::lround(x + share * (y - x)));
  };
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

// From dark blue to yellow, ever lighter: told apart without red and green, and in grey (the
// cividis map, Nunez, Anderton, Renslow 2018).
Colour colour_of(HeatMap::Palette palette, double rate) {
  if (palette == HeatMap::Palette::kOneColour)
    return between({247, 251, 255}, {8, 64, 129}, std::clamp(rate, 0.0, 1.0));
  constexpr Colour kNone = {0, 34, 78};
  constexpr Colour kHalf = {124, 123, 120};
  constexpr Colour kAll = {254, 232, 56};
  const double clipped = std::clamp(rate, 0.0, 1.0);
  return clipped < 0.5 ? between(kNone, kHalf, 2 * clipped) : between(kHalf, kAll, 2 * clipped - 1);
}

Colour text_on(HeatMap::Palette palette, double rate) {
  constexpr Colour kDark = {20, 20, 20};
  constexpr Colour kLight = {255, 255, 255};
  const bool is_light = palette == HeatMap::Palette::kOneColour ? rate <= 0.5 : rate > 0.6;
  return is_light ? kDark : kLight;
}

// What the colours mean, beside the grid.
void add_legend(SvgPicture& picture, HeatMap::Palette palette, double x, double top) {
  constexpr int kSteps = 5;
  for (int i = 0; i < kSteps; ++i) {
    const double rate = 1.0 - static_cast<double>(i) / (kSteps - 1);
    const double y = top + 18 * i;
    const std::string text = fmt::format("{:.2f}", rate);
    picture.add(
        SvgRectangle{.x = x, .y = y, .width = 20, .height = 17, .fill = colour_of(palette, rate)});
    picture.add(SvgText{.x = x + 26, .y = y + 13, .text = text});
  }
}

void add_cell(SvgPicture& picture, const HeatMap& map, double top, std::size_t row,
              std::size_t column) {
  const double x = kLeftMargin + kCellWidth * static_cast<double>(column);
  const double y = top + kCellHeight * static_cast<double>(row);
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
  picture.add(SvgText{.x = x + kCellWidth / 2,
                      .y = y + kCellHeight / 2 + 4,
                      .text = text,
                      .anchor = TextAnchor::kMiddle,
                      .colour = text_on(map.palette, *value)});
}

}  // namespace

std::string to_svg(const HeatMap& map) {
  require(map.values.size() == map.rows.size() * map.columns.size(),
          fmt::format("heat map: {} values for {} rows of {} columns", map.values.size(),
                      map.rows.size(), map.columns.size()));
  const double grid_width = kCellWidth * static_cast<double>(map.columns.size());
  const double grid_height = kCellHeight * static_cast<double>(map.rows.size());
  const double width = std::max(kLeastWidth, kLeftMargin + grid_width + kRightMargin);
  const auto title = lines_of(map.title, static_cast<std::size_t>((width - 32) / kCharacterWidth));
  const double top = 52 + kLine * static_cast<double>(std::max<std::size_t>(1, title.size()));
  const double height = std::max(grid_height, 90.0);
  SvgPicture picture(width, top + height + kBottomMargin);
  double y = 24;
  for (const std::string& line : title) {
    picture.add(SvgText{.x = 16, .y = y, .text = line, .size = 15});
    y += kLine;
  }
  picture.add(SvgText{.x = 16, .y = y, .text = map.subtitle, .colour = {102, 102, 102}});
  add_legend(picture, map.palette, kLeftMargin + grid_width + 16, top);
  for (std::size_t row = 0; row < map.rows.size(); ++row) {
    picture.add(SvgText{.x = kLeftMargin - 8,
                        .y = top + kCellHeight * (static_cast<double>(row) + 0.5) + 4,
                        .text = map.rows[row],
                        .anchor = TextAnchor::kEnd});
    for (std::size_t column = 0; column < map.columns.size(); ++column) {
      add_cell(picture, map, top, row, column);
    }
  }
  for (std::size_t column = 0; column < map.columns.size(); ++column) {
    picture.add(SvgText{.x = kLeftMargin + kCellWidth * (static_cast<double>(column) + 0.5),
                        .y = top + grid_height + 18,
                        .text = map.columns[column],
                        .anchor = TextAnchor::kMiddle});
  }
  picture.add(SvgText{.x = kLeftMargin + grid_width / 2,
                      .y = top + grid_height + 40,
                      .text = map.x_name,
                      .anchor = TextAnchor::kMiddle});
  picture.add(SvgText{.x = 22,
                      .y = top + grid_height / 2,
                      .text = map.y_name,
                      .anchor = TextAnchor::kMiddle,
                      .rotation = -90});
  return picture.text();
}

}  // namespace longhaul
