// What the consumers' program says where the steps of its loops are dealt to two warp groups in turn, or
// parts of steps to several.
#pragma once
#include <unordered_map>
#include <unordered_set>

#include "ir/stmt.hpp"
#include "passes/planned.hpp"
#include "schedule/event.hpp"

namespace tegula::passes {

inline constexpr int dealt_groups = 2, threads_of_group = 128;

// How warp groups meet around a statement.
enum class Meeting : std::uint8_t {
  none,
  receive,  // before it the group waits for what the other one leaves in shared memory
  own,      // before it the threads of the group wait for each other
  send,     // behind it the group tells the other one that all is there
  all,      // behind it both wait for each other
};

struct DealtSteps {
  ir::VariablePtr group;  // the number of the warp group that runs the program
  bool of_parts = false;  // each group has a part of every step, not every other step
  std::unordered_map<const ir::StmtNode*, Meeting> meetings;
  // Branches and loops that groups run differently often.
  std::unordered_map<const ir::StmtNode*, schedule::Share> shares;
  // Branches around the loops, taken where there is a step; the loops.
  std::unordered_map<const ir::StmtNode*, const ir::StmtNode*> non_empty;
  // Declarations of tiles of rings that the group does not let go: it does not read them, or the other group
  // is done with them later.
  std::unordered_set<const ir::StmtNode*> kept;
  // Shared tiles in which groups leave what others need.
  std::unordered_set<const ir::Buffer*> messages;
  std::unordered_set<const ir::Buffer*> of_both;  // those of them in which each group has a part
};

// A statement outside of such loops, which all groups run: what leaves anything outside of the block is done
// by the first one. The reason says what no group can do alone.
ir::Stmt by_first_group(const ir::Stmt& s, const ir::VariablePtr& group, Reason& reason);

}  // namespace tegula::passes
