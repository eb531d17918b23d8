// The children of every kind of statement, in the order in which they are evaluated: the one table from which
// walks, rewrites and checks are made. A kind without a row does not compile.
#pragma once
#include <concepts>

#include "ir/stmt.hpp"

namespace tegula::ir {

template <class T, class Node>
concept NodeOf = std::same_as<std::remove_const_t<T>, Node>;

// `f` has: expr (may be null), view, body, define and assign (of a variable), declare (of a tile).
template <class F>
void children(NodeOf<Let> auto& n, F& f) {
  f.expr(n.value);
  f.define(n.variable);
}

template <class F>
void children(NodeOf<Load> auto& n, F& f) {
  f.view(n.from.view);
  for (auto& e : n.from.index) f.expr(e);
  f.define(n.variable);
}

template <class F>
void children(NodeOf<Store> auto& n, F& f) {
  f.view(n.to.view);
  for (auto& e : n.to.index) f.expr(e);
  f.expr(n.value);
}

template <class F>
void children(NodeOf<Declare> auto& n, F& f) {
  f.declare(n.tile);
}

template <class F>
void children(NodeOf<DeclareVar> auto& n, F& f) {
  f.expr(n.value);
  f.define(n.variable);
}

template <class F>
void children(NodeOf<Assign> auto& n, F& f) {
  f.expr(n.value);
  f.assign(n.variable);
}

template <class F>
void children(NodeOf<Atomic> auto& n, F& f) {
  f.view(n.to.view);
  for (auto& e : n.to.index) f.expr(e);
  f.expr(n.value);
}

template <class F>
void children(NodeOf<Copy> auto& n, F& f) {
  f.view(n.from);
  f.view(n.to);
  f.expr(n.fill);
}

template <class F>
void children(NodeOf<Gather> auto& n, F& f) {
  f.view(n.from);
  f.view(n.to);
  f.define(n.index);
  f.body(n.body);
  f.expr(n.row);
}

template <class F>
void children(NodeOf<Fill> auto& n, F& f) {
  f.view(n.to);
  f.expr(n.value);
}

template <class F>
void children(NodeOf<Gemm> auto& n, F& f) {
  f.view(n.a);
  f.view(n.b);
  f.view(n.c);
  if (n.metadata) f.view(*n.metadata);
}

template <class F>
void children(NodeOf<Reduce> auto& n, F& f) {
  f.view(n.from);
  f.view(n.to);
}

template <class F>
void children(NodeOf<Scan> auto& n, F& f) {
  f.view(n.from);
  f.view(n.to);
  if (n.starts) f.view(*n.starts);
}

template <class F>
void children(NodeOf<Accumulate> auto& n, F& f) {
  f.view(n.to);
  f.view(n.tile);
  f.expr(n.order);
  if (!n.turn) return;
  f.view(n.turn->view);
  for (auto& e : n.turn->index) f.expr(e);
}

template <class F>
void children(NodeOf<Turn> auto& n, F& f) {
  f.view(n.word.view);
  for (auto& e : n.word.index) f.expr(e);
  f.expr(n.order);
}

template <class F>
void children(NodeOf<For> auto& n, F& f) {
  for (auto& e : n.begin) f.expr(e);
  for (auto& e : n.end) f.expr(e);
  for (auto& v : n.index) f.define(v);
  f.body(n.body);
}

template <class F>
void children(NodeOf<If> auto& n, F& f) {
  f.expr(n.condition);
  for (auto& e : n.of_rows) f.expr(e);
  if (n.together) f.expr(n.together);
  f.body(n.then);
  f.body(n.otherwise);
}

template <class F>
void children(NodeOf<While> auto& n, F& f) {
  f.body(n.test);
  f.expr(n.condition);
  f.body(n.body);
}

template <class F>
void children(NodeOf<Break> auto& n, F& f) {
  f.expr(n.condition);
}

template <class F>
void children(NodeOf<Exit> auto& n, F& f) {
  f.expr(n.condition);
}

template <class F>
void children(NodeOf<Print> auto& n, F& f) {
  f.expr(n.value);
}

template <class F>
void children(NodeOf<Assert> auto& n, F& f) {
  f.expr(n.condition);
}

// The expressions of a view, null ones left out.
template <class F>
void expressions(NodeOf<View> auto& view, F&& f) {
  for (auto& e : view.shape) f(e);
  for (auto& dim : view.dims) {
    f(dim.offset);
    if (dim.low) f(dim.low);
    if (dim.high) f(dim.high);
  }
  for (auto& e : view.extents) f(e);
}

}  // namespace tegula::ir
