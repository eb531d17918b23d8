#include "show/layout_picture.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "show/svg.hpp"

namespace tegula::shown {
namespace {

constexpr double sheet_margin = 16, caption_size = 11, cell_size = 8, cell_height = 14;
constexpr double overview_width = 320, overview_height = 256;
constexpr std::string_view quiet = "fill=\"#555555\"";
constexpr std::size_t caption_letters = 150;

// A matrix of the fragment, and of each element the first thread that holds it.
class Plane {
 public:
  explicit Plane(const layout::Layout& layout) {
    const auto& shape = layout.shape();
    const std::size_t rank = shape.size();
    columns_ = rank > 0 ? shape[rank - 1] : 1;
    rows_ = rank > 1 ? shape[rank - 2] : 1;
    for (std::size_t d = 0; d + 2 < rank; ++d) planes_ *= shape[d];
    holders_.resize(static_cast<std::size_t>(rows_ * columns_));
    for (std::int64_t t = 0; t < layout.thread_count(); ++t) {
      for (std::int64_t r = 0; r < layout.register_count(); ++r) hold(layout, {t, r});
    }
  }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t planes() const { return planes_; }
  const std::optional<layout::Place>& at(std::int64_t row, std::int64_t column) const {
    return holders_[static_cast<std::size_t>(row * columns_ + column)];
  }
  int warp(std::int64_t row, std::int64_t column) const {
    const auto& holder = at(row, column);
    return holder ? static_cast<int>(holder->thread / 32) : -1;
  }

 private:
  void hold(const layout::Layout& layout, const layout::Place& place) {
    const auto at = layout.coordinates(place.thread, place.reg);
    if (!layout.is_inside(at)) return;
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < at.size(); ++d) flat = flat * layout.shape()[d] + at[d];
    if (flat >= static_cast<std::int64_t>(holders_.size())) return;  // of a further plane
    auto& holder = holders_[static_cast<std::size_t>(flat)];
    if (!holder) holder = place;
  }

  std::int64_t rows_ = 1, columns_ = 1, planes_ = 1;
  std::vector<std::optional<layout::Place>> holders_;
};

std::string hex_colour(double hue, double saturation, double lightness) {
  const double chroma = saturation * std::min(lightness, 1 - lightness);
  const auto channel = [&](double n) {
    const double k = std::fmod(n + hue / 30, 12);
    return std::lround(255 * (lightness - chroma * std::max(-1.0, std::min({k - 3, 9 - k, 1.0}))));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(8), channel(4));
}

// A hue for each warp group, its warps from dark to light.
std::string warp_colour(int warp) {
  if (warp < 0) return "#ffffff";
  constexpr std::array hues{212.0, 28.0, 140.0, 280.0, 350.0, 55.0, 180.0, 315.0};
  return hex_colour(hues[static_cast<std::size_t>(warp / 4) % hues.size()], 0.72, 0.60 + 0.085 * (warp % 4));
}

// Neighbours of one warp, as large as they can be.
struct Region {
  std::int64_t row, column, rows, columns;
  int warp;
};

std::vector<Region> regions_of(const Plane& plane, std::int64_t rows, std::int64_t columns) {
  std::vector<Region> result;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> above;  // by first and last column
  for (std::int64_t r = 0; r < rows; ++r) {
    decltype(above) here;
    for (std::int64_t c = 0, end; c < columns; c = end) {
      const int warp = plane.warp(r, c);
      for (end = c + 1; end < columns && plane.warp(r, end) == warp;) ++end;
      const auto found = above.find({c, end});
      if (found != above.end() && result[found->second].warp == warp) {
        ++result[found->second].rows;
        here[{c, end}] = found->second;
      } else {
        here[{c, end}] = result.size();
        result.push_back({r, c, 1, end - c, warp});
      }
    }
    above = std::move(here);
  }
  return result;
}

std::vector<std::string> captions(const std::vector<std::string>& words) {
  std::vector<std::string> lines;
  for (const std::string& word : words) {
    if (lines.empty()) {
      lines.push_back(word);
    } else if (lines.back().size() + word.size() < caption_letters) {
      lines.back() += ", " + word;
    } else {
      lines.back() += ",";
      lines.push_back(word);
    }
  }
  return lines;
}

class LayoutPainter {
 public:
  explicit LayoutPainter(const LayoutPage& page) : page_(page) {}
  std::string picture();

