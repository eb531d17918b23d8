#include "show/schedule_picture.hpp"

#include <algorithm>
#include <array>

#include "show/schedule_columns.hpp"

namespace tegula::shown {
namespace {

using schedule::Event;
using schedule::Events;
using schedule::Side;

constexpr double page_margin = 16, lane_distance = 7, column_distance = 26;

struct KindStyle {
  std::string_view name, colour;
};
constexpr std::array<KindStyle, event_kinds> kind_styles{{{"loads", "#bcd9f5"},
                                                          {"gemms", "#f7c08a"},
                                                          {"waits", "#f6e58d"},
                                                          {"releases and arrivals", "#b9e3b4"},
                                                          {"ordinary work", "#ffffff"},
                                                          {"stores", "#d9c3ee"},
                                                          {"turns and tiles", "#f5bfd2"},
                                                          {"other", "#e6e6e6"}}};

std::string ring_colour(int ring) {
  constexpr std::array colours{"#1d4ed8", "#c2410c", "#15803d", "#7e22ce",
                               "#d61c7d", "#7c4a12", "#374151", "#6b7a00"};
  return colours[static_cast<std::size_t>(ring) % colours.size()];
}

bool fills(const Events& events) {
  return std::any_of(events.begin(), events.end(), [](const Event& e) {
    const auto end = ring_end_of(e);
    if (end && end->side == Side::full && !end->waits) return true;
    if (const auto* loop = std::get_if<schedule::Loop>(&e.what)) return fills(loop->body);
    if (const auto* guard = std::get_if<schedule::Guard>(&e.what)) return fills(guard->body);
    return false;
  });
}

std::string head_of(const schedule::Role& role) {
  std::string head = role.name + ": ";
  if (role.groups > 1) head += fmt::format("{} groups of ", role.groups);
  head += fmt::format("{} warps", role.warps);
  return role.registers == 0 ? head : head + fmt::format(", {} registers", role.registers);
}

// The line of one side of a ring: a lane between columns, and the events that it joins.
struct Lane {
  int ring;
  Side side;
  double x = 0;
  struct End {
    std::size_t column;
    const Item* item;
    bool waits;
  };
  std::vector<End> ends = {};

  bool joins() const {
    const auto waits = [](const End& e) { return e.waits; };
    return std::any_of(ends.begin(), ends.end(), waits) && !std::all_of(ends.begin(), ends.end(), waits);
  }
  // It is left of this column: of the last that it joins.
  std::size_t gutter() const {
    std::size_t last = 0;
    for (const End& e : ends) last = std::max(last, e.column);
    return last;
  }
  std::string style() const {
    return fmt::format("stroke=\"{}\" fill=\"none\" stroke-width=\"1.3\"{}", ring_colour(ring),
                       side == Side::empty ? " stroke-dasharray=\"4 2.5\"" : "");
  }
};

class SchedulePainter {
 public:
  explicit SchedulePainter(const schedule::Schedule& s) : s_(s) {}
  std::string picture();

 private:
  void words(const std::string& text, double x, std::string_view style = "");
  void legend();
  void ring_legend();
  void arrange();
  void find_lanes();
  void place_columns();
  void paint_frames(const Column& column);
  void paint_boxes(const Column& column);
  void paint(const Lane& lane);
  void paint(const Lane& lane, const Lane::End& end, double y);

