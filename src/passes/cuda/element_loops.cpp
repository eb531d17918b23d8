#include "passes/cuda/element_loops.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/fragment_axes.hpp"

namespace tegula::passes {

using namespace ir;

bool reads_what_it_writes(const For& loop) {
  const Effects effects = all_effects(loop.body);
  bool result = false;
  for_each_stmt(loop.body, [&](const Stmt& s) {
    const auto* load = as<Load>(s);
    if (!load || load->from.view.buffer->space == Space::fragment) return;
    result |= effects.writes(load->from.view.buffer);
  });
  return result;
}

bool is_direct(const For& loop, const layout::Layout* layout, const Access& access, const Layouts& layouts) {
  if (!layout) return false;
  const auto axes = loop_axes(loop, access);
  const layout::Layout& own = layouts.fragments.at(access.view.buffer.get());
  return axes ? own == projected(*layout, *axes) : layout_around(loop, access, own) == *layout;
}

bool is_by_register(const For& loop, const Stmt& stmt, const Layouts& layouts) {
  const auto found = layouts.loops.find(stmt.get());
  if (found == layouts.loops.end()) return false;
  bool direct = found->second.replicas() == 1 || !reads_what_it_writes(loop);
  for_each_stmt(loop.body, [&](const Stmt& inner) {
    const Access* access = fragment_access(inner);
    direct &= !access || is_direct(loop, &found->second, *access, layouts);
  });
  return direct;
}

}  // namespace tegula::passes
