// A schedule as a picture: a column for each role, its events from top to bottom, and the rings as lines
// from who fills to who waits for full slots, and from who releases to who waits for empty ones.
#pragma once
#include <string>

#include "schedule/schedule.hpp"

namespace tegula::shown {

std::string schedule_picture(const schedule::Schedule& schedule);

}  // namespace tegula::shown
