// Tiles that the threads of a producer make of what they read: where a tile's rows are converted, threads
// hold what they have read for the next step in registers while they wait for a slot, so that the way from
// memory and the conversion run beside each other.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/effects.hpp"
#include "ir/lists.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/column_ranges.hpp"
#include "passes/cuda/existing_rows.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// Registers of a thread for what it holds, of those with which it converts.
constexpr std::int64_t most_held = 96;
constexpr int line_bytes = 128;  // of the second-level cache

// Of all loops over elements, those that threads deal among themselves.
const For* parallel_loop(const Stmt& s) {
  const auto* loop = as<For>(s);
  return loop && loop->kind == LoopKind::parallel && !loop->body.empty() ? loop : nullptr;
}

// Whether it makes some columns of its tile only.
bool is_range(const For& loop) {
  const Buffer& tile = *as<Store>(loop.body.back())->to.view.buffer;
  return constant_value(loop.begin[1]) > 0 || constant_value(loop.end[1]) < tile.extent(tile.rank() - 1);
}

}  // namespace

void CudaGridPrinter::producer_loop(const For& step, const Loc& at, const schedule::Events& list) {
  if (step.kind != LoopKind::pipelined || !held_.empty()) return sequential(step, at, [&] { events(list); });
  held_step_ = &step;
  sequential(
      step, at,
      [&] {
        load_first_step(step);
        events_of_step(list);
      },
      [&] { hold_next_step(step, list); });
  held_.clear();
  held_step_ = nullptr;
}

// Declares what a step holds for the next one. Without rows to convert, threads have nothing to wait for.
void CudaGridPrinter::hold_next_step(const For& step, const schedule::Events& list) {
  std::vector<HeldLoop> found;
  std::int64_t words = 0;
  const auto add = [&](auto of) {
    for (const schedule::Event& e : list) {
      if (!e.stmt || !std::holds_alternative<schedule::Operation>(e.what)) continue;
      auto own = (this->*of)(step, e.stmt);
      if (!own) continue;
      words += own->count * own->registers.words;
      own->ahead = read_ahead(step, *as<For>(own->loop));
      found.push_back(std::move(*own));
    }
  };
  add(&CudaGridPrinter::held_rows);
  if (found.empty()) return;
  add(&CudaGridPrinter::held_elements);
  if (words > most_held) return;
  for (const HeldLoop& own : found) {
    for (const std::string& line : own.registers.declarations)
      out_.line(own.rows ? fmt::format("{}[{}];", line, own.count) : line + ";");
  }
  held_ = std::move(found);
}

bool CudaGridPrinter::is_read_ahead(const For& step, const VariablePtr& v) const {
  const auto found = step_reads_.find(v.get());
  return found != step_reads_.end() && found->second.index == step.index[0];
}

// What the elements depend on and the step reads a step ahead.
std::vector<VariablePtr> CudaGridPrinter::read_ahead(const For& step, const For& loop) const {
  std::vector<VariablePtr> result;
  for (const VariablePtr& v : all_effects(loop.body).used)
    if (is_read_ahead(step, v)) result.push_back(v);
  return result;
}

// Whether the index of the step and what is known before the loop say all that the elements depend on, and
// nobody writes what they are read from.
bool CudaGridPrinter::can_hold(const For& step, const For& loop) const {
  const Effects inside = all_effects(step.body), own = all_effects(loop.body);
  const bool known = std::all_of(own.used.begin(), own.used.end(), [&](const VariablePtr& v) {
    const bool own_one = contains(own.defined, v) || contains(loop.index, v);
    return v->kind != VariableKind::mutable_ &&
           (own_one || is_read_ahead(step, v) || !contains(inside.defined, v));
  });
  return known && own.assigned.empty() &&
         std::all_of(loop.body.begin(), loop.body.end() - 1, [&](const Stmt& s) {
           const auto* load = as<Load>(s);
           if (!load) return as<Let>(s) != nullptr;
           return !load->from.view.is_tile() && !written_.contains(load->from.view.buffer.get());
         });
}

