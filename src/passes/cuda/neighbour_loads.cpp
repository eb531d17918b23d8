#include "passes/cuda/neighbour_loads.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int bytes_of_piece = 16;

// A load of a tensor's element, by what it is behind in its row: a sum, and a number.
struct RowElement {
  const StmtNode* stmt;
  const Access* access;
  std::vector<Expr> rows;  // the other coordinates
  Affine base;
  std::int64_t behind;
};

std::optional<RowElement> row_element(const Stmt& s) {
  const auto* load = as<Load>(s);
  if (!load || load->from.view.is_tile() || !is_own_shape(load->from.view)) return std::nullopt;
  std::vector<Expr> at = coordinates(load->from);
  if (at.empty() || !has_affine_form(at.back()->held())) return std::nullopt;
  bool changes = false;
  for (const Expr& e : at)
    for_each_variable(e, [&](const VariablePtr& v) { changes |= v->kind == VariableKind::mutable_; });
  if (changes) return std::nullopt;
  RowElement result{s.get(), &load->from, {}, affine(at.back()), 0};
  std::swap(result.base.constant, result.behind);
  at.pop_back();
  result.rows = std::move(at);
  return result;
}

bool lie_in_one_row(const RowElement& a, const RowElement& b) {
  const View &x = a.access->view, &y = b.access->view;
  if (x.buffer != y.buffer || !equal(a.base, b.base)) return false;
  for (std::size_t d = 0; d < x.dims.size(); ++d)
    if (!equal(x.dims[d].low, y.dims[d].low) || !equal(x.dims[d].high, y.dims[d].high)) return false;
  return equal(a.rows, b.rows);
}

// Whether pieces of that width are inside of all limits or outside, and begin where vectors may.
bool has_whole_pieces(const RowElement& e, std::int64_t width, const Facts& facts) {
  const auto is_whole = [&](const Expr& limit) {
    return !limit || (has_affine_form(limit->held()) && divisor(affine(limit), facts) % width == 0);
  };
  const ViewDim& dim = e.access->view.dims.back();
  return divisor(e.base, facts) % width == 0 && is_whole(e.access->view.shape.back()) && is_whole(dim.low) &&
         is_whole(dim.high);
}

Access moved_along(const Access& access, std::int64_t by) {
  Access result = access;
  Expr& offset = result.view.dims.back().offset;
  const DType type = offset->held();
  offset = simplify(make(Op::add, type, {offset, constant(type, by)}, offset->at), Facts());
  return result;
}

class NeighbourPieces {
 public:
  NeighbourPieces(const Body& body, const Facts& facts) : facts_(facts) {
    for (const Stmt& s : body) {
      if (auto element = row_element(s)) elements_.push_back(std::move(*element));
      const Effects e = all_effects(s);
      if (e.writes_tensors() || e.leaves) break;
    }
  }

  PieceLoads run() {
    for (const RowElement& e : elements_) {
      const int most = bytes_of_piece / e.access->view.buffer->type.bytes();
      for (int width = most; width > 1 && !result_.loads.contains(e.stmt); width /= 2) add(e, width);
    }
    return std::move(result_);
  }

 private:
  // The piece of that width with the element, if all of it is loaded.
  void add(const RowElement& e, int width) {
    if (!has_whole_pieces(e, width, facts_)) return;
    const std::int64_t begin = floordiv(e.behind, width) * width;
    std::vector<const RowElement*> all(static_cast<std::size_t>(width));
    for (const RowElement& other : elements_) {
      const std::int64_t at = other.behind - begin;
      if (at < 0 || at >= width || result_.loads.contains(other.stmt) || !lie_in_one_row(e, other)) continue;
      if (!all[static_cast<std::size_t>(at)]) all[static_cast<std::size_t>(at)] = &other;
    }
    if (std::count(all.begin(), all.end(), nullptr) > 0) return;
    for (int at = 0; at < width; ++at)
      result_.loads.emplace(all[static_cast<std::size_t>(at)]->stmt,
                            PieceLoads::Part{result_.pieces.size(), at});
    result_.pieces.push_back({moved_along(*e.access, begin - e.behind), width});
  }

  static std::int64_t floordiv(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0); }

  const Facts& facts_;
  std::vector<RowElement> elements_;
  PieceLoads result_;
};

}  // namespace

PieceLoads piece_loads(const Body& body, const Facts& facts) { return NeighbourPieces(body, facts).run(); }

}  // namespace tegula::passes
