// A schedule as a picture: a column for each role, its events from top to bottom, and the rings as lines from
// filling to waiting for full slots, and from releasing to waiting for empty slots.
#pragma once
#include <string>

#include "schedule/schedule.hpp"

namespace tegula::shown {

std::string schedule_picture(const schedule::Schedule& schedule);

}  // namespace tegula::shown
