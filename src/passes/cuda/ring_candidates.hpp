// Shared tiles that a producer could load.
#pragma once
#include <unordered_set>

#include "ir/stmt.hpp"
#include "passes/planned.hpp"

namespace tegula::passes {

struct RingCandidate {
  ir::BufferPtr tile;
  std::vector<ir::Stmt> fills;  // of all its rows, each once
  const ir::Body* scope = nullptr;
  int stages = 0;          // asked for by the loop; 0: the compiler chooses
  bool pipelined = false;  // the scope is the body of a pipelined loop
  Loc loop_at = {};        // of that
};

// The statements that fill the tiles.
std::unordered_set<const ir::StmtNode*> fills_of(const std::vector<RingCandidate>& candidates);
// Whether the rows that the copies fill make up the tile.
bool fill_all(const RingCandidate& c);
// Whether the producer reads some rows of the tile before others are filled.
bool reads_between(const ir::Body& producer, const RingCandidate& c);
// Whether the copy engine or asynchronous copies may bring the tile, which then is still on its way when the
// statement that brings it is over. `is_operand`: tensor cores read it.
bool may_come_late(const RingCandidate& c, bool is_operand);

// Why threads cannot begin what the statement copies and go on; empty if they can.
Reason reason_to_wait(const ir::Stmt& s);

}  // namespace tegula::passes