  const schedule::Schedule& s_;
  Svg svg_;
  double y_ = page_margin, width_ = 0, bottom_ = 0;
  Column all_warps_;
  std::vector<const schedule::Role*> roles_;  // those that fill rings first
  std::vector<Column> columns_;
  std::vector<Lane> lanes_;
};

void SchedulePainter::words(const std::string& text, double x, std::string_view style) {
  svg_.text(x, y_, text, style);
  width_ = std::max(width_, x + Svg::text_width(text, letter_size + 1));
}

void SchedulePainter::legend() {
  y_ += 12;
  words(fmt::format("{}: {} threads, {} registers each{}", s_.name, 32 * s_.warps(), s_.launch_registers,
                    s_.cluster > 1 ? fmt::format(", cluster of {}", s_.cluster) : ""),
        page_margin, "font-weight=\"bold\"");
  y_ += 20;
  double x = page_margin;
  for (const KindStyle& kind : kind_styles) {
    svg_.rect({x, y_ - 10, 18, 12}, fmt::format("fill=\"{}\" stroke=\"#777777\"", kind.colour));
    words(std::string(kind.name), x + 23);
    x += 23 + Svg::text_width(kind.name, letter_size + 1) + 18;
  }
  ring_legend();
}

void SchedulePainter::ring_legend() {
  for (std::size_t r = 0; r < s_.rings.size(); ++r) {
    const schedule::Ring& ring = s_.rings[r];
    y_ += 16;
    if (ring.barriers) {
      svg_.line(page_margin, y_ - 4, page_margin + 18, y_ - 4, Lane{static_cast<int>(r), Side::full}.style());
      svg_.line(page_margin + 22, y_ - 4, page_margin + 40, y_ - 4,
                Lane{static_cast<int>(r), Side::empty}.style());
    }
    std::string text = fmt::format("ring {}: depth {}", ring.name, ring.depth);
    if (ring.instances > 1) text += fmt::format(" x {} groups", ring.instances);
    if (ring.barriers)
      text += fmt::format(", full by {} and empty by {} arrivals", ring.full_arrivals, ring.empty_arrivals);
    for (std::size_t i = 0; i < ring.buffers.size(); ++i) {
      const schedule::Buffer& buffer = s_.buffers[static_cast<std::size_t>(ring.buffers[i])];
      text += fmt::format("{}{} of {} bytes", i == 0 ? "; " : ", ", buffer.name, buffer.bytes);
    }
    words(text, page_margin + 48, fmt::format("fill=\"{}\"", ring_colour(static_cast<int>(r))));
  }
  if (s_.rings.empty()) return;
  y_ += 16;
  words("solid: from filling to waiting for full slots; dashed: from releasing to waiting for empty slots",
        page_margin, "fill=\"#555555\"");
}

void SchedulePainter::arrange() {
  for (const schedule::Role& role : s_.roles) roles_.push_back(&role);
  std::stable_partition(roles_.begin(), roles_.end(), [](const auto* role) { return fills(role->events); });
  for (const auto* role : roles_) columns_.push_back(column_of(s_, role->events, head_of(*role)));
  all_warps_ = column_of(s_, s_.prologue, "all warps");
}

void SchedulePainter::find_lanes() {
  for (std::size_t r = 0; r < s_.rings.size(); ++r) {
    for (const Side side : {Side::full, Side::empty}) {
      Lane lane{static_cast<int>(r), side};
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        for (const Item& item : columns_[c].items) {
          const auto end = ring_end_of(*item.event);
          if (end && end->ring == lane.ring && end->side == side) lane.ends.push_back({c, &item, end->waits});
        }
      }
      if (lane.joins()) lanes_.push_back(std::move(lane));
    }
  }
}

// The last column first: those before it stand beside it.
void SchedulePainter::place_columns() {
  place(all_warps_, s_.prologue, page_margin, y_, nullptr);
  const double top = all_warps_.box.y + all_warps_.box.height + 12;
  double x = page_margin;
  std::vector<double> left(columns_.size());
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    int lanes = 0;
    if (c > 0) x += column_distance;
    for (Lane& lane : lanes_) {
      if (lane.gutter() == c) lane.x = x + lane_distance * lanes++;
    }
    if (lanes > 0) x += lane_distance * (lanes - 1) + column_distance;
    left[c] = x;
    x += columns_[c].box.width;
  }
  for (std::size_t c = columns_.size(); c-- > 0;) {
    const Column* beside = c + 1 < columns_.size() ? &columns_.back() : nullptr;
    place(columns_[c], roles_[c]->events, left[c], top, beside);
    bottom_ = std::max(bottom_, columns_[c].box.y + columns_[c].box.height);
  }
  width_ = std::max({width_, x, all_warps_.box.x + all_warps_.box.width});
  bottom_ = std::max(bottom_, top);
}

