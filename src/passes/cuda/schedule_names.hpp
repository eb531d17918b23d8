// What the events of a schedule name: buffers, the slots of rings, and how often a loop or a branch is taken.
// Part of build_schedule.
#pragma once
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "passes/cuda/build_schedule.hpp"
#include "schedule/build.hpp"

namespace tegula::passes {

// Buffers and trip counts of the schedule, common to both roles.
class ScheduleNames {
 public:
  ScheduleNames(schedule::Schedule& out, const Roles& roles, const ConsumerProgram& program);

  int buffer(const ir::BufferPtr& b);
  bool is_ring(const ir::Buffer* b) const { return roles_.ring_of(program_.in_ring(b)) >= 0; }
  bool is_told(const ir::Buffer* b) const { return roles_.is_told(roles_.ring_of(program_.in_ring(b))); }
  bool is_message(const ir::Buffer* b) const { return roles_.dealt && roles_.dealt->messages.contains(b); }
  // All steps of a loop of the producer.
  schedule::Count steps(const ir::For& loop);
  schedule::Count steps(const ir::While& loop);
  // The steps of a loop that only the consumers have.
  schedule::Count repeated(const ir::StmtNode& loop) { return add(&loop, 0, {"steps"}); }
  schedule::Count first(const ir::For& loop) { return variable(&*loop.index[0], loop, 0); }
  schedule::Count rest(const ir::For& loop) { return variable(&*loop.index[0], loop, 1); }
  // The steps of a loop whose steps may be divided between two loops.
  schedule::Count all_of_rest(const ir::For& loop);
  schedule::Count taken(const ir::If& branch);
  // What leaves a loop after some of its events; nothing where a loop over chosen steps has no further one.
  std::optional<schedule::Leave> leaves(const ir::Stmt& s);
  schedule::Access access(const ir::BufferPtr& b, schedule::Touch touch);
  // The access to some sixteenths of a fragment.
  schedule::Access part(const ir::BufferPtr& b, schedule::Touch touch, int first, int last);

 private:
  schedule::Count variable(const void* key, const ir::For& loop, int part);
  schedule::Count add(const void* key, int part, const schedule::Variable& v);

  schedule::Schedule& out_;
  const Roles& roles_;
  const ConsumerProgram& program_;
  std::unordered_set<const ir::Variable*> peeled_;
  std::unordered_map<const ir::Variable*, const ir::Variable*> continued_;
  std::unordered_map<const ir::Buffer*, int> buffers_;
  std::vector<std::pair<std::pair<const void*, int>, int>> variables_;
  std::unordered_set<const ir::ExprNode*> of_steps_;  // conditions of branches that stand in steps of loops
  std::unordered_set<const ir::ExprNode*> leaving_;   // conditions that leave loops with loads
};

}  // namespace tegula::passes
