// What the printer knows at its current position: which threads run there, and where tiles and elements are.
#pragma once
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codegen/cuda/shared_memory.hpp"
#include "codegen/cuda/steps.hpp"
#include "ir/stmt.hpp"
#include "layout/layout.hpp"

namespace tegula::codegen {

// The threads that run a body together: the block, or a group of it.
struct Team {
  int threads = 0;
  std::string thread = "thread";  // the number of a thread among them
  std::string barrier;            // empty: the block's
  int count = 1;                  // of such teams in the block
  std::string slot;               // which of them
};

constexpr int vector_bytes = 16;  // the most that one instruction of a thread moves

// How many elements of a row follow each other in a thread's registers, from a multiple of that on.
// Where rows end within such a run, it is 1, unless runs may be cut.
std::int64_t run_along_rows(const layout::Layout& layout, bool may_be_cut = false);

// What is in shared memory, for the user.
std::string words_of(const ir::Buffer& tile);

// A tile in shared memory.
struct SharedTile {
  std::string name;
  TileOrder order;
  Memory memory;
  bool alternates = false;  // its halves, from step to step of a loop
};

// The operand in the slot at hand, which goes from step to step of a loop with the slot.
struct CarriedOperand {
  const ir::Buffer* tile;
  std::string name, shape;
};

// The text of an expression as a comparison has it on either side.
std::string compared(const ir::Expr& e, const std::string& text);
// The address of an element, by its offset.
std::string element_of(const SharedTile& tile, const std::string& offset);

struct FragmentTile {
  std::string name;
  layout::Layout layout;
  bool is_packed = false;  // pairs of 16-bit floats in words
};

// A ring of slots, as it is named and where it is in shared memory.
struct RingText {
  struct Slots {
    std::int64_t begin, bytes;  // of one
  };
  std::string name;
  std::int64_t barriers = -1;  // of roles
  std::vector<Slots> tiles;
  int depth = 0;  // of a ring of all threads
};

// Names for the coordinates of register `r` in the lines that follow, and for the condition that they exist.
struct Coordinates {
  std::vector<std::string> names;
  std::string inside;  // empty: always
};

// An element that a loop reads in every step: the address, what it held, after which step it ends, how far
// it moves.
struct StepRead {
  ir::VariablePtr index;
  std::string at, ahead, last, stride;
};

// The loop over elements that is being printed.
struct ElementLoop {
  const ir::For* loop = nullptr;
  const layout::Layout* layout = nullptr;  // null: iterations are dealt to the threads
  std::string first;                       // only the first of all replicas stores; empty if there is one
};

// A loop over elements of which some accesses go along rows, each with the name of the elements it loads or
// stores together.
struct Vectors {
  int width = 1;
  std::unordered_map<const ir::StmtNode*, std::string> names;
  std::unordered_set<const ir::StmtNode*> in_parts;  // stores of more than are contiguous in the tile
  std::unordered_set<const ir::StmtNode*> steady;    // loads of one element for all
  std::unordered_set<const ir::StmtNode*> anywhere;  // which rows may begin and end at any element
  std::unordered_set<const ir::StmtNode*> moved;     // stores of what another statement loads, as it is
  int lanes = 1;                                     // neighbours of a warp that have one row's pieces
  std::vector<std::string> conditions;               // under which all elements exist, and are contiguous
};

// What a loop over registers finds for its rows, in arrays with an element for each row of a thread.
struct RowTable {
  std::vector<std::pair<ir::VariablePtr, std::string>> found;  // and the names of their arrays
  std::string exists;                                          // the array of the condition, if rows have one
  std::string row;                                             // of register `r`
};

// The registers of a thread for pieces of rows on their way to it: their declarations, without the number of
// pieces, and the names of what a piece is and of what is known of its row.
struct PieceRegisters {
  Vectors vectors = {};
  std::vector<ir::VariablePtr> kept;
  std::vector<std::string> kept_names = {}, declarations = {};
  std::int64_t words = 0;  // of a piece
};

// What a thread stores at once of a piece of a tile.
inline constexpr int part_elements = 8;  // of 16 bits, in 16 bytes

// Where an element is.
struct GuardedAddress {
  std::string pointer;
  std::string guard;  // a condition without which nothing may be touched; empty if there is none
};

// A product that runs: the registers that get it, and what is done with them then.
struct Flight {
  std::string registers, then;
};

}  // namespace tegula::codegen
