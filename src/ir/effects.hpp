// What a statement accesses: the one table that every dependence analysis reads.
#pragma once
#include "ir/visit.hpp"

namespace tegula::ir {

enum class Touch : std::uint8_t {
  read,
  write,    // replaced without being read
  update,   // read and written
  combine,  // read and written indivisibly, in any order with others that combine
};

inline bool is_read(Touch touch) { return touch != Touch::write; }
inline bool is_write(Touch touch) { return touch != Touch::read; }

// One view of one statement. `index` is null when all elements of the view are meant.
struct Region {
  const View* view;
  const std::vector<Expr>* index;
  Touch touch;
};

inline bool is_tensor_write(const Region& r) { return is_write(r.touch) && !r.view->is_tile(); }

struct Effects {
  std::vector<Region> regions;
  Body statements;                    // that the regions point into
  std::vector<VariablePtr> used;      // read by expressions, mutable ones included
  std::vector<VariablePtr> defined;   // by lets, loads, loops
  std::vector<VariablePtr> assigned;  // mutable ones, their first value included
  std::vector<BufferPtr> declared;    // tiles
  bool leaves = false;                // may leave a loop or end the block
  bool reports = false;               // prints or asserts

  bool reads(const BufferPtr& buffer) const;
  bool writes(const BufferPtr& buffer) const;
  bool writes_tensors() const;
};

// The effects of the statement itself, without nested statements.
Effects effects(const Stmt& stmt);
// With nested statements.
Effects all_effects(const Stmt& stmt);
Effects all_effects(const Body& body);

// Whether exchanging two neighbours could change what is read: one writes what the other touches. Tensors
// that `may_alias` names count as different here.
bool conflict(const Effects& a, const Effects& b);

}  // namespace tegula::ir