// The loop over all elements that the statement brings from a tensor.
Stmt CudaGridPrinter::elements_of(const Stmt& s) const {
  const auto* copy = as<Copy>(s);
  if (!copy) return parallel_loop(s) ? s : nullptr;
  const Body lowered = copy->from.is_tile() ? Body() : element_copies(*copy, s->at);
  return lowered.size() == 1 && parallel_loop(lowered[0]) ? lowered[0] : nullptr;
}

std::optional<CudaGridPrinter::HeldLoop> CudaGridPrinter::held_rows(const For& step, const Stmt& s) {
  const auto* copy = as<Copy>(s);
  const Stmt elements = elements_of(s);
  const For* loop = elements ? parallel_loop(elements) : nullptr;
  if (!loop || (copy && copy->from.buffer->type == copy->to.buffer->type) || !can_hold(step, *loop) ||
      passes::plan_rows(elements))
    return std::nullopt;
  const auto plan = passes::plan_conversion(elements);
  const std::int64_t count = plan ? pieces_of_thread(*plan) : 0;
  if (count == 0 || count * words_of_piece(*plan) > words_to_convert()) return std::nullopt;
  // Of rows at equal distances, whose place comes a step ahead, lines are prefetched instead.
  if (!passes::moving_ranges(passes::existing_rows(*plan).rows).empty() && !read_ahead(step, *loop).empty())
    return std::nullopt;
  return HeldLoop{s, elements, plan, registers_of_pieces(*plan), count};
}

// A loop with an element for each thread, or for the first ones, such as the factors of a tile's rows.
std::optional<CudaGridPrinter::HeldLoop> CudaGridPrinter::held_elements(const For& step, const Stmt& s) {
  const For* loop = parallel_loop(s);
  if (!loop || loop->index.size() != 1 || !can_hold(step, *loop) || passes::plan_rows(s)) return std::nullopt;
  const auto* store = as<Store>(loop->body.back());
  const bool of_tile = store && store->to.view.buffer->space == Space::shared;
  if (!of_tile || !is_constant(loop->begin[0], 0) || !is_constant(loop->end[0]) ||
      constant_value(loop->end[0]) > team_.threads)
    return std::nullopt;
  HeldLoop result{.stmt = s, .loop = s, .rows = {}, .registers = {}, .element = names_.unique("held")};
  result.registers.words = 1;
  result.registers.declarations = {fmt::format("{} {}", scalar_type(store->value->held()), result.element)};
  return result;
}

const CudaGridPrinter::HeldLoop* CudaGridPrinter::held(const Stmt& s) const {
  const auto found =
      std::find_if(held_.begin(), held_.end(), [&](const HeldLoop& own) { return own.stmt == s; });
  return found == held_.end() ? nullptr : &*found;
}

void CudaGridPrinter::load_first_step(const For& step) {
  if (held_.empty()) return;
  out_.code();
  out_.open(fmt::format("if ({} == {}) {{", variable_text(step.index[0]), value(step.begin[0])));
  for (const HeldLoop& own : held_) load_ahead(own);
  out_.close();
}

// For threads that have one.
void CudaGridPrinter::open_own_element(const For& loop) {
  const std::int64_t elements = constant_value(loop.end[0]);
  out_.open(elements < team_.threads ? fmt::format("if ({} < {}) {{", team_.thread, elements) : "{");
  out_.line(fmt::format("const {} {} = {};", scalar_type(loop.index[0]->type), name_variable(loop.index[0]),
                        team_.thread));
}

// Prints what concerns the step for which these have been read ahead.
void CudaGridPrinter::with_read_ahead(const std::vector<VariablePtr>& ahead,
                                      const std::function<void()>& print) {
  std::vector<std::string> before;
  for (const VariablePtr& v : ahead) {
    const bool is_named = values_.has(v);
    before.push_back(is_named ? variable_text(v) : "");
    values_.forget_names(v);
    values_.set(v, step_reads_.at(v.get()).ahead);
  }
  print();
  for (std::size_t i = 0; i < ahead.size(); ++i) {
    values_.forget_names(ahead[i]);
    if (!before[i].empty()) values_.set(ahead[i], before[i]);
  }
}

// Of the step whose index is the text of its variable, and for which what else is read a step ahead has been
// read.
void CudaGridPrinter::load_ahead(const HeldLoop& own) {
  with_read_ahead(own.ahead, [&] { load_held(own); });
}

