// The pictures: well-formed XML whatever they show, colours and places as promised.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/xml_text.h"
#include "tests/unit/eval/xml_check.h"
#include "tools/eval/heat_map.h"
#include "tools/eval/line_plot.h"
#include "tools/eval/svg.h"

namespace longhaul {
namespace {

using test::xml_problem;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kNasty = "a<b & \"c\" 'd'\x01\n>";

TEST(XmlCheck, SeesWhatIsWrong) {
  EXPECT_EQ(xml_problem("<?xml version=\"1.0\"?>\n<a x=\"1\"><b/>t &amp; u</a>\n"), "");
  for (const char* wrong :
       {"", "<a>", "<a></b>", "<a/><b/>", "<a x=1/>", "<a x=\"1\" x=\"2\"/>", "<a>&nbsp;</a>",
        "<a x=\"<\"/>", "text<a/>", "<a x=\"1/>", "<a>\x02</a>"}) {
    EXPECT_NE(xml_problem(wrong), "") << wrong;
  }
}

TEST(Svg, EscapesText) {
  EXPECT_EQ(xml_escaped(kNasty), "a&lt;b &amp; &quot;c&quot; &apos;d&apos;  &gt;");
  EXPECT_EQ(hex_of({0, 10, 255}), "#000aff");
  SvgPicture picture(10, 20);
  picture.add(SvgText{.text = kNasty});
  EXPECT_EQ(xml_problem(picture.text()), "");
}

HeatMap small_map() {
  return {.title = kNasty,
          .subtitle = kNasty,
          .x_name = "length",
          .y_name = "depth",
          .columns = {"1K", kNasty},
          .rows = {"0 %", "50 %", "100 %"},
          .values = {0.0, 0.5, 1.0, std::nullopt, 0.25, 2.0}};
}

TEST(HeatMap, IsWellFormedAndColoured) {
  const std::string svg = to_svg(small_map());
  EXPECT_EQ(xml_problem(svg), "") << svg;
  EXPECT_THAT(svg, HasSubstr("#00224e"));                                   // 0
  EXPECT_THAT(svg, HasSubstr("#7c7b78"));                                   // a half
  EXPECT_THAT(svg, HasSubstr("#fee838"));                                   // 1, and what is beyond
  EXPECT_THAT(svg, HasSubstr("#dddddd"));                                   // nothing
  EXPECT_THAT(svg, HasSubstr("length 1K, depth 50 %: 1.000</title>"));      // [1, 0]
  EXPECT_THAT(svg, HasSubstr("depth 50 %: nothing asked</title></rect>"));  // [1, 1]
}

TEST(HeatMap, CutsLongTitlesIntoLines) {
  HeatMap map = small_map();
  map.title = "one";
  for (int i = 0; i < 60; ++i) map.title += " more";
  const std::string svg = to_svg(map);
  EXPECT_EQ(xml_problem(svg), "");
  EXPECT_THAT(svg, HasSubstr("width=\"460\""));
  EXPECT_THAT(svg, Not(HasSubstr(map.title)));
}

TEST(HeatMap, RefusesAWrongNumberOfValues) {
  HeatMap map = small_map();
  map.values.pop_back();
  EXPECT_THROW(to_svg(map), Error);
  EXPECT_EQ(xml_problem(to_svg(HeatMap{})), "");
}

TEST(LinePlot, IsWellFormedAndLeavesOutWhatHasNoPlace) {
  LinePlot plot{.title = kNasty, .x_name = "position", .y_name = "NLL"};
  EXPECT_EQ(xml_problem(to_svg(plot)), "");  // nothing at all
  plot.series = {{kNasty, {{0, 1}, {10, 2}, {20, std::nan("")}, {30, 3}}}, {"one point", {{5, 2}}}};
  for (const auto axis : {LinePlot::Axis::kLinear, LinePlot::Axis::kLogarithmic}) {
    plot.x_axis = plot.y_axis = axis;
    const std::string svg = to_svg(plot);
    EXPECT_EQ(xml_problem(svg), "") << svg;
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
}

TEST(LinePlot, SaysUnderTheirNamesWhatCurvesAre) {
  LinePlot plot{.x_name = "x", .y_name = "y"};
  for (int i = 0; i < 12; ++i) {
    plot.series.push_back({.name = "window",
                           .points = {{1, 1}, {2, 2}},
                           .description = "the last 512 tokens, cached, of a text that is longer "
                                          "than the legend is wide, by far"});
  }
  const std::string svg = to_svg(plot);
  EXPECT_EQ(xml_problem(svg), "");
  EXPECT_THAT(svg, HasSubstr(">the last 512 tokens, cached, of a"));
  EXPECT_THAT(svg, HasSubstr(">is wide, by far</text>")) << "cut between words";
  EXPECT_THAT(svg, Not(HasSubstr("height=\"460\""))) << "high enough for all of them";
}

TEST(LinePlot, PlacesPointsBetweenTheAxes) {
  LinePlot plot{.x_name = "x", .y_name = "y"};
  plot.series = {{"s", {{1, 1}, {10, 10}, {100, 100}}}};
  plot.x_axis = plot.y_axis = LinePlot::Axis::kLogarithmic;
  // 594 wide from 76, 336 high from 400 upwards, with margins of 1 part in 27.
  EXPECT_THAT(to_svg(plot), HasSubstr("points=\"98.0,387.6 373.0,232.0 648.0,76.4\""));
}

TEST(LinePlot, TicksAreRoundNumbers) {
  using testing::DoubleNear;
  using testing::ElementsAre;
  EXPECT_THAT(linear_ticks(0, 20000, 8), ElementsAre(0, 5000, 10000, 15000, 20000));
  EXPECT_THAT(linear_ticks(1.3, 1.9, 4),
              ElementsAre(DoubleNear(1.4, 1e-9), DoubleNear(1.6, 1e-9), DoubleNear(1.8, 1e-9)));
  EXPECT_THAT(linear_ticks(-1, 1, 3), ElementsAre(-1, 0, 1));
  EXPECT_THAT(logarithmic_ticks(1, 100, 8), ElementsAre(1, 2, 5, 10, 20, 50, 100));
  EXPECT_THAT(logarithmic_ticks(1, 1e6, 8), ElementsAre(1, 10, 100, 1e3, 1e4, 1e5, 1e6));
  EXPECT_THAT(logarithmic_ticks(3, 4, 8).size(), testing::Ge(2U));
}

}  // namespace
}  // namespace longhaul
