// What concerns some rows only is left out by warps, or warp groups, that have none of them.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// If the body of the loop is one branch: the vector element that decides it.
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

// The expressions per warp group, if the warps of each group have equal expressions.
std::vector<Expr> of_groups(const std::vector<Expr>& of_warps) {
  std::vector<Expr> result;
  for (std::size_t w = 0; w < of_warps.size(); ++w) {
    if (w % 4 == 0)
      result.push_back(of_warps[w]);
    else if (!equal(of_warps[w], result.back()))
      return {};
  }
  return result;
}

// The number of bits by which each mask is the previous one shifted left; 0 if the masks are not of this
// form.
int shift_between(const std::vector<Expr>& all) {
  const auto mask = [&](std::size_t i) { return static_cast<std::uint32_t>(constant_value(all[i])); };
  if (!std::all_of(all.begin(), all.end(), [](const Expr& e) { return is_constant(e) && e->type == u32; }))
    return 0;
  for (int bits = 1; bits < 32; ++bits) {
    bool found = true;
    for (std::size_t i = 1; found && i < all.size(); ++i)
      found = mask(i) == mask(i - 1) << bits && mask(i) >> bits == mask(i - 1);
    if (found && mask(0) != 0) return bits;
  }
  return 0;
}

}  // namespace

// Warps and warp groups are counted over the consumers: instances of each_group have others.
passes::Deciders CudaGridPrinter::deciders(const If& n) const {
  if (!is_consumer_ || team_.count > 1) return passes::Deciders::block;
  return passes::deciders(n, team_.threads, layouts_, target_);
}

// One of the expressions, by the number of the thread's unit. Where they differ in constants only, such as
// the bits of a mask, that is one expression.
Expr CudaGridPrinter::of_unit(const std::vector<Expr>& all, passes::Deciders unit) {
  const Expr& first = all[0];
  const auto each = [&](auto condition) { return std::all_of(all.begin(), all.end(), condition); };
  if (each([&](const Expr& e) { return equal(e, first); })) return first;
  if (const auto groups = of_groups(all); unit == passes::Deciders::warps && !groups.empty())
    return of_unit(groups, passes::Deciders::warp_groups);
  const bool alike = each([&](const Expr& e) {
    return e->op == first->op && e->type == first->type && e->args.size() == first->args.size();
  });
  if (alike && !first->args.empty()) {
    std::vector<Expr> args;
    for (std::size_t i = 0; i < first->args.size(); ++i) {
      std::vector<Expr> own;
      for (const Expr& e : all) own.push_back(e->args[i]);
      args.push_back(of_unit(own, unit));
    }
    return with_args(first, std::move(args));
  }
  const auto chosen = std::make_shared<const Variable>(Variable{"own", first->type, VariableKind::index, {}});
  values_.set(chosen, choice(all, unit == passes::Deciders::warps ? "warp" : "warp_group"));
  own_.push_back(chosen);
  return variable(chosen);
}

std::string CudaGridPrinter::choice(const std::vector<Expr>& all, const char* unit) {
  if (const int bits = shift_between(all); bits > 0)
    return fmt::format("({} << {}{})", value(all[0]), bits > 1 ? fmt::format("{} * ", bits) : "", unit);
  std::string text = value(all.back());
  for (std::size_t i = all.size() - 1; i-- > 0;)
    text = fmt::format("({} == {} ? {} : {})", unit, i, value(all[i]), text);
  return text;
}

// Opens a branch around a loop over a matrix if possible; true if it did.
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
  values_.set(load->variable, fmt::format("{}[r]", tile.name));
  out_.line(fmt::format("{} |= {};", any, value(as<If>(n.body[1])->condition)));
  out_.close();
  out_.open(fmt::format("if (tg::any_lane({})) {{", any));
  return true;
}

}  // namespace tegula::codegen
