#include "show/memory_picture.hpp"

#include <algorithm>
#include <array>

#include "show/svg.hpp"

namespace tegula::shown {
namespace {

constexpr double picture_margin = 16, map_width = 560, map_height = 320, scale_width = 64, map_letters = 10;
constexpr double least_height = 1.5;  // what is smaller is still seen

std::string colour_of(std::size_t number) {
  constexpr std::array colours{"#bcd9f5", "#f7c08a", "#b9e3b4", "#d9c3ee",
                               "#f6e58d", "#f5bfd2", "#cfd8dc", "#d7ccc8"};
  return colours[number % colours.size()];
}

// One interval: a box with its words in it, or as a title where they do not fit.
void draw_interval(Svg& svg, const codegen::SharedInterval& own, const Box& box, std::size_t number) {
  svg.begin_group("");
  svg.title(fmt::format("{} to {}: {}", own.begin, own.end, own.what));
  svg.rect(box, fmt::format("fill=\"{}\" stroke=\"#555555\" stroke-width=\"0.5\"", colour_of(number)));
  const std::string words = fmt::format("{}  {} bytes", own.what, own.end - own.begin);
  if (box.height > map_letters + 2 && Svg::text_width(words, map_letters) < box.width)
    svg.text(box.x + 4, box.y + box.height / 2 + map_letters / 3, words,
             fmt::format("font-size=\"{}\"", map_letters));
  svg.end_group();
}

}  // namespace

std::string memory_picture(const GridMemory& grid) {
  Svg svg;
  const double left = picture_margin + scale_width, top = picture_margin + 24;
  const std::string title = fmt::format("{}: {} bytes of shared memory", grid.name, grid.bytes);
  svg.text(picture_margin, picture_margin + 10, title, "font-size=\"12\"");
  int turns = 1;
  for (auto& own : grid.intervals) turns = std::max(turns, own.until);
  const double a_byte = map_height / static_cast<double>(std::max<std::int64_t>(grid.bytes, 1));
  const double a_turn = map_width / turns;
  svg.rect({left, top, map_width, map_height}, "fill=\"#f4f4f4\" stroke=\"#555555\"");
  for (std::size_t i = 0; i < grid.intervals.size(); ++i) {
    const auto& own = grid.intervals[i];
    const double height = std::max(least_height, static_cast<double>(own.end - own.begin) * a_byte);
    draw_interval(svg, own,
                  {left + own.from * a_turn, top + map_height - static_cast<double>(own.end) * a_byte,
                   (own.until - own.from) * a_turn, height},
                  i);
  }
  for (const int quarter : {0, 1, 2, 3, 4})
    svg.text(picture_margin, top + map_height - quarter * map_height / 4 + 3,
             fmt::format("{}", grid.bytes * quarter / 4), "font-size=\"9\" fill=\"#555555\"");
  svg.text(left, top + map_height + 14, "in the order of the program, from left to right",
           "font-size=\"9\" fill=\"#555555\"");
  return svg.document(left + map_width + picture_margin, top + map_height + 14 + picture_margin, title);
}

}  // namespace tegula::shown
