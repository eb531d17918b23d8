// Loops, branches and grids as context managers.
#include <fmt/format.h>

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "lang.hpp"
#include "lang/scopes.hpp"

namespace tegula::python::language {

using lang::Operand;
using lang::Scope;

namespace {

// Where blocks are that nothing has opened yet, by number.
std::map<int, Loc>& unopened() {
  static std::map<int, Loc> blocks;
  return blocks;
}

// What `with` opens and closes.
struct Block {
  std::function<Scope()> opening;
  std::optional<Scope> scope = {};
  int number = added();

  static int added() {
    static int last = 0;
    unopened().emplace(++last, here().at);
    return last;
  }
};

nb::object enter(Block& block) {
  if (block.scope || !block.opening) throw nb::type_error("a loop or branch is entered twice");
  unopened().erase(block.number);
  block.scope.emplace(std::exchange(block.opening, nullptr)());
  const std::vector<lang::Index>& indices = block.scope->indices();
  if (indices.empty()) return nb::none();
  if (indices.size() == 1) return nb::cast(lang::Expr(indices.front()));
  nb::list all;
  for (const lang::Index& index : indices) all.append(lang::Expr(index));
  return nb::tuple(all);
}

bool leave(Block& block, nb::handle error, nb::handle, nb::handle) {
  std::optional<Scope> scope = std::exchange(block.scope, std::nullopt);
  if (error.is_none() && scope) scope->close();
  return false;
}

lang::Range range_of(const nb::args& ends, const Here& at) {
  if (ends.size() == 1) return {Operand(0, at.at), operand(ends[0], at)};
  if (ends.size() == 2) return {operand(ends[0], at), operand(ends[1], at)};
  throw nb::type_error(
      fmt::format("a loop takes its count, or begin and end; given {} values", ends.size()).c_str());
}

Block loop(lang::detail::Loop kind, const nb::args& ends, int stages) {
  return {[kind, range = range_of(ends, here()), stages] { return lang::open_loop(kind, range, stages); }};
}

Block parallel(const nb::args& extents) {
  const Here at = here();
  std::vector<Operand> all;
  if (extents.size() == 1 && nb::isinstance<lang::Tile>(extents[0])) {
    const auto& tile = nb::cast<const lang::Tile&>(extents[0]);
    for (const int extent : tile.shape()) all.emplace_back(extent, at.at);
  } else {
    all = operands(extents, at);
  }
  if (all.empty() || all.size() > 3)
    throw nb::type_error(
        fmt::format("parallel() takes one to three extents, or a tile of so many dimensions; "
                    "given {}",
                    all.size())
            .c_str());
  return {[all, at] { return lang::open_parallel(all, at.at); }};
}

// The order of blocks, as lang.py describes it: (kind, rows, cost, together).
lang::Order order_of(nb::handle order) {
  const auto kind = nb::cast<std::string>(nb::str(order[0]));
  if (kind == "row") return lang::Order::row();
  if (kind == "column") return lang::Order::column();
  if (kind == "grouped") return lang::Order::grouped(nb::cast<int>(order[1]));
  lang::Order result{lang::Order::Kind::heavy_first, 0, {}, {}};
  const nb::object cost = order[2], together = order[3];
  result.cost = [cost](const std::vector<lang::Index>& indices) -> lang::Expr {
    nb::list all;
    for (const lang::Index& index : indices) all.append(lang::Expr(index));
    return operand(cost(*nb::tuple(all)), here());
  };
  if (!together.is_none()) result.together = [together] { return operand(together, here()); };
  return result;
}

Block grid(nb::handle extents, int threads, bool persistent, nb::handle order, int cluster,
           int blocks_per_processor) {
  const std::vector<Operand> all = operands(extents, here());
  if (all.empty() || all.size() > 3)
    throw nb::type_error(fmt::format("grid() takes one to three extents, given {}", all.size()).c_str());
  lang::GridOptions options;
  options.threads = threads;
  options.persistent = persistent;
  if (!order.is_none()) options.order = order_of(order);
  options.cluster = cluster;
  options.blocks_per_processor = blocks_per_processor;
  return {[all, options] { return lang::open_grid(all, options); }};
}

// The branch that otherwise() may follow.
void* last_branch = nullptr;

Block when(nb::handle condition) {
  return {[condition = operand(condition, here())] { return lang::open_when(condition, &last_branch); }};
}

Block when_rows(nb::handle conditions, nb::handle together) {
  const Here at = here();
  std::vector<lang::Expr> all;
  for (const Operand& condition : operands(conditions, at)) all.push_back(condition);
  lang::RowsOptions options;
  if (!together.is_none()) options.together.emplace(operand(together, at));
  return {[all, options, at] { return lang::open_rows(all, options, at.at); }};
}

Block loop_while(const nb::object& condition) {
  if (!PyCallable_Check(condition.ptr()))
    throw nb::type_error(
        "loop_while() takes a function, such as lambda: n < 10, because the condition is computed before "
        "every "
        "iteration");
  const Here at = here();
  return {[condition, at] {
    return lang::open_while([&]() -> lang::Expr { return operand(condition(), at); }, at.at);
  }};
}

void define_loops(nb::module_& module) {
  module.def("lang_serial", [](const nb::args& ends) { return loop(lang::detail::Loop::serial, ends, 0); });
  module.def(
      "lang_pipelined",
      [](const nb::args& ends, int stages) { return loop(lang::detail::Loop::pipelined, ends, stages); },
      nb::arg("ends"), nb::arg("stages"));
  module.def("lang_unrolled", [](int count) {
    const Here at = here();
    const lang::Range range{Operand(0, at.at), Operand(count, at.at)};
    return Block{[range] { return lang::open_loop(lang::detail::Loop::unrolled, range, 0); }};
  });
  module.def("lang_parallel", parallel);
  module.def("lang_each_group", [](int count, bool of_warps) {
    const Here at = here();
    return Block{[=] {
      return lang::open_group(count, of_warps ? lang::Group::warp : lang::Group::warpgroup, at.at);
    }};
  });
  module.def("lang_loop_while", loop_while);
}

}  // namespace

void forget_blocks() { unopened().clear(); }
void refuse_unopened_blocks() {
  if (unopened().empty()) return;
  throw ProgramError("a grid, loop or branch that nothing opens; write `with` in front of it",
                     unopened().begin()->second);
}
[[noreturn]] void refuse_iteration(nb::handle) {
  throw nb::type_error(
      "`for` is Python's own loop; open a grid or a loop by `with`, as in `with serial(n) as i:`");
}

bool is_block(nb::handle given) { return nb::isinstance<Block>(given); }

void define_control(nb::module_& module) {
  nb::class_<Block>(module, "Block", "A loop, branch or grid, for `with`.")
      .def("__enter__", enter)
      .def("__iter__", refuse_iteration)
      .def("__exit__", leave, nb::arg().none(), nb::arg().none(), nb::arg().none());
  module.def("lang_grid", grid, nb::arg("extents"), nb::arg("threads"), nb::arg("persistent"),
             nb::arg("order").none(), nb::arg("cluster"), nb::arg("blocks_per_processor"));
  define_loops(module);
  module.def("lang_when", when);
  module.def("lang_otherwise", [] {
    const Here at = here();
    return Block{[at] { return lang::open_otherwise(std::exchange(last_branch, nullptr), at.at); }};
  });
  module.def("lang_when_rows", when_rows, nb::arg("conditions"), nb::arg("together").none());
  module.def("lang_break_if", [](nb::handle condition) { lang::break_if(operand(condition, here())); });
  module.def("lang_exit_if", [](nb::handle condition) { lang::exit_if(operand(condition, here())); });
  module.def("lang_print",
             [](const char* label, nb::handle value) { lang::print(label, operand(value, here())); });
  module.def("lang_assert_that", [](nb::handle condition, const char* message) {
    lang::assert_that(operand(condition, here()), message);
  });
}

}  // namespace tegula::python::language
