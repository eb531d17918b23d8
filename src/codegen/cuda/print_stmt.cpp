// Statements that all threads run; variables and single elements.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/cuda/grid_printer.hpp"
#include "codegen/cuda/packed_words.hpp"
#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
    if (c == '%') result += '%';
  }
  return result + "\"";
}

// The tile to which it copies from a tensor, if there is one.
const Buffer* tile_filled_by(const Stmt& s) {
  const auto* copy = as<Copy>(s);
  const bool fills = copy && !copy->from.is_tile() && copy->to.buffer->space == Space::shared;
  return fills ? copy->to.buffer.get() : nullptr;
}

}  // namespace

void CudaGridPrinter::in_scope(const Body& nested) {
  const Facts before = facts_;
  body(nested);
  facts_ = before;
}

// The memory of a shared tile is free after the last statement that uses it.
void CudaGridPrinter::body(const Body& statements) {
  std::unordered_map<const Buffer*, std::size_t> last;
  const bool was_crowded = is_crowded_;
  if (!loop_) {
    is_crowded_ = loads_more_than_registers(statements), words_in_flight_ = 0;
    for (std::size_t i = 0; i < statements.size(); ++i) {
      if (const auto* n = as<Declare>(statements[i]);
          n && n->tile->space == Space::shared && !is_in_copy_ring(*n->tile))
        last[n->tile.get()] = i;
      if (last.empty()) continue;
      for (const Region& region : all_effects(statements[i]).regions) {
        if (const auto at = last.find(region.view->buffer.get()); at != last.end()) at->second = i;
      }
    }
  }
  for (std::size_t i = 0, count = 0; i < statements.size(); i += count) {
    const Buffer* filled = tile_filled_by(statements[i]);
    if (!loop_ && !as<Declare>(statements[i]) && (!filled || is_brought(*filled))) await_brought();
    // No CTA has the memory of another before that has begun.
    if (statements[i].get() == first_meeting_) out_.code(), out_.line(cluster_wait);
    count = loops_together(statements, i);
    if (count > 0)
      print_together(std::span(statements).subspan(i, count));
    else if ((count = reductions_together(statements, i)) > 0)
      print_reductions_together(std::span(statements).subspan(i, count));
    else
      stmt(statements[i]), count = 1;
    for (const auto& [tile, end] : last) {
      if (end < i || end >= i + count) continue;
      if (is_brought(*tile)) await_brought();  // what takes its memory is written after all of its copies
      release(shared_.at(tile));
    }
  }
  if (!loop_) await_brought();
  is_crowded_ = was_crowded;
}

void CudaGridPrinter::stmt(const Stmt& s) {
  const auto* declared = as<Declare>(s);
  if (plan_.copy_rings.fills.contains(s.get()) || (declared && is_in_copy_ring(*declared->tile))) return;
  stamp(s);
  std::visit([&](const auto& node) { (*this)(node, s); }, s->node);
}

// Steps of their own for the statements of a body that all threads run; within a loop over elements
// everything is one step.
void CudaGridPrinter::begin(const Stmt& s) {
  if (loop_) return;
  out_.code();
  const Effects own = effects(s);
  for (const Region& region : own.regions) {
    const bool read = region.touch == Touch::read;
    const MemoryUse use = read                             ? MemoryUse::read
                          : region.touch == Touch::combine ? MemoryUse::combine
                                                           : MemoryUse::write;
    touch(*region.view, use, !read, region.index);
  }
}

void CudaGridPrinter::open(const std::string& text, StepKind kind) {
  if (loop_)
    out_.open(text);
  else
    out_.open_step(kind, text);
}

void CudaGridPrinter::close() {
  if (loop_)
    out_.close();
  else
    out_.close_step();
}

void CudaGridPrinter::define(const VariablePtr& v, const std::string& text, bool is_const, const Loc& at) {
  const std::string_view begin = is_const ? "const " : "";
  out_.line(fmt::format("{}{} {} = {};", begin, scalar_type(v->type), name_variable(v), bare(text)), at);
}