 private:
  void words(const std::string& text, std::string_view style = "");
  void legend();
  void caption(const DrawnLayout& drawn, const Plane& plane);
  double overview(const Plane& plane, double left, double top);
  double detail(const DrawnLayout& drawn, const Plane& plane, double left, double top);
  void edges(const Plane& plane, const Box& cells, double cell_width, std::int64_t rows,
             std::int64_t columns);

  const LayoutPage& page_;
  Svg svg_;
  double y_ = sheet_margin, width_ = 0;
};

void LayoutPainter::words(const std::string& text, std::string_view style) {
  y_ += caption_size + 4;
  svg_.text(sheet_margin, y_, text, style);
  width_ = std::max(width_, sheet_margin + Svg::text_width(text, caption_size));
}

void LayoutPainter::legend() {
  words(
      "Warps of the whole fragment, and thread t and element r of it in the top left corner (framed). "
      "Elements of 16 and 8 bits share registers.",
      quiet);
  std::int64_t threads = 1;
  for (const DrawnLayout& drawn : page_.layouts) threads = std::max(threads, drawn.layout.thread_count());
  const int warps = static_cast<int>((threads + 31) / 32);
  y_ += 10;
  double x = sheet_margin;
  for (int group = 0; 4 * group < warps; ++group) {
    const std::string name = fmt::format("warp group {}", group);
    if (group > 0 && group % 4 == 0) x = sheet_margin, y_ += 22;
    svg_.text(x, y_ + 11, name);
    x += Svg::text_width(name, caption_size) + 6;
    for (int warp = 4 * group; warp < std::min(warps, 4 * group + 4); ++warp, x += 28) {
      svg_.rect({x, y_, 28, 15}, fmt::format("fill=\"{}\" stroke=\"#555555\"", warp_colour(warp)));
      svg_.text(x + 14, y_ + 11, fmt::format("w{}", warp), "text-anchor=\"middle\" font-size=\"9\"");
    }
    x += 20;
    width_ = std::max(width_, x);
  }
  y_ += 20;
}

void LayoutPainter::caption(const DrawnLayout& drawn, const Plane& plane) {
  y_ += 14;
  for (const std::string& line : captions(drawn.fragments)) words(line, "font-weight=\"bold\"");
  words(drawn.layout.text(), quiet);
  std::string note = fmt::format("{} of its elements in a thread", drawn.layout.register_count());
  if (drawn.layout.replicas() > 1)
    note += fmt::format("; every element in {} threads", drawn.layout.replicas());
  if (plane.planes() > 1) note += fmt::format("; the first of {} planes", plane.planes());
  words(note, quiet);
}

// All of the matrix; returns how high it is.
double LayoutPainter::overview(const Plane& plane, double left, double top) {
  const auto rows = static_cast<double>(plane.rows()), columns = static_cast<double>(plane.columns());
  const double unit = std::min({overview_width / columns, overview_height / rows, 16.0});
  const double wide = std::max(unit, 16 / columns), high = std::max(unit, 16 / rows);
  svg_.begin_group("stroke=\"#555555\" stroke-width=\"0.5\"");
  const auto regions = regions_of(plane, plane.rows(), plane.columns());
  const auto box_of = [&](const Region& r) {
    return Box{left + wide * static_cast<double>(r.column), top + high * static_cast<double>(r.row),
               wide * static_cast<double>(r.columns), high * static_cast<double>(r.rows)};
  };
  for (const Region& r : regions) svg_.rect(box_of(r), fmt::format("fill=\"{}\"", warp_colour(r.warp)));
  svg_.end_group();
  svg_.begin_group("font-size=\"9\" text-anchor=\"end\"");
  for (const Region& r : regions) {
    const Box box = box_of(r);
    if (r.warp >= 0 && box.width >= 24 && box.height >= 10)
      svg_.text(box.x + box.width - 4, box.y + box.height / 2 + 3, fmt::format("w{}", r.warp));
  }
  svg_.end_group();
  svg_.rect({left, top, wide * std::min<double>(columns, detail_columns),
             high * std::min<double>(rows, detail_rows)},
            "fill=\"none\" stroke=\"#000000\" stroke-width=\"1.5\"");
  svg_.text(left, top - 4, fmt::format("{} x {}", plane.rows(), plane.columns()), "font-size=\"9\"");
  return high * rows;
}

// Lines between elements of different threads.
void LayoutPainter::edges(const Plane& plane, const Box& cells, double cell_width, std::int64_t rows,
                          std::int64_t columns) {
  std::string steps;
  const auto thread = [&](std::int64_t r, std::int64_t c) {
    const auto& holder = plane.at(r, c);
    return holder ? holder->thread : -1;
  };
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const double x = cells.x + cell_width * static_cast<double>(c);
      const double y = cells.y + cell_height * static_cast<double>(r);
      if (c > 0 && thread(r, c) != thread(r, c - 1))
        steps += fmt::format("M{} {}v{}", Svg::number(x), Svg::number(y), Svg::number(cell_height));
      if (r > 0 && thread(r, c) != thread(r - 1, c))
        steps += fmt::format("M{} {}h{}", Svg::number(x), Svg::number(y), Svg::number(cell_width));
    }
  }
  if (!steps.empty()) svg_.path(steps, "stroke=\"#444444\" stroke-width=\"0.6\" fill=\"none\"");
}

