// Operators whose tiles the copy engine brings, on tensors with rows that it does not take.
#pragma once
#include <vector>

#include "ops/schema/launch.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

// Copies take their time for all rows, of which lists for few results may choose few. So tensors are copied
// that have not many more elements than the results, unless programs read all of each.
enum class RowsToMove {
  all,    // or none, if one has many more
  few,    // programs bring the rows of the others
  keys,   // of few those that many queries read: programs bring rows of the others, and store results, once
  whole,  // of any number: a copy is several times as fast as threads that load every tile
};

// The tensors of a call with such rows of 16-bit elements, in new tensors whose rows are one behind the
// other: what is read is copied first, what is written last.
class MovedRows {
 public:
  MovedRows(const BoundCall& call, Launch& launch, RowsToMove which);
  bool empty() const { return moved_.empty(); }
  // The tensors of the call, of which some are elsewhere, become those of `op`, another struct of its type.
  void set_tensors(void* op) const;
  void copy_results();

 private:
  struct Moved {
    std::size_t number = 0;  // of the tensor
    Tensor rows;
  };
  void copy(const TensorRef& from, const TensorRef& to);

  const BoundCall& call_;
  Launch& launch_;
  std::vector<Moved> moved_;
};

// The tensors of a listed call as its programs get them, described: copies lie one row behind the other.
Tensors tensors_of_programs(const ListedCall& listed, Tensors tensors);

// What a table runs instead of `run`: for GPUs with copy engine, `run` on such copies. Programs are the same
// wherever rows begin.
template <class Op, void (*run)(const Bound<Op>&, Launch&), RowsToMove which = RowsToMove::all>
void on_moved_rows(const Bound<Op>& c, Launch& launch) {
  MovedRows moved(c.call(), launch, which);
  if (moved.empty() || !launch.runs()) {
    run(c, launch);
  } else {
    Op op = *c;
    moved.set_tensors(&op);
    const BoundCall bound(c.call().schema(), &op);
    Launch inner(bound, Launch::Mode::run);
    run(Bound<Op>(bound), inner);
  }
  moved.copy_results();
}

}  // namespace tegula::ops