void CudaGridPrinter::operator()(const Let& n, const Stmt& s) {
  begin(s);
  const bool reads_mutable = n.value->op == Op::variable && n.value->variable->kind == VariableKind::mutable_;
  if (!reads_mutable && has_affine_form(n.value->held())) facts_.define(n.variable, n.value);
  const std::string text = value(is_masked_later(n.variable) ? n.value->args[0] : n.value);
  define(n.variable, text, true, s->at);
  if (!reads_mutable) return;
  values_.forget_names(n.variable);
  name_divisions([&](const VariablePtr& v) { return v == n.variable; });
}

void CudaGridPrinter::operator()(const Load& n, const Stmt& s) {
  if (vectors_ && vectors_->steady.contains(s.get())) return;  // it stands in front of the elements
  begin(s);
  const auto ahead = step_reads_.find(n.variable.get());
  if (ahead != step_reads_.end())
    step_read(n, ahead->second, s->at);
  else if (const auto known = in_front_.find(s.get()); known != in_front_.end())
    define(n.variable, known->second, true, s->at);
  else if (moved_.contains(n.variable.get()))
    move_element(n, s);
  else if (is_packed(s))
    define(n.variable, element_of_pack(n, vectors_->names.at(s.get()), "e"), true, s->at);
  else if (const auto part = pieces_.loads.find(s.get()); part != pieces_.loads.end())
    define(n.variable, element_of_pack(n, loaded_piece(part->second.piece), std::to_string(part->second.at)),
           true, s->at);
  else
    define(n.variable, load_text(n.from), true, s->at);
  if (!plan_.forms.unrounded.contains(n.from.view.buffer.get()))
    values_.set_stored(n.variable, n.from.view.buffer->type);
  if (!n.variable->type.is_floating()) facts_.add_range(n.variable, values_of(n.from.view.buffer->type));
}

void CudaGridPrinter::operator()(const Store& n, const Stmt& s) {
  begin(s);
  if (const auto own = plan_.forms.factored.find(n.to.view.buffer.get()); own != plan_.forms.factored.end())
    return store_factors(n.to, own->second);
  const std::string text = value(n.value);
  if (!is_packed(s)) return store(n.to, n.value, text);
  if (vectors_->in_parts.contains(s.get()))
    return out_.line(fmt::format("{}.set(e, {});", vectors_->names.at(s.get()), bare(text)));
  const std::string type = element_type(n.to.view.buffer->type);
  out_.line(fmt::format("{}.set(e, tg::make<{}>({}));", vectors_->names.at(s.get()), type, text));
}

void CudaGridPrinter::operator()(const Declare& n, const Stmt& s) {
  if (n.tile->space == Space::shared) return declare_shared(n.tile, s->at);
  const std::string name = names_.unique(n.tile->name);
  const Layout& layout = layouts_.fragments.at(n.tile.get());
  fragments_[n.tile.get()] = {name, layout, plan_.forms.packed.contains(n.tile.get())};
  out_.code();
  if (plan_.forms.packed.contains(n.tile.get()))
    out_.line(fmt::format("uint32_t {}[{}];", name, layout.register_count() / elements_of_word(n.tile->type)),
              s->at);
  else if (const auto own = plan_.forms.factored.find(n.tile.get()); own != plan_.forms.factored.end())
    declare_factors(name, layout, own->second, s->at);
  else
    declare_fragment(name, n.tile->type, layout, s->at);
}

void CudaGridPrinter::operator()(const DeclareVar& n, const Stmt& s) {
  begin(s);
  const std::string text = value(n.value);
  define(n.variable, text, false, s->at);
}

void CudaGridPrinter::operator()(const Assign& n, const Stmt& s) {
  begin(s);
  const std::string text = value(n.value);
  out_.line(fmt::format("{} = {};", variable_text(n.variable), bare(text)), s->at);
}

