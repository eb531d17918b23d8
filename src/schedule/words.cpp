#include "schedule/words.hpp"

#include <fmt/format.h>

#include "ir/print.hpp"

namespace tegula::schedule {
namespace {

std::string short_text(const ir::Expr& e) {
  constexpr std::size_t longest = 40;
  const std::string text = ir::print(e);
  return text.size() <= longest ? text : text.substr(0, text.rfind(' ', longest - 2)) + " …";
}

std::string assignment(const char* verb, const ir::VariablePtr& variable, const ir::Expr& value) {
  return fmt::format("{} {} = {}", verb, variable->name, short_text(value));
}

std::string tile_text(const ir::Buffer& tile) {
  std::string extents;
  for (const ir::Expr& extent : tile.shape) extents += (extents.empty() ? "" : ", ") + ir::print(extent);
  return fmt::format("{} {}[{}]", tile.name, tile.type.name(), extents);
}

// Schedules name the tiles that an event touches; tensors only words name.
std::string beside_tensor(std::string verb, const ir::View& from, const ir::View& to) {
  if (!from.is_tile()) verb += " from " + from.buffer->name;
  if (!to.is_tile()) verb += " to " + to.buffer->name;
  return verb;
}

std::string element_words(const ir::Store& store) {
  if (!store.to.view.is_tile()) return "store to " + store.to.view.buffer->name;
  switch (store.value->op) {
    case ir::Op::constant:
      return "fill";
    case ir::Op::variable:
      return "copy";
    case ir::Op::cast:
      return "convert";
    default:
      return fmt::format("elementwise {}", ir::name_of(store.value->op));
  }
}

// Describes the body by what its innermost last statement stores.
std::string elementwise_words(const ir::Body& body) {
  if (body.empty()) return "elementwise";
  const ir::Stmt& last = body.back();
  if (const auto* store = ir::as<ir::Store>(last)) return element_words(*store);
  if (const auto* branch = ir::as<ir::If>(last)) return elementwise_words(branch->then);
  if (ir::as<ir::Atomic>(last)) return words_of(*last);
  return "elementwise";
}

}  // namespace

std::string words_of(const ir::StmtNode& stmt) {
  using namespace ir;
  return std::visit(
      Overloaded{
          [](const Let& x) { return assignment("let", x.variable, x.value); },
          [](const ir::Load& x) {
            return fmt::format("let {} = element of {}", x.variable->name, x.from.view.buffer->name);
          },
          [](const ir::Store& x) { return element_words(x); },
          [](const Declare& x) { return "declare " + tile_text(*x.tile); },
          [](const DeclareVar& x) { return assignment("declare", x.variable, x.value); },
          [](const Assign& x) { return assignment("set", x.variable, x.value); },
          [](const Atomic& x) {
            return fmt::format("atomic {} to {}", name_of(x.op), x.to.view.buffer->name);
          },
          [](const Copy& x) { return beside_tensor("copy", x.from, x.to); },
          [](const Gather& x) { return beside_tensor("gather", x.from, x.to); },
          [](const Fill& x) { return "fill with " + short_text(x.value); },
          [](const ir::Gemm&) { return std::string("gemm"); },
          [](const Reduce& x) { return fmt::format("reduce {}", name_of(x.op)); },
          [](const Scan& x) { return fmt::format("scan {}", name_of(x.op)); },
          [](const Accumulate& x) { return fmt::format("{} to {}", name_of(x.op), x.to.buffer->name); },
          [](const Turn& x) { return std::string(x.order ? "wait turn" : "pass turn"); },
          [](const For& x) {
            return x.kind == LoopKind::parallel ? elementwise_words(x.body) : "loop " + x.index[0]->name;
          },
          [](const If& x) { return "if " + short_text(x.condition); },
          [](const While& x) { return "while " + short_text(x.condition); },
          [](const Break& x) { return "leave the loop if " + short_text(x.condition); },
          [](const Exit& x) { return "leave the block if " + short_text(x.condition); },
          [](const Print& x) { return "print " + x.label; },
          [](const Assert& x) { return "assert " + short_text(x.condition); },
      },
      stmt.node);
}

}  // namespace tegula::schedule