// Of the step whose index is the text of its variable.
void CudaGridPrinter::load_held(const HeldLoop& own) {
  const For& loop = *as<For>(own.loop);
  const Facts before = facts_;
  add_indices(loop);
  loop_ = ElementLoop{&loop, nullptr, ""};
  if (own.rows) {
    by_existing_rows(
        *own.rows, own.registers, false,
        [&](const auto& rows, const auto& registers) {
          each_piece(rows, own.count, "", [&] { load_pieces(rows, registers); });
        },
        nullptr);
  } else {
    open_own_element(loop);
    body(Body(loop.body.begin(), loop.body.end() - 1));
    out_.line(fmt::format("{} = {};", own.element, value(as<Store>(loop.body.back())->value)));
    out_.close();
  }
  loop_.reset();
  facts_ = before;
}

void CudaGridPrinter::make_held(const HeldLoop& own) {
  const For& loop = *as<For>(own.loop);
  out_.code();
  touch_all(loop.body);
  out_.open(fmt::format("{{  // {}: read a step ahead", location_in_folder(own.loop->at)));
  const Facts before = facts_;
  add_indices(loop);
  loop_ = ElementLoop{&loop, nullptr, ""};
  if (own.rows) {
    either(
        conditions_of_pieces(*own.rows),
        [&] {
          each_piece(*own.rows, own.count, "",
                     [&] { make_pieces(*own.rows, own.registers, places_of_piece(*own.rows)); });
        },
        [&] { convert_elements(loop); });
  } else {
    const auto& last = *as<Store>(loop.body.back());
    open_own_element(loop);
    store(last.to, last.value, own.element);
    out_.close();
  }
  loop_.reset();
  facts_ = before;
  out_.close();
  load_next_step(own);
}

// Prints for the step that comes so many later, if there is one.
void CudaGridPrinter::in_later_step(int steps, const std::function<void()>& print) {
  const VariablePtr& index = held_step_->index[0];
  const std::string name = variable_text(index), later = fmt::format("({} + {})", name, steps);
  out_.open(fmt::format("if ({} < {}) {{", later, value(held_step_->end[0])));
  values_.forget_names(index);
  values_.set(index, later);
  print();
  values_.set(index, name);
  out_.close();
}

void CudaGridPrinter::load_next_step(const HeldLoop& own) {
  in_later_step(1, [&] { load_ahead(own); });
  if (own.rows && own.ahead.empty()) prefetch_rows(own);
}

void CudaGridPrinter::prefetch(const Access& from) {
  const GuardedAddress at = address(from);
  const std::string text = fmt::format("tg::prefetch({});", at.pointer);
  out_.line(at.guard.empty() ? text : fmt::format("if ({}) {}", at.guard, text));
}

// The pieces of rows that the loop takes, a line of the cache each; nothing if threads cannot share them out.
std::optional<passes::RowConversion> CudaGridPrinter::lines_of(const passes::RowConversion& rows,
                                                               const Load& load) const {
  const For& loop = *as<For>(rows.loop);
  passes::RowConversion lines = rows;
  lines.elements = line_bytes / load.from.view.buffer->type.bytes();
  const std::int64_t columns = constant_value(loop.end[1]),
                     pieces = constant_value(loop.end[0]) * columns / lines.elements;
  if (columns % lines.elements != 0 || pieces % team_.threads != 0) return std::nullopt;
  return lines;
}

void CudaGridPrinter::prefetch_lines(const passes::RowConversion& lines, const Load& load) {
  const For& loop = *as<For>(lines.loop);
  const std::int64_t pieces =
      constant_value(loop.end[0]) * constant_value(loop.end[1]) / lines.elements / team_.threads;
  each_piece(lines, pieces, "", [&] { prefetch(load.from); });
}

// Rows of the step after the next, to the second-level cache: from memory they are on their way for longer
// than a step.
void CudaGridPrinter::prefetch_rows(const HeldLoop& own) {
  const For& loop = *as<For>(own.loop);
  const auto* load = as<Load>(loop.body.front());
  if (loop.body.size() != 2 || !load || loop.index.size() != 2) return;
  const auto lines = lines_of(*own.rows, *load);
  if (!lines) return;
  in_later_step(2, [&] {
    const Facts before = facts_;
    add_indices(loop);
    loop_ = ElementLoop{&loop, nullptr, ""};
    prefetch_lines(*lines, *load);
    loop_.reset();
    facts_ = before;
  });
}

