#include "show/schedule_columns.hpp"

#include <algorithm>

#include "ir/effects.hpp"

namespace tegula::shown {
namespace {

using schedule::Event;
using schedule::Events;
using schedule::Side;

constexpr std::size_t letters_of_line = 56;
constexpr double gap = 3, indent = 9, head_height = 24, longest_gap = 200;

const Events* body_of(const Event& event) {
  if (const auto* loop = std::get_if<schedule::Loop>(&event.what)) return &loop->body;
  if (const auto* guard = std::get_if<schedule::Guard>(&event.what)) return &guard->body;
  return nullptr;
}

// Operations are told apart by the statements they come from.
EventKind kind_of_statement(const ir::Stmt& stmt) {
  if (!stmt) return EventKind::work;
  if (ir::as<ir::Turn>(stmt)) return EventKind::turn;
  return ir::all_effects(stmt).writes_tensors() ? EventKind::store : EventKind::work;
}

std::vector<std::string> wrapped(const std::string& words) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (words.size() - begin > letters_of_line) {
    std::size_t end = words.rfind(' ', begin + letters_of_line);
    if (end == std::string::npos || end <= begin) end = words.find(' ', begin + letters_of_line);
    if (end == std::string::npos) break;
    lines.push_back(words.substr(begin, end - begin));
    begin = end + 1;
  }
  lines.push_back(words.substr(begin));
  return lines;
}

void collect(const schedule::Schedule& s, const Events& events, std::vector<Item>& items) {
  for (const Event& e : events) {
    const std::string words = schedule::print(s, e);
    if (words.empty()) continue;
    const Events* body = body_of(e);
    items.push_back({&e, wrapped(words), e.at ? short_location(*e.at) : "", {}, body != nullptr});
    if (body) collect(s, *body, items);
  }
}

int depth_of(const Events& events) {
  int deepest = 0;
  for (const Event& e : events) {
    if (const Events* body = body_of(e)) deepest = std::max(deepest, 1 + depth_of(*body));
  }
  return deepest;
}

double height_of(const Item& item) {
  return box_padding + line_height * static_cast<double>(item.lines.size());
}

// The first event of the column that waits for a full slot of the ring.
std::optional<double> first_wait(const Column* column, int ring) {
  if (!column) return std::nullopt;
  for (const Item& item : column->items) {
    const auto end = ring_end_of(*item.event);
    if (end && end->ring == ring && end->side == Side::full && end->waits) return item.box.y;
  }
  return std::nullopt;
}

class Placing {
 public:
  Placing(Column& column, const Column* beside) : column_(column), beside_(beside) {}

  // From `next_` on as many items as there are events; returns where they end.
  double events(const Events& all, Box space) {
    for (const Event& e : all) {
      if (next_ == column_.items.size() || column_.items[next_].event != &e) continue;  // says nothing
      Item& item = column_.items[next_++];
      space.y += lowered(e, space.y);
      item.box = {space.x, space.y, space.width, height_of(item)};
      if (const Events* body = body_of(e)) item.box.height = frame(*body, item.box);
      space.y += item.box.height + gap;
    }
    return space.y;
  }

 private:
  double frame(const Events& body, const Box& head) {
    const double top = head.y + head.height;
    return events(body, {head.x + indent, top, head.width - 1.5 * indent, 0}) + 1 - head.y;
  }

  // The distance by which the event is lowered, to shorten the line to the role that waits for it.
  double lowered(const Event& e, double y) const {
    const auto end = ring_end_of(e);
    if (!end || end->side == Side::full || !end->waits) return 0;
    const double way = first_wait(beside_, end->ring).value_or(y) - y;
    return way > 0 && way < longest_gap ? way : 0;
  }

  Column& column_;
  const Column* beside_;
  std::size_t next_ = 0;
};

}  // namespace

EventKind kind_of(const Event& event) {
  using namespace schedule;
  return std::visit(ir::Overloaded{
                        [&](const Operation&) { return kind_of_statement(event.stmt); },
                        [](const schedule::Gemm&) { return EventKind::gemm; },
                        [](const GemmFence&) { return EventKind::gemm; },
                        [](const GemmCommit&) { return EventKind::gemm; },
                        [](const GemmWait&) { return EventKind::wait; },
                        [](const WaitFull&) { return EventKind::wait; },
                        [](const Acquire&) { return EventKind::wait; },
                        [](const CopyWait&) { return EventKind::wait; },
                        [](const StoreWait&) { return EventKind::wait; },
                        [](const Arrive&) { return EventKind::release; },
                        [](const CopyArrive&) { return EventKind::release; },
                        [](const Expect&) { return EventKind::load; },
                        [](const schedule::Load&) { return EventKind::load; },
                        [](const Complete&) { return EventKind::load; },
                        [](const CopyAsync&) { return EventKind::load; },
                        [](const CopyCommit&) { return EventKind::load; },
                        [](const schedule::Store&) { return EventKind::store; },
                        [](const StoreCommit&) { return EventKind::store; },
                        [](const Barrier& x) { return x.per_group ? EventKind::turn : EventKind::other; },
                        [](const NextTile&) { return EventKind::turn; },
                        [](const SendTile&) { return EventKind::turn; },
                        [](const ReceiveTile&) { return EventKind::turn; },
                        [](const WaitTurn&) { return EventKind::turn; },
                        [](const PassTurn&) { return EventKind::turn; },
                        [](const Leave&) { return EventKind::turn; },
                        [](const auto&) { return EventKind::other; },
                    },
                    event.what);
}

std::optional<RingEnd> ring_end_of(const Event& event) {
  if (const auto* x = std::get_if<schedule::WaitFull>(&event.what))
    return {{x->place.ring, Side::full, true}};
  if (const auto* x = std::get_if<schedule::Acquire>(&event.what))
    return {{x->place.ring, Side::empty, true}};
  if (const auto* x = std::get_if<schedule::Arrive>(&event.what)) return {{x->place.ring, x->side, false}};
  if (const auto* x = std::get_if<schedule::Load>(&event.what)) return {{x->place.ring, Side::full, false}};
  if (const auto* x = std::get_if<schedule::Complete>(&event.what))
    return {{x->place.ring, Side::full, false}};
  if (const auto* x = std::get_if<schedule::CopyArrive>(&event.what))
    return {{x->place.ring, Side::full, false}};
  return std::nullopt;
}

Column column_of(const schedule::Schedule& schedule, const Events& events, std::string head) {
  Column column{std::move(head), {}, {}};
  collect(schedule, events, column.items);
  double words = 0, places = 0;
  for (const Item& item : column.items) {
    for (const std::string& line : item.lines) words = std::max(words, Svg::text_width(line, letter_size));
    places = std::max(places, Svg::text_width(item.at, small_size));
  }
  column.box.width = words + places + 24 + 1.5 * indent * depth_of(events) + 2 * indent;
  column.box.width = std::max(column.box.width, Svg::text_width(column.head, letter_size + 1) + 16);
  return column;
}

void place(Column& column, const schedule::Events& events, double x, double y, const Column* beside) {
  const double end =
      Placing(column, beside).events(events, {x + indent, y + head_height, column.box.width - 2 * indent, 0});
  column.box = {x, y, column.box.width, end + gap - y};
}

}  // namespace tegula::shown
