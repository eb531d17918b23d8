// The events of stores by the copy engine, and of sums that are added to tensors in turn. Part of
// build_schedule.
#pragma once
#include <map>

#include "passes/cuda/role_events.hpp"

namespace tegula::passes {

// A fragment to a tensor, or into a sum there.
bool is_engine_store(const ir::Stmt& s);
// The numbers of its boxes are 0, 1, …: they go by way of the warp group's buffers in turn, all at once where
// there is a buffer for each.
int boxes_of_store(const ir::Stmt& s, int consumers);

// The stores of a loop of steps, if there are no others and all of them are copies whose boxes have a buffer
// each and that every step makes once: then each of these stores has buffers of its own, so that none waits
// for the one before it.
ir::Body stores_of_step(const ir::Body& body, int consumers);
// Whether each warp stores what it has put into its buffers by itself, so that the warps of a group do not
// meet between the products of a step.
bool are_stored_by_warps(const ir::Body& stores_of_step);

class StoreEvents {
 public:
  // The ring by which sums are handed over gets the number `ring`.
  StoreEvents(schedule::Schedule& out, ScheduleNames& names, const Roles& roles, const ir::Body& consumer,
              int ring);

  schedule::Events store(const ir::Stmt& s);
  schedule::Events turn(const ir::Stmt& s);
  // What the threads add to a tensor between two turns.
  std::vector<schedule::Access> in_turn(const ir::Stmt& s) const;

  bool hands_over() const { return !handed_.empty(); }
  // Declares the ring: after all others.
  void declare_ring();
  // The events after all blocks, when no more stores follow.
  schedule::Events end() const;
  // A thread for each warp group that waits for the turn, and adds.
  schedule::Role adders(int registers) const;
  // The threads that store.
  schedule::Who storing() const { return by_warps_ ? schedule::Who::each_warp : schedule::Who::leader; }

 private:
  // The threads that count the turns of a tensor.
  enum class Taker : std::uint8_t { adder, groups, threads };

  // The threads that store together meet.
  schedule::Event meeting(const ir::Stmt& s) const;
  void stage(const ir::Stmt& s, const ir::BufferPtr& from, int first, int count, schedule::Events& out);
  void by_itself(const ir::Stmt& s, schedule::Events& out);
  void hand_over(const ir::Stmt& s, schedule::Events& out);
  schedule::Events given(const ir::Stmt& s) const;
  // Which of the words of what is handed over count the turns of the statement.
  int pair_of(const ir::Stmt& s) const;
  schedule::Access words(const ir::Accumulate& sum, Taker taker);
  schedule::Access words(const ir::BufferPtr& tensor, Taker taker);
  // A box of the sum that these words count.
  static schedule::Access contribution(schedule::Access words, int box);
  int staging();
  int buffer_of(const ir::Stmt& s, int box) const;
  int sent_since(const ir::Stmt& s) const;

  schedule::Schedule& out_;
  ScheduleNames& names_;
  const Roles& roles_;
  const int ring_;
  int staging_ = -1, handed_words_ = -1;
  std::map<std::pair<const ir::Buffer*, Taker>, int> words_;  // buffers; after each the sums that it counts
  const ir::Body apart_;                                      // stores with buffers of their own
  const bool by_warps_;                                       // each warp stores its part of them
  ir::Body handed_;  // that a warp group hands over: they add to one tensor in equal boxes
  std::optional<schedule::Access> open_turn_;
};

}  // namespace tegula::passes
