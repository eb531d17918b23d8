// Positions of the events of a schedule in its picture. Part of schedule_picture.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/schedule.hpp"
#include "show/svg.hpp"

namespace tegula::shown {

// What events are coloured by.
enum class EventKind : std::uint8_t { load, gemm, wait, release, work, store, turn, other };
inline constexpr int event_kinds = 8;
EventKind kind_of(const schedule::Event& event);

// The end of a ring's line that an event is.
struct RingEnd {
  int ring;
  schedule::Side side;
  bool waits;
};
std::optional<RingEnd> ring_end_of(const schedule::Event& event);

// An event as a box; a loop or a guard as a frame around those that are within.
struct Item {
  const schedule::Event* event;
  std::vector<std::string> lines;
  std::string at;  // line of the user's program
  Box box;
  bool is_frame = false;
};

struct Column {
  std::string head;
  Box box{};
  std::vector<Item> items;  // frames before what they hold
};

inline constexpr double letter_size = 10, small_size = 8.5, line_height = 12, box_padding = 4;

// Events of a role, or of all warps, with their words; placed by `place`.
Column column_of(const schedule::Schedule& schedule, const schedule::Events& events, std::string head);
// Gives every item its box and the column its height. An event that waits for an empty slot is lowered to
// where `beside` first waits for a full one of its ring, if there is such a column and that is near.
void place(Column& column, const schedule::Events& events, double x, double y, const Column* beside);

}  // namespace tegula::shown
