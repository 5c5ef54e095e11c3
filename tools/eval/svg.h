// Pictures as SVG text: the few elements that heat maps and line plots need. Pure; nothing here
// knows what is shown.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

// A red-green-blue colour, each in [0, 255].
struct Colour {
  int red = 0;
  int green = 0;
  int blue = 0;
};
std::string hex_of(Colour colour);  // "#rrggbb"

enum class TextAnchor { kStart, kMiddle, kEnd };

struct SvgText {
  double x = 0;
  double y = 0;  // of the baseline
  std::string_view text;
  TextAnchor anchor = TextAnchor::kStart;
  int size = 12;
  double rotation = 0;  // degrees, around (x, y)
  Colour colour = {34, 34, 34};
};

struct SvgRectangle {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  Colour fill;
  std::string_view tooltip = {};  // shown by viewers when the mouse rests on it
};

// Lines of so many letters, cut between words.
std::vector<std::string> lines_of(std::string_view text, std::size_t most);

// One picture, built up element by element.
class SvgPicture {
 public:
  SvgPicture(double width, double height);
  void add(const SvgText& text);
  void add(const SvgRectangle& rectangle);
  void add_line(double x1, double y1, double x2, double y2, Colour colour, double width);
  // A broken line through "x,y x,y ..."; points are given one after the other. `dashes`: lengths of
  // strokes and gaps, as SVG's stroke-dasharray; empty: none.
  void add_path(std::string_view points, Colour colour, std::string_view dashes = {});
  void add_dot(double x, double y, double radius, Colour colour);
  std::string text() const;  // the whole file

 private:
  double width_;
  double height_;
  std::string body_;
};

}  // namespace longhaul
