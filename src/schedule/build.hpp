// Writes schedules: each call appends one event to the current body.
#pragma once
#include <functional>
#include <utility>

#include "schedule/schedule.hpp"

namespace tegula::schedule {

Count operator+(Count a, const Count& b);
Count operator*(const Count& a, const Count& b);

inline Instance own() { return {Instance::Kind::own, 0}; }
inline Instance of_group(int group) { return {Instance::Kind::fixed, group}; }
inline Slot at_cursor(int ring, int shift = 0) { return {Slot::Kind::cursor, ring, shift}; }
inline Slot at_turn(int words) { return {Slot::Kind::turn, words, 0}; }
inline Slot at(int slot) { return {Slot::Kind::fixed, slot, 0}; }

inline Access read(int buffer, Slot slot = {}, Instance instance = {}, Parts parts = {}) {
  return {buffer, Touch::read, slot, instance, parts};
}
inline Access write(int buffer, Slot slot = {}, Instance instance = {}, Parts parts = {}) {
  return {buffer, Touch::write, slot, instance, parts};
}
inline Access update(int buffer, Slot slot = {}, Instance instance = {}, Parts parts = {}) {
  return {buffer, Touch::update, slot, instance, parts};
}
inline Access add(int buffer, Slot slot = {}, Instance instance = {}, Parts parts = {}) {
  return {buffer, Touch::add, slot, instance, parts};
}

class Builder {
 public:
  using Body = std::function<void()>;

  explicit Builder(std::string name) { schedule_.name = std::move(name); }
  Schedule& schedule() { return schedule_; }
  Schedule take() { return std::move(schedule_); }

  Count variable(const Variable& variable);
  int buffer(Buffer buffer);
  int ring(Ring ring);
  void prologue(const Body& body);
  void role(Role role, const Body& body);

  Event& emit(What what, Who who = Who::all, std::string name = "");
  void loop(std::string name, Count count, const Body& body);
  void tiles(const Body& body);
  void forever(const Body& body);
  void guard(Guard::Kind kind, std::string name, const Body& body);
  void only(Who who, const Body& body);

  void operation(std::string name, std::vector<Access> accesses, Who who = Who::all);
  // fence, gemm, commit
  void gemm(const std::string& name, std::vector<Access> accesses);

 private:
  void nested(Event event, Events& (*body_of)(Event&), const Body& body);

  Schedule schedule_;
  Events* open_ = nullptr;
};

}  // namespace tegula::schedule
