#include "tools/eval/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/xml_text.h"

namespace longhaul {
namespace {

std::string_view name_of(TextAnchor anchor) {
  switch (anchor) {
    case TextAnchor::kStart:
      return "start";
    case TextAnchor::kMiddle:
      return "middle";
    case TextAnchor::kEnd:
      return "end";
  }
  return "start";
}

}  // namespace

std::string hex_of(Colour colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue);
}

SvgPicture::SvgPicture(double width, double height) : width_(width), height_(height) {
  add(SvgRectangle{.width = width, .height = height, .fill = {255, 255, 255}});
}

void SvgPicture::add(const SvgText& text) {
  const std::string turn = text.rotation == 0
                               ? ""
                               : fmt::format(R"-( transform="rotate({:g} {:.1f} {:.1f})")-",
                                             text.rotation, text.x, text.y);
  body_ += fmt::format(
      R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" font-size="{}" fill="{}"{}>{}</text>)"
      "\n",
      text.x, text.y, name_of(text.anchor), text.size, hex_of(text.colour), turn,
      xml_escaped(text.text));
}

void SvgPicture::add(const SvgRectangle& r) {
  const std::string start =
      fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}")", r.x,
                  r.y, r.width, r.height, hex_of(r.fill));
  body_ += r.tooltip.empty()
               ? start + "/>\n"
               : fmt::format("{}><title>{}</title></rect>\n", start, xml_escaped(r.tooltip));
}

void SvgPicture::add_line(double x1, double y1, double x2, double y2, Colour colour, double width) {
  body_ += fmt::format(
      R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" stroke-width="{:g}"/>)"
      "\n",
      x1, y1, x2, y2, hex_of(colour), width);
}

void SvgPicture::add_path(std::string_view points, Colour colour, std::string_view dashes) {
  body_ += fmt::format(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="2"{}/>)"
                       "\n",
                       points, hex_of(colour),
                       dashes.empty() ? "" : fmt::format(R"( stroke-dasharray="{}")", dashes));
}

void SvgPicture::add_dot(double x, double y, double radius, Colour colour) {
  body_ += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="{:g}" fill="{}"/>)"
                       "\n",
                       x, y, radius, hex_of(colour));
}

std::string SvgPicture::text() const {
  return fmt::format(
      R"(<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" font-family="sans-serif">
{2}</svg>
)",
      width_, height_, body_);
}

std::vector<std::string> lines_of(std::string_view text, std::size_t most) {
  std::vector<std::string> lines;
  std::string line;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.size(), text.find(' ', begin));
    const std::string word(text.substr(begin, end - begin));
    if (!line.empty() && line.size() + 1 + word.size() > most) {
      lines.push_back(std::move(line));
      line.clear();
    }
    line += line.empty() ? word : " " + word;
    begin = end + 1;
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace longhaul