double LayoutPainter::detail(const DrawnLayout& drawn, const Plane& plane, double left, double top) {
  const auto rows = std::min<std::int64_t>(plane.rows(), detail_rows);
  const auto columns = std::min<std::int64_t>(plane.columns(), detail_columns);
  const char* more = drawn.layout.replicas() > 1 ? "…" : "";
  std::vector<std::string> labels;
  double longest = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto& holder = plane.at(r, c);
      labels.push_back(holder ? fmt::format("t{}{} r{}", holder->thread, more, holder->reg) : "");
      longest = std::max(longest, Svg::text_width(labels.back(), cell_size));
    }
  }
  const double wide = std::ceil(longest) + 5;
  const Box cells{left, top, wide * static_cast<double>(columns), cell_height * static_cast<double>(rows)};
  for (const Region& r : regions_of(plane, rows, columns))
    svg_.rect({left + wide * static_cast<double>(r.column), top + cell_height * static_cast<double>(r.row),
               wide * static_cast<double>(r.columns), cell_height * static_cast<double>(r.rows)},
              fmt::format("fill=\"{}\" fill-opacity=\"0.55\"", warp_colour(r.warp)));
  edges(plane, cells, wide, rows, columns);
  svg_.rect(cells, "fill=\"none\" stroke=\"#000000\"");
  svg_.begin_group(fmt::format("font-size=\"{}\" text-anchor=\"middle\"", cell_size));
  for (std::int64_t i = 0; i < rows * columns; ++i)
    svg_.text(left + wide * (static_cast<double>(i % columns) + 0.5),
              top + cell_height * static_cast<double>(i / columns) + 10, labels[static_cast<std::size_t>(i)]);
  svg_.end_group();
  svg_.begin_group("font-size=\"8\" fill=\"#777777\" text-anchor=\"middle\"");
  for (std::int64_t c = 0; c < columns; c += 4)
    svg_.text(left + wide * (static_cast<double>(c) + 0.5), top - 4, std::to_string(c));
  for (std::int64_t r = 0; r < rows; ++r)
    svg_.text(left - 9, top + cell_height * static_cast<double>(r) + 10, std::to_string(r));
  svg_.end_group();
  width_ = std::max(width_, cells.x + cells.width);
  return cells.height;
}

std::string LayoutPainter::picture() {
  svg_.begin_group(fmt::format("font-size=\"{}\"", caption_size));
  words(page_.title, "font-weight=\"bold\"");
  for (const std::string& product : page_.products) words(product);
  if (page_.layouts.empty())
    words("No fragments.", quiet);
  else
    legend();
  for (const DrawnLayout& drawn : page_.layouts) {
    const Plane plane(drawn.layout);
    caption(drawn, plane);
    y_ += 20;
    const double high = overview(plane, sheet_margin, y_);
    y_ += std::max(high, detail(drawn, plane, sheet_margin + overview_width + 40, y_));
  }
  svg_.end_group();
  return svg_.document(width_ + sheet_margin, y_ + sheet_margin, page_.title);
}

}  // namespace

void LayoutPage::add(const std::string& fragment, const layout::Layout& layout) {
  const auto same =
      std::find_if(layouts.begin(), layouts.end(), [&](const DrawnLayout& d) { return d.layout == layout; });
  if (same == layouts.end())
    layouts.push_back({layout, {fragment}});
  else
    same->fragments.push_back(fragment);
}

std::string layout_picture(const LayoutPage& page) { return LayoutPainter(page).picture(); }

}  // namespace tegula::shown
