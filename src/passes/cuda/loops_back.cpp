#include "passes/cuda/loops_back.hpp"

#include <algorithm>

#include "ir/affine.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool is_equal(const Expr& a, const Expr& b) {
  if (!a || !b) return !a && !b;
  if (a->type == b->type && has_affine_form(a->held())) return equal(affine(a), affine(b));
  return equal(a, b);
}

bool are_equal(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_equal);
}

bool are_equal(const View& a, const View& b) {
  return a.buffer == b.buffer && are_equal(a.shape, b.shape) &&
         std::equal(a.dims.begin(), a.dims.end(), b.dims.begin(), b.dims.end(),
                    [](const ViewDim& x, const ViewDim& y) {
                      return is_equal(x.offset, y.offset) && is_equal(x.low, y.low) &&
                             is_equal(x.high, y.high) && x.axis == y.axis;
                    });
}

bool is_left_early(const For& loop) {
  bool found = false;
  for_each_stmt(loop.body, [&](const Stmt& s) { found |= as<Break>(s) != nullptr; });
  return found;
}

// Whether both copy the same to tiles of the same form.
bool copy_alike(const Copy& a, const Copy& b) {
  return a.to.buffer->type == b.to.buffer->type && are_equal(a.to.buffer->shape, b.to.buffer->shape) &&
         is_whole(a.to) && is_whole(b.to) && is_equal(a.fill, b.fill) && are_equal(a.from, b.from);
}

// The body with the index in the other direction.
Body from_the_end(const RingLoop& n) {
  const VariablePtr& index = n.loop->index[0];
  const Loc& at = n.loop->end[0]->at;
  const auto less = [&](const Expr& a, const Expr& b) { return make(Op::sub, index->type, {a, b}, at); };
  const Expr last = less(n.loop->end[0], constant(index->type, 1, at));
  return simplify_expressions(substitute(n.bring, {{index, less(last, variable(index, at))}}));
}

}  // namespace

std::optional<Body> copies_again(const RingLoop& first, const RingLoop& second) {
  const For &a = *first.loop, &b = *second.loop;
  if (!is_constant(a.begin[0], 0) || !is_constant(b.begin[0], 0) || !is_equal(a.end[0], b.end[0]) ||
      a.index[0]->type != b.index[0]->type || first.bring.size() != second.bring.size() || is_left_early(a))
    return std::nullopt;
  const Body back = from_the_end(second);
  const Substitution same_index{{b.index[0], variable(a.index[0], a.end[0]->at)}};
  const Body own = substitute(back, same_index);
  Body result;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto *was = as<Copy>(first.bring[i]), *is = as<Copy>(own[i]);
    if (!was || !is || !copy_alike(*was, *is)) return std::nullopt;
    result.push_back(statement(Copy{was->from, is->to, was->fill}, own[i]->at));
  }
  return result;
}

std::vector<BufferPtr> tiles_again(const std::vector<BufferPtr>& tiles, const Body& bring,
                                   const Body& again) {
  std::vector<BufferPtr> result;
  for (const BufferPtr& tile : tiles)
    for (std::size_t i = 0; i < bring.size(); ++i)
      if (as<Copy>(bring[i])->to.buffer == tile) result.push_back(as<Copy>(again[i])->to.buffer);
  return result;
}

}  // namespace tegula::passes
