#include "tools/eval/line_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "tools/eval/svg.h"

namespace longhaul {
namespace {

constexpr double kLeastPlotWidth = 860;
constexpr double kDescribedPlotWidth = 930;  // has room for descriptions of curves
constexpr double kHeight = 460;
constexpr double kPlotLeft = 76;
constexpr double kPlotEnd = 670;  // the legend stands behind it
constexpr double kLegendText = kPlotEnd + 44;
constexpr double kLetter = 7.5;  // about the width of one in a legend
constexpr double kSmallLetter = 5.8;
constexpr double kLegendRow = 20;
constexpr double kDescriptionRow = 14;
constexpr Colour kSoft = {102, 102, 102};
constexpr double kPlotTop = 64;
constexpr double kPlotBottom = 60;
constexpr Colour kGrid = {226, 226, 226};
// Colours that colour-blind people can tell apart (Okabe and Ito 2008, "Color Universal Design").
constexpr std::array<Colour, 7> kColours = {{{0, 114, 178},
                                             {213, 94, 0},
                                             {0, 158, 115},
                                             {204, 121, 167},
                                             {0, 0, 0},
                                             {230, 159, 0},
                                             {86, 180, 233}}};
// Each later curve has gaps through which an equal one under it is seen.
constexpr std::array<std::string_view, 4> kDashes = {"", "9 4", "3 4", "9 4 3 4"};
constexpr std::size_t kMostDots = 40;  // of a curve that marks its points
constexpr double kMargin = 0.04;       // of an axis, beyond the curves on both sides

// One axis: values to places in the picture.
struct Scale {
  LinePlot::Axis kind = LinePlot::Axis::kLinear;
  double low = 0;
  double high = 1;
  double begin = 0;  // the place of low
  double end = 1;    // the place of high

  bool shows(double value) const {
    return std::isfinite(value) && (kind == LinePlot::Axis::kLinear || value > 0);
  }
  double along(double value) const {
    return kind == LinePlot::Axis::kLinear ? value : std::log(value);
  }
  double place(double value) const {
    return begin + (end - begin) * (along(value) - along(low)) / (along(high) - along(low));
  }
  std::vector<double> ticks(int max_ticks) const {
    return kind == LinePlot::Axis::kLinear ? linear_ticks(low, high, max_ticks)
                                           : logarithmic_ticks(low, high, max_ticks);
  }
  void widen() {  // an axis needs a length
    if (low < high) return;
    const bool is_linear = kind == LinePlot::Axis::kLinear;
    low = is_linear ? low - 0.5 : low / 2;
    high = is_linear ? high + 0.5 : high * 2;
  }
  void leave_margins() {
    const double margin = kMargin * (along(high) - along(low));
    const auto back = [&](double place) {
      return kind == LinePlot::Axis::kLinear ? place : std::exp(place);
    };
    const double from = back(along(low) - margin);
    high = back(along(high) + margin);
    low = from;
  }
};

struct Scales {
  Scale x;
  Scale y;
  bool shows(const std::pair<double, double>& p) const {
    return x.shows(p.first) && y.shows(p.second);
  }
};

Scales scales_of(const LinePlot& plot) {
  Scales s{.x = {.kind = plot.x_axis, .begin = kPlotLeft, .end = kPlotEnd},
           .y = {.kind = plot.y_axis, .begin = kHeight - kPlotBottom, .end = kPlotTop}};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  s.x.low = s.y.low = kInfinity;
  s.x.high = s.y.high = -kInfinity;
  for (const LinePlot::Series& series : plot.series) {
    for (const auto& point : series.points) {
      if (!s.shows(point)) continue;
      s.x.low = std::min(s.x.low, point.first);
      s.x.high = std::max(s.x.high, point.first);
      s.y.low = std::min(s.y.low, point.second);
      s.y.high = std::max(s.y.high, point.second);
    }
  }
  if (s.x.low > s.x.high) s.x.low = s.x.high = s.y.low = s.y.high = 1;  // nothing to show
  s.x.widen();
  s.y.widen();
  s.x.leave_margins();
  s.y.leave_margins();
  return s;
}

std::string tick_text(double value) {
  return std::abs(value) >= 1e6 ? fmt::format("{:g}M", value / 1e6) : fmt::format("{:g}", value);
}

void add_axes(SvgPicture& picture, const LinePlot& plot, const Scales& s) {
  for (const double value : s.x.ticks(8)) {
    const double x = s.x.place(value);
    picture.add_line(x, kPlotTop, x, kHeight - kPlotBottom, kGrid, 1);
    const std::string text = tick_text(value);
    picture.add(SvgText{
        .x = x, .y = kHeight - kPlotBottom + 18, .text = text, .anchor = TextAnchor::kMiddle});
  }
  for (const double value : s.y.ticks(8)) {
    const double y = s.y.place(value);
    picture.add_line(kPlotLeft, y, kPlotEnd, y, kGrid, 1);
    const std::string text = tick_text(value);
    picture.add(SvgText{.x = kPlotLeft - 8, .y = y + 4, .text = text, .anchor = TextAnchor::kEnd});
  }
  picture.add(SvgText{.x = (kPlotLeft + kPlotEnd) / 2,
                      .y = kHeight - 18,
                      .text = plot.x_name,
                      .anchor = TextAnchor::kMiddle});
  picture.add(SvgText{.x = 22,
                      .y = (kPlotTop + kHeight - kPlotBottom) / 2,
                      .text = plot.y_name,
                      .anchor = TextAnchor::kMiddle,
                      .rotation = -90});
}

double width_of(const LinePlot& plot) {
  double width = kLeastPlotWidth;
  for (const LinePlot::Series& series : plot.series) {
    if (!series.description.empty()) width = std::max(width, kDescribedPlotWidth);
    width = std::max(width, kLegendText + 16 + kLetter * static_cast<double>(series.name.size()));
  }
  return width;
}

// A curve's name and what stands under it.
struct LegendEntry {
  double y = 0;  // of the name
  std::vector<std::string> description;
};

std::vector<LegendEntry> legend_of(const LinePlot& plot) {
  const auto most = static_cast<std::size_t>((width_of(plot) - kLegendText - 8) / kSmallLetter);
  std::vector<LegendEntry> entries;
  double y = kPlotTop + 12;
  for (const LinePlot::Series& series : plot.series) {
    entries.push_back({y, lines_of(series.description, most)});
    y += kLegendRow + kDescriptionRow * static_cast<double>(entries.back().description.size());
  }
  return entries;
}

double bottom_of(const std::vector<LegendEntry>& legend) {
  if (legend.empty()) return 0;
  return legend.back().y + kDescriptionRow * static_cast<double>(legend.back().description.size()) +
         16;
}

}  // namespace

std::vector<double> linear_ticks(double low, double high, int max_ticks) {
  const double rough = (high - low) / std::max(1, max_ticks - 1);
  if (!(rough > 0) || !std::isfinite(rough)) return {low};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) {
    ticks.push_back(i == 0 ? 0.0 : i * step);
  }
  return ticks;
}

