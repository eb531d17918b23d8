// What concerns some rows only is left out by warps, or warp groups, that have none of them.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// Of a loop whose body is one branch, the element of a vector that decides it.
const Load* row_condition(const For& n) {
  if (n.index.size() != 2 || n.body.size() != 2) return nullptr;
  const auto* load = as<Load>(n.body[0]);
  const auto* branch = as<If>(n.body[1]);
  if (!load || !branch || !branch->otherwise.empty()) return nullptr;
  const Buffer& tile = *load->from.view.buffer;
  bool own = tile.space == Space::fragment && tile.rank() == 1;
  for_each_variable(branch->condition, [&](const VariablePtr& v) { own &= v == load->variable; });
  return own ? load : nullptr;
}

}  // namespace

// One of the expressions, by the number of the warp group. Where they differ in constants only, such as the
// bits of a mask, that is one expression.
Expr CudaGridPrinter::by_warp_group(const std::vector<Expr>& all) {
  const Expr& first = all[0];
  const auto each = [&](auto condition) { return std::all_of(all.begin(), all.end(), condition); };
  if (each([&](const Expr& e) { return equal(e, first); })) return first;
  const bool alike = each([&](const Expr& e) {
    return e->op == first->op && e->type == first->type && e->args.size() == first->args.size();
  });
  if (alike && !first->args.empty()) {
    std::vector<Expr> args;
    for (std::size_t i = 0; i < first->args.size(); ++i) {
      std::vector<Expr> own;
      for (const Expr& e : all) own.push_back(e->args[i]);
      args.push_back(by_warp_group(own));
    }
    return with_args(first, std::move(args));
  }
  std::string text = value(all.back());
  for (std::size_t i = all.size() - 1; i-- > 0;)
    text = fmt::format("(warp_group == {} ? {} : {})", i, value(all[i]), text);
  const auto chosen = std::make_shared<const Variable>(Variable{"own", first->type, VariableKind::index, {}});
  variables_[chosen.get()] = text;
  own_.push_back(chosen);
  return variable(chosen);
}

// Of a loop over a matrix; true if a branch was opened.
bool CudaGridPrinter::open_row_guard(const For& n) {
  const Load* load = row_condition(n);
  if (!load) return false;
  const Buffer* vector = load->from.view.buffer.get();
  const FragmentTile& tile = fragments_.at(vector);
  // Its own registers tell a thread nothing where it reads other elements, or none; see is_direct().
  if (shared_.contains(vector) || tile.is_packed || tile.layout.overhangs(0)) return false;
  if (!(compute_type(vector->type) == vector->type)) return false;
  const std::string any = names_.unique("any");
  out_.line(fmt::format("bool {} = false;", any));
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", tile.layout.register_count()));
  variables_[load->variable.get()] = fmt::format("{}[r]", tile.name);
  out_.line(fmt::format("{} |= {};", any, value(as<If>(n.body[1])->condition)));
  out_.close();
  out_.open(fmt::format("if (tg::any_lane({})) {{", any));
  return true;
}

}  // namespace tegula::codegen
