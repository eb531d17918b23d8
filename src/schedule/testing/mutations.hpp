// Schedules with one event removed or weakened: what the verifier must reject. The only test of fences, since
// no tool sees the proxies.
#pragma once
#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace tegula::schedule {

struct Mutation {
  std::string name;  // role, place, event, change
  Schedule schedule;
};

// Mutations of every event that synchronises, and of every count of a ring.
std::vector<Mutation> mutations(const Schedule& schedule);

// Every wait, fence, barrier and turn, moved after the next event of its list that touches memory, if one
// does before the list ends.
std::vector<Mutation> moves(const Schedule& schedule);

}  // namespace tegula::schedule