// Rows of the next step that no registers hold are prefetched to the second-level cache, and what is read of
// each of them beside its pieces: before the step waits for slots, and after what it reads a step ahead.
void CudaGridPrinter::events_of_step(const schedule::Events& list) {
  const std::vector<passes::MovingRows> later = rows_to_prefetch(list);
  if (later.empty()) return events(list);
  const auto first = std::find_if(list.begin(), list.end(), [](const schedule::Event& e) {
    return std::holds_alternative<schedule::Acquire>(e.what);
  });
  events({list.begin(), first});
  for (const passes::MovingRows& moving : later) prefetch_moving(moving);
  events({first, list.end()});
}

std::vector<passes::MovingRows> CudaGridPrinter::rows_to_prefetch(const schedule::Events& list) const {
  std::vector<passes::MovingRows> result;
  for (const schedule::Event& e : list) {
    if (!e.stmt || !std::holds_alternative<schedule::Operation>(e.what) || held(e.stmt)) continue;
    const Stmt elements = elements_of(e.stmt);
    const auto plan = elements ? passes::plan_conversion(elements) : std::nullopt;
    if (!plan) continue;
    // A tile of the producer's own is declared in the step, and is not there yet: neither one that it makes
    // nor one whose elements it converts.
    const Buffer& tile = *as<Store>(as<For>(plan->loop)->body.back())->to.view.buffer;
    if (roles_->ring_of(&tile) < 0) continue;
    std::vector<passes::MovingRows> ranges = passes::moving_ranges(passes::existing_rows(*plan).rows);
    if (ranges.empty() || pieces_of_thread(*plan) == 0 || !can_hold(*held_step_, *as<For>(elements)))
      continue;
    for (passes::MovingRows& moving : ranges) result.push_back(std::move(moving));
  }
  return result;
}

void CudaGridPrinter::prefetch_moving(const passes::MovingRows& moving) {
  const For& loop = *as<For>(moving.rows.loop);
  if (constant_value(loop.end[0]) > team_.threads) return;
  const Facts before = facts_;
  add_indices(loop);
  loop_ = ElementLoop{&loop, nullptr, ""};
  in_later_step(1, [&] {
    with_read_ahead(read_ahead(*held_step_, loop), [&] {
      for (std::size_t i = 0; i < moving.rows.statements.size(); ++i) {
        const auto* load = as<Load>(loop.body[i]);
        if (!load || !moving.steps.contains(loop.body[i].get())) continue;
        if (moving.rows.statements[i] == passes::RowConversion::Of::row)
          prefetch_of_rows(loop, *load);
        else if (is_range(loop))
          prefetch_parts(loop, *load);
        else if (const auto lines = lines_of(moving.rows, *load))
          prefetch_lines(*lines, *load);
      }
    });
  });
  loop_.reset();
  facts_ = before;
}

// Lines that begin in columns of each row, however many these are.
void CudaGridPrinter::prefetch_parts(const For& loop, const Load& load) {
  const std::int64_t line = line_bytes / load.from.view.buffer->type.bytes(),
                     begin = constant_value(loop.begin[1]),
                     of_row = (constant_value(loop.end[1]) - begin + line - 1) / line;
  const std::string f = names_.unique("f");
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int {0} = {1}; {0} < {2}; {0} += {3}) {{", f, team_.thread,
                        constant_value(loop.end[0]) * of_row, team_.threads));
  const auto name = [&](std::size_t d, const std::string& text) {
    out_.line(fmt::format("const {} {} = {};", scalar_type(loop.index[d]->type), name_variable(loop.index[d]),
                          text));
  };
  name(1, plus(times(fmt::format("{} % {}", f, of_row), line), begin));
  name(0, fmt::format("{} / {}", f, of_row));
  prefetch(load.from);
  out_.close();
}

// What each row begins with, by a thread for each row.
void CudaGridPrinter::prefetch_of_rows(const For& loop, const Load& load) {
  open_own_element(loop);
  values_.set(loop.index[1], std::to_string(constant_value(loop.begin[1])));
  prefetch(load.from);
  out_.close();
}

}  // namespace tegula::codegen