std::vector<double> logarithmic_ticks(double low, double high, int max_ticks) {
  std::vector<double> ticks, powers;
  for (double e = std::floor(std::log10(low)); e <= std::ceil(std::log10(high)); ++e) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, e);
      if (value < low * (1 - 1e-9) || value > high * (1 + 1e-9)) continue;
      ticks.push_back(value);
      if (factor == 1.0) powers.push_back(value);
    }
  }
  if (static_cast<int>(ticks.size()) > max_ticks) return powers;
  return ticks.size() < 2 ? linear_ticks(low, high, max_ticks) : ticks;
}

std::string to_svg(const LinePlot& plot) {
  const Scales s = scales_of(plot);
  const std::vector<LegendEntry> legend = legend_of(plot);
  SvgPicture picture(width_of(plot), std::max(kHeight, bottom_of(legend)));
  picture.add(SvgText{.x = 16, .y = 24, .text = plot.title, .size = 15});
  picture.add(SvgText{.x = 16, .y = 44, .text = plot.subtitle, .colour = kSoft});
  add_axes(picture, plot, s);
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    const Colour colour = kColours[i % kColours.size()];
    const std::string_view dashes = kDashes[i % kDashes.size()];
    const bool has_dots = plot.series[i].points.size() <= kMostDots;
    std::string points;
    for (const auto& point : plot.series[i].points) {
      if (!s.shows(point)) continue;
      points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", s.x.place(point.first),
                            s.y.place(point.second));
      if (has_dots) picture.add_dot(s.x.place(point.first), s.y.place(point.second), 3, colour);
    }
    picture.add_path(points, colour, dashes);
    const double y = legend[i].y;
    picture.add_path(
        fmt::format("{:.1f},{:.1f} {:.1f},{:.1f}", kPlotEnd + 10, y - 4, kPlotEnd + 40, y - 4),
        colour, dashes);
    picture.add(SvgText{.x = kLegendText, .y = y, .text = plot.series[i].name});
    double below = y;
    for (const std::string& line : legend[i].description) {
      below += kDescriptionRow;
      picture.add(SvgText{.x = kLegendText, .y = below, .text = line, .size = 10, .colour = kSoft});
    }
  }
  return picture.text();
}

}  // namespace longhaul