void SchedulePainter::paint_frames(const Column& column) {
  svg_.rect(column.box, "fill=\"#fbfbfb\" stroke=\"#333333\" rx=\"3\"");
  svg_.text(column.box.x + 8, column.box.y + 15, column.head,
            fmt::format("font-weight=\"bold\" font-size=\"{}\"", letter_size + 1));
  for (const Item& item : column.items) {
    if (!item.is_frame) continue;
    const bool guard = std::holds_alternative<schedule::Guard>(item.event->what);
    svg_.rect(item.box, fmt::format("fill=\"#000000\" fill-opacity=\"0.035\" stroke=\"#888888\" rx=\"3\"{}",
                                    guard ? " stroke-dasharray=\"3 2\"" : ""));
  }
}

void SchedulePainter::paint_boxes(const Column& column) {
  for (const Item& item : column.items) {
    const auto& style = kind_styles[static_cast<std::size_t>(kind_of(*item.event))];
    if (!item.is_frame)
      svg_.rect(item.box,
                fmt::format("fill=\"{}\" stroke=\"#999999\" stroke-width=\"0.6\" rx=\"2\"", style.colour));
    double y = item.box.y;
    for (const std::string& line : item.lines)
      svg_.text(item.box.x + 6, y += line_height, line, item.is_frame ? "font-weight=\"bold\"" : "");
    if (!item.at.empty())
      svg_.text(item.box.x + item.box.width - 5, item.box.y + line_height, item.at,
                fmt::format("text-anchor=\"end\" fill=\"#555555\" font-size=\"{}\"", small_size));
  }
}

// Ends of different kinds are at different heights of a box, so that lines of boxes side by side stay apart.
double end_height(const Lane& lane, const Lane::End& end) {
  const double shift = (lane.side == Side::full ? -3.75 : 3.75) + (end.waits ? 1.25 : -1.25);
  return end.item->box.y + end.item->box.height / 2 + shift;
}

void SchedulePainter::paint(const Lane& lane, const Lane::End& end, double y) {
  const Box& box = end.item->box;
  const double x = end.column < lane.gutter() ? box.x + box.width : box.x;
  svg_.line(lane.x, y, x, y, lane.style());
  const std::string filled = fmt::format("fill=\"{}\"", ring_colour(lane.ring));
  svg_.circle(lane.x, y, 1.8, filled);
  if (!end.waits) return;
  const double back = x < lane.x ? 6 : -6;
  svg_.path(fmt::format("M{0} {1}l{2} -3v6z", Svg::number(x), Svg::number(y), Svg::number(back)), filled);
}

void SchedulePainter::paint(const Lane& lane) {
  double first = bottom_, last = 0;
  for (const Lane::End& end : lane.ends) {
    const double y = end_height(lane, end);
    first = std::min(first, y), last = std::max(last, y);
    paint(lane, end, y);
  }
  svg_.line(lane.x, first, lane.x, last, lane.style());
}

std::string SchedulePainter::picture() {
  svg_.begin_group(fmt::format("font-size=\"{}\"", letter_size + 1));
  legend();
  svg_.end_group();
  y_ += 14;
  arrange();
  find_lanes();
  place_columns();
  svg_.begin_group(fmt::format("font-size=\"{}\"", letter_size));
  paint_frames(all_warps_);
  for (const Column& column : columns_) paint_frames(column);
  for (const Lane& lane : lanes_) paint(lane);
  paint_boxes(all_warps_);
  for (const Column& column : columns_) paint_boxes(column);
  svg_.end_group();
  return svg_.document(width_ + page_margin, bottom_ + page_margin, s_.name);
}

}  // namespace

std::string schedule_picture(const schedule::Schedule& schedule) {
  return SchedulePainter(schedule).picture();
}

}  // namespace tegula::shown
