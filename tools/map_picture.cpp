// A map as a picture: a field for each call, the warmer the slower beside what the best of the map reach.
#include <algorithm>

#include "map.hpp"
#include "show/svg.hpp"

namespace tegula::tool {

using shown::Box, shown::Svg;

namespace {

constexpr double side = 22, letters = 10, margin = 12, title_height = 44;

// From red over yellow to green.
std::string color_of(double use) {
  const double red = use < 0.5 ? 1 : 2 - 2 * use, green = use < 0.5 ? 2 * use : 1;
  return fmt::format("#{:02x}{:02x}50", static_cast<int>(96 + 144 * red), static_cast<int>(80 + 144 * green));
}

std::string words_of(const Map& map, std::size_t row, std::size_t column) {
  const MapPoint& point = map.at(row, column);
  std::string words = map.calls->columns[column] + " " + map.calls->rows[row] + ": ";
  if (!point.refusal.empty()) return words + point.refusal;
  if (map.measured) words += fmt::format("{:.4g} ms, {:.4g} TFLOPS, ", 1e3 * point.seconds, point.tflops);
  words += fmt::format("{:.2f}; {}", point.use, point.way);
  for (const std::string& note : point.notes) words += "; " + note;
  return words;
}

double longest(const std::vector<std::string>& texts) {
  double width = 0;
  for (const std::string& text : texts) width = std::max(width, Svg::text_width(text, letters));
  return width;
}

void draw_field(Svg& svg, const Map& map, const Box& box, std::size_t row, std::size_t column,
                bool is_cliff) {
  const MapPoint& point = map.at(row, column);
  const std::string fill = point.refusal.empty() ? color_of(point.use) : "#eeeeee";
  svg.begin_group("");
  svg.rect(box, fmt::format("fill=\"{}\" stroke=\"{}\" stroke-width=\"{}\"", fill,
                            is_cliff ? "#000000" : "#ffffff", is_cliff ? 2 : 1));
  if (point.refusal.empty())
    svg.text(box.x + 3, box.y + side / 2 + 3,
             point.notes.empty() ? fmt::format("{:.0f}", 100 * point.use)
                                 : fmt::format("{:.0f}*", 100 * point.use),
             "font-size=\"8\"");
  svg.title(words_of(map, row, column));
  svg.end_group();
}

}  // namespace

std::string picture_of(const Map& map) {
  const auto& columns = map.calls->columns;
  const auto& rows = map.calls->rows;
  const double left = margin + longest(rows) + 6, top = title_height + longest(columns) + 6;
  const std::string title = fmt::format("{}: {}", map.op, map.calls->name);
  Svg svg;
  svg.text(margin, 18, title, "font-size=\"13\"");
  svg.text(margin, 34,
           map.measured
               ? "per cent of the time at the best rates of this map; * has notes; framed: below half of a "
                 "neighbour"
               : "plans: 100 wgmma with roles, 80 spills, 60 no roles, 40 mma.sync, 5 multiply-add; * has notes",
           "font-size=\"9\"");
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const double x = left + side * static_cast<double>(c) + side / 2 + 3;
    svg.text(0, 0, columns[c],
             fmt::format("font-size=\"{}\" transform=\"translate({} {}) rotate(-90)\"", letters,
                         Svg::number(x), Svg::number(top - 4)));
  }
  const std::vector<std::size_t> cliffs = map.cliffs();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double y = top + side * static_cast<double>(r);
    svg.text(margin, y + side / 2 + 3, rows[r], fmt::format("font-size=\"{}\"", letters));
    for (std::size_t c = 0; c < columns.size(); ++c)
      draw_field(svg, map, {left + side * static_cast<double>(c), y, side - 1, side - 1}, r, c,
                 std::find(cliffs.begin(), cliffs.end(), r * columns.size() + c) != cliffs.end());
  }
  const double width = left + side * static_cast<double>(columns.size()) + margin;
  return svg.document(std::max(width, 560.0), top + side * static_cast<double>(rows.size()) + margin, title);
}

}  // namespace tegula::tool
