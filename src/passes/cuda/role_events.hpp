// The events of each role of a block, before they are put around blocks. Part of build_schedule.
#pragma once
#include "passes/cuda/schedule_names.hpp"

namespace tegula::passes {

// An event that comes from a statement.
schedule::Event event_of(schedule::What what, const ir::Stmt& s, schedule::Who who = schedule::Who::all,
                         const std::string& name = "");

// Ping-pong of warp groups that issue products: waits for its own turn, or hands over to the one that
// follows.
schedule::Event ping_pong_barrier(int group, bool wait);

class StoreEvents;
schedule::Events consumer_events(ScheduleNames& names, StoreEvents& stores, const Roles& roles,
                                 const ConsumerProgram& program, const StepParts& parts);
schedule::Events producer_events(ScheduleNames& names, const Roles& roles);
schedule::Events transposer_events(ScheduleNames& names, const Roles& roles);

}  // namespace tegula::passes
