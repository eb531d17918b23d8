// A schedule prepared for simulation: its warps, their programs, and the numbers of barriers and clocks.
#pragma once
#include "schedule/flatten.hpp"
#include "schedule/schedule.hpp"

namespace tegula::schedule {

// Clock components of a warp.
enum class Queue : std::uint8_t { writes, reads, lane, gemm, store_reads, store_writes, copies };
inline constexpr int queues = 7;
inline constexpr int named_barriers = 16;
inline constexpr int global_slots = 1024;

struct WarpId {
  int role, group, warp;  // warp: within the group
  int cta;
  int in_cta;
};

class Model {
 public:
  explicit Model(const Schedule& schedule);

  const Schedule& schedule() const { return schedule_; }
  int ctas() const { return ctas_; }
  const std::vector<WarpId>& warps() const { return warps_; }
  const std::vector<Step>& program(int role) const { return programs_[role]; }
  int prologue_steps() const { return prologue_steps_; }
  bool has_turns() const { return has_turns_; }

  int component(int warp, Queue queue) const { return components_[warp * queues + static_cast<int>(queue)]; }
  int barrier(int cta, int ring, Side side, int instance, int slot) const;
  int barriers() const { return ctas_ * barriers_per_cta_; }
  int warp_of(int component) const { return warp_of_component_[component]; }  // not of a barrier's
  int barrier_component(int barrier) const { return first_barrier_component_ + barrier; }
  int named_component(int cta, int id) const {
    return first_barrier_component_ + barriers() + cta * named_barriers + id;
  }
  int components() const { return named_component(ctas_, 0); }
  int cell(int warp, int cta, int buffer, int instance, int slot) const;
  int cells() const { return cells_; }

 private:
  void number_components();

  const Schedule& schedule_;
  int ctas_ = 1;
  bool has_turns_ = false;
  std::vector<WarpId> warps_;
  std::vector<std::vector<Step>> programs_;
  int prologue_steps_ = 0;
  std::vector<int> components_;  // per warp and queue; of a queue that its role leaves empty, the last
  std::vector<int> warp_of_component_;
  int first_barrier_component_ = 0;
  std::vector<int> first_barrier_;  // per ring: full barriers, then empty ones
  int barriers_per_cta_ = 0;
  std::vector<int> first_cell_;  // per buffer
  int cells_ = 0;
};

// Whether the role's events contain one of type T.
template <class T>
bool contains(const std::vector<Step>& program) {
  for (const Step& step : program)
    if (std::holds_alternative<T>(step.event->what)) return true;
  return false;
}

}  // namespace tegula::schedule