void CudaGridPrinter::operator()(const Atomic& n, const Stmt& s) {
  begin(s);
  constexpr const char* names[] = {"Add", "Min", "Max", "Or", "And"};
  const std::string text = value(n.value);
  if (is_packed(s))
    return out_.line(fmt::format("{}.set(e, tg::make<{}>({}));", vectors_->names.at(s.get()),
                                 element_type(n.to.view.buffer->type), text));
  const GuardedAddress at = address(n.to);
  Texts guards;
  if (!at.guard.empty()) guards.push_back(at.guard);
  if (const std::string one = only_one(); !one.empty()) guards.push_back(one);
  out_.line(fmt::format("{}tg::atomic_update<tg::{}>({}, {});",
                        guards.empty() ? "" : fmt::format("if ({}) ", fmt::join(guards, " && ")),
                        names[static_cast<int>(n.op)], at.pointer, text),
            s->at);
}

void CudaGridPrinter::operator()(const Gather&, const Stmt&) {
  throw InternalError("a gather was not lowered");
}
void CudaGridPrinter::operator()(const Fill&, const Stmt&) { throw InternalError("a fill was not lowered"); }

void CudaGridPrinter::operator()(const Break& n, const Stmt& s) {
  if (!loop_) out_.code();
  const std::string condition = value(n.condition);
  out_.line(fmt::format("if ({}) break;", bare(condition)), s->at);
  if (!loop_) out_.leaves();
  facts_.assume(n.condition, false);
}

void CudaGridPrinter::operator()(const Exit& n, const Stmt& s) {
  out_.code();
  const std::string condition = value(n.condition);
  out_.line(fmt::format("if ({}) {}", bare(condition), leave_by(n)), s->at);
  facts_.assume(n.condition, false);
}

namespace {

// The loops around a statement, from the outermost one.
bool find_loops(const Body& body, const Stmt& s, std::vector<const For*>& loops) {
  for (const Stmt& each : body) {
    if (each == s) return true;
    const auto* loop = as<For>(each);
    if (loop) loops.push_back(loop);
    bool found = false;
    for_each_body(each, [&](const Body& inner) { found = found || find_loops(inner, s, loops); });
    if (found) return true;
    if (loop) loops.pop_back();
  }
  return false;
}

}  // namespace

// `block bx0 = %d; i = %d`, as other executors say where something happens, and the values.
std::string CudaGridPrinter::place_format(const Stmt& s, Texts& values) const {
  std::vector<std::vector<VariablePtr>> places{planned_.index};
  std::vector<const For*> loops;
  if (find_loops(planned_.body, s, loops))
    for (const For* loop : loops) places.push_back(loop->index);
  std::string text = "block ";
  for (std::size_t i = 0; i < places.size(); ++i) {
    const char* before = i == 0 ? "" : "; ";
    for (const VariablePtr& index : places[i]) {
      if (!values_.has(index)) continue;
      text += fmt::format("{}{} = %d", before, index->name);
      before = ", ";
      values.push_back(fmt::format("int({})", variable_text(index)));
    }
  }
  return text;
}

void CudaGridPrinter::operator()(const Print& n, const Stmt& s) {
  begin(s);
  const DType type = n.value->held();
  std::string text = value(n.value);
  const char* form = type.is_boolean() ? "%s" : type.is_floating() ? "%.17g" : "%ld";
  if (type.is_boolean())
    text = fmt::format("{} ? \"true\" : \"false\"", text);
  else
    text = fmt::format("{}({})", type.is_floating() ? "double" : "long", bare(text));
  Texts values;
  const std::string place = place_format(s, values), one = only_one();
  values.push_back(text);
  out_.line(
      fmt::format("{}printf(\"[{}] \"{}\" = {}\\n\", {});", one.empty() ? "" : fmt::format("if ({}) ", one),
                  place, quoted(n.label), form, fmt::join(values, ", ")),
      s->at);
}

void CudaGridPrinter::operator()(const Assert& n, const Stmt& s) {
  begin(s);
  const std::string condition = value(n.condition);
  program_.assertions.push_back({n.message, s->at});
  const std::size_t number = program_.assertions.size();
  if (loop_) {
    out_.line(fmt::format("if (!{}) tg::report(call.status, {});", condition, number), s->at);
    return;
  }
  out_.open(fmt::format("if (!{}) {{  // {}", condition, location_in_folder(s->at)));
  out_.line(fmt::format("if ({} == 0) tg::report(call.status, {});", team_.thread, number));
  if (team_.count == 1) out_.line(leave_);
  out_.close();
}

}  // namespace tegula::codegen
