// The tile IR: immutable, reference-counted nodes, each with the user's source line.
//
// What a kernel means. Every executor keeps to this text; the interpreter is its executable form.
//
// Order. A kernel is a list of grids, run one after the other: what one writes, the next sees. The blocks of
//   a grid are independent and run in any order, also at the same time. The body of a block, read from top to
//   bottom, runs in that order. The iterations of `parallel`, and the instances of `each_group`, are
//   independent like blocks: two of them may not touch the same element when one of them writes it, atomics
//   apart. `pipelined`, `unrolled` and every grid option change speed, never results.
// Values. Expressions are pure: memory is read by `Load`, mutable variables by a `Let` whose value is that
//   variable, each at its place in the program. A `Let` computes its value once.
// Types. Values exist in f32, f64, i32, i64, u32 and bool. Elements of smaller types are widened when loaded
//   and rounded when stored: to nearest even for floats (fp8 saturates to the largest finite value, infinities
//   included, and keeps NaN), modulo 2^n for integers. Float to integer truncates and saturates, NaN gives 0.
//   A cast to a small type rounds the value to that type and continues in the type it is computed in; to a small
//   float it goes by way of f32. Numbers other than zero are true.
// Floats. f32 operations are rounded to f32; a multiplication and an addition may be contracted into one
//   fused operation. `min` and `max` return the other operand when one is NaN. Comparisons with NaN are false
//   except `!=`. `round` goes to the nearest integer, ties to even. Elementary functions are accurate to 4
//   units in the last place; f32 `exp2` below 2^-126 may be 0. Sums of `gemm` and `reduce_sum` accumulate in
//   the destination's type in an unspecified order.
// Integers. Overflow wraps; in i32 and i64 it is an error in the interpreter. `div` and `mod` truncate,
//   `floordiv` and `floormod` round down, `ceildiv` rounds up; division by zero is invalid (see below), and the
//   smallest integer divided by -1 wraps. A shift count outside [0, width) gives 0 (for `shr` of a negative
//   number, -1).
// Bounds of tensors. An element outside the view (any dimension, of any slice that made the view, and of the
//   tensor itself) reads as zero, or as the `fill` of the copy; a store to it is dropped.
// Bounds of tiles. A load outside a tile gives an invalid value; a store outside is an error.
// Invalid values. A load outside a tile, of an element that nothing has written, and a division by zero give
//   an invalid value. Arithmetic with it is invalid. `select`, `logical_and` and `logical_or` evaluate all their
//   sides and drop the one that does not count (the arm not chosen; the right side when the left decides).
//   An invalid value that reaches a store to a tensor, an index, an extent, a branch, an assertion or an atomic
//   is an error. Stored to a tile it makes that element undefined. Copies carry undefined elements between
//   tiles; a copy of one to a tensor, or its use by gemm or a reduction, is an error.
//   The interpreter reports these errors. Other executors may compute with any value in its place, but never
//   touch memory outside the tensor, tile or variable.
// Tiles. A tile declared in a loop body is a fresh, undefined one in every iteration.
// Atomics. `Atomic` and an `Accumulate` without order combine with the element in any order, so a float sum is
//   defined up to rounding. With `order`, the contributions to an element are added in increasing order value;
//   two contributions with one order value to one element are an error. Within one grid a tensor region that is
//   accumulated into is not read or written otherwise.
// Aliasing. Tensors of one call share no byte if one of them is written, unless `may_alias` names them both. A
//   tensor that a grid both reads and writes is read by a block only where no other block writes.
#pragma once
#include "ir/expr.hpp"
#include "ir/kernel.hpp"
#include "ir/stmt.hpp"
#include "ir/view.hpp"
