// Control, variables and single elements.
#include <fmt/format.h>

#include <unordered_set>
#include <utility>

#include "codegen/grid_printer.hpp"
#include "codegen/rows_together.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// A store converts within a kind; in the text both sides have one type.
Expr held_as(const Expr& e, DType type) {
  const DType held = compute_type(type);
  return e->held() == held ? e : make(Op::cast, held, {e}, e->at);
}

// Tiles that are declared in the body, and the last of its statements that mentions each.
std::unordered_map<const Buffer*, std::size_t> last_mentions(const Body& body) {
  std::unordered_map<const Buffer*, std::size_t> result;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (const auto* declare = as<Declare>(body[i])) result.emplace(declare->tile.get(), i);
    for_each_stmt(Body{body[i]}, [&](const Stmt& s) {
      for_each_view(s, [&](const View& view) {
        const auto own = result.find(view.buffer.get());
        if (own != result.end()) own->second = i;
      });
    });
  }
  return result;
}

}  // namespace

GridPrinter::GridPrinter(const Signature& signature, CpuProgram& program, Writer& out)
    : signature_(signature), program_(program), out_(out) {}

void GridPrinter::prologue_of(const BufferPtr& buffer, int& place) {
  const std::string name = names_.unique(buffer->name);
  pointers_[buffer.get()] = name;
  const std::string type(memory_type(buffer->type));
  out_.line(fmt::format("{0}* const {1} = ({0}*)call->tensor[{2}];", type, name,
                        signature_.position_of(buffer.get())));
  for (int d = 0; d < buffer->rank(); ++d, ++place) {
    out_.line(
        fmt::format("const long {0}s{1} = call->stride[{2}], {0}n{1} = call->extent[{2}];", name, d, place));
  }
}

void GridPrinter::prologue(const Grid& grid) {
  std::unordered_set<const Buffer*> used;
  for_each_stmt(grid.body, [&](const Stmt& stmt) {
    for_each_view(stmt, [&](const View& view) { used.insert(view.buffer.get()); });
  });
  int place = 0;
  for (const BufferPtr& buffer : signature_.buffers()) {
    if (used.contains(buffer.get()))
      prologue_of(buffer, place);
    else
      place += buffer->rank();
  }
  const auto& variables = signature_.variables();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const VariablePtr& v = variables[i];
    out_.line(fmt::format("const {0} {1} = value_of<{0}>(call->value[{2}]);", scalar_type(v->type),
                          name_variable(v), i));
  }
  for (std::size_t i = 0; i < grid.index.size(); ++i) {
    out_.line(fmt::format("const int32_t {} = block[{}];", name_variable(grid.index[i]), i));
    facts_.add_index(grid.index[i], int32(0), grid.extents[i]);
  }
}

void GridPrinter::print(const Grid& grid, int number) {
  number_ = number;
  uses_ = tile_uses(grid.body);
  effects_ = all_effects(grid.body);
  results_ = results_of(grid.body);
  next_ = next_block(signature_.kernel(), grid);
  kept_ = kept_copies(signature_.kernel(), grid, uses_);
  CpuProgram::Block block{fmt::format("{}_{}", signature_.kernel().name, number), 0, 0, 0, 0};
  const std::vector<std::string> kept = place_kept(grid, block);
  if (next_) {
    GridPrinter beginning(signature_, program_, out_);
    beginning.scratch_ = scratch_;
    beginning.print_beginning(grid, *next_, block.function);
    scratch_peak_ = std::max(scratch_peak_, beginning.scratch_peak_);
  }
  out_.open(
      fmt::format("extern \"C\" void {}(const TegulaCall* call, const int32_t* block, const int32_t*{}, "
                  "char* scratch) {{",
                  block.function, next_ || !kept.empty() ? " next" : ""));
  prologue(grid);
  for (const std::string& line : kept) out_.line(line);
  if (next_) look_ahead(block.function);
  body(grid.body);
  out_.close();
  // Vectors may be read past the end of the last tile.
  block.scratch_bytes = static_cast<std::size_t>(scratch_peak_) + 128;
  block.short_row = std::exchange(short_row_, 0);
  program_.blocks.push_back(block);
}

void GridPrinter::in_scope(const Body& nested) {
  const std::int64_t before = scratch_;
  body(nested);
  scratch_ = before;
}

// Neighbours that go over the same rows share a loop; tiles and pure values between them come first.
void GridPrinter::body(const Body& given) {
  const Body statements = rows_together(given);
  const auto last = last_mentions(statements);
  std::vector<RowOp> group;
  std::size_t end = 0;  // of the group
  const auto flush = [&] {
    if (group.empty()) return;
    for (const auto& [tile, at] : last)
      if (at < end) finished_.insert(tile);
    rows(group);
    group.clear();
  };
  for (const auto& [product, copy] : late_copies(statements, uses_)) {
    late_.emplace(product, copy);
    made_by_others_.insert(copy.get());
  }
  if (signature_.kernel().may_alias.empty())
    for (const auto& [scan, copies] : copies_of_scans(statements, uses_)) {
      scanned_.emplace(scan, copies);
      for (const Stmt& copy : {copies.in, copies.out})
        if (copy) made_by_others_.insert(copy.get());
    }
  if (signature_.kernel().may_alias.empty())
    for (const auto& [tile, product] : placed_rows(statements, uses_, effects_))
      if (const auto sums = leaving_.find(product.get()); sums != leaving_.end())
        placed_.emplace(tile, Placed{"", sums->second});
  for (const auto& [loop, sums] : begun_sums(statements, uses_)) {
    begun_.emplace(loop, sums);
    for (const BegunSum& sum : sums) late_clears_.insert(sum.clear.get());
  }
  for (std::size_t i = 0; i < statements.size(); ++i) {
    const Stmt& s = statements[i];
    if (late_clears_.contains(s.get())) continue;
    auto op = lane_ ? std::nullopt : row_op(s);
    if (!op) {
      const bool passes = as<Declare>(s) != nullptr || as<Let>(s) != nullptr;
      if (!passes) flush();
      stmt(s);
      continue;
    }
    auto joined = group.empty() ? std::nullopt : aligned(*op, group.front());
    const bool joins = joined && can_join(*joined, group, signature_.kernel().may_alias.empty());
    if (!joins) flush();
    fetches_next_ = (joins && fetches_next_) || (next_ && next_->pass == s);
    group.push_back(joins ? *joined : *op);
    end = i + 1;
  }
  flush();
}

void GridPrinter::stmt(const Stmt& s) {
  std::visit([&](const auto& node) { (*this)(node, s); }, s->node);
}

void GridPrinter::define(const VariablePtr& v, const std::string& value, bool wide, bool is_const,
                         const Loc& at) {
  const std::string name = wide ? name_vector(v) : name_variable(v);
  out_.line(fmt::format("{}{} {} = {};", is_const ? "const " : "",
                        wide ? vector_type(v->type) : scalar_type(v->type), name, value),
            at);
}

void GridPrinter::operator()(const Let& n, const Stmt& s) {
  bool pure = true;
  for_each_variable(n.value, [&](const VariablePtr& v) { pure &= v->kind != VariableKind::mutable_; });
  if (pure && is_left_unfinished(n.variable, n.value)) return;
  const Expr own = of_whole_rows(n.value);
  const bool wide = varies(own);
  const std::string value = held_value(own);
  if (pure) values_[n.variable.get()] = n.value;
  if (pure) facts_.define(n.variable, n.value);
  define(n.variable, value, wide, true, s->at);
}

void GridPrinter::operator()(const Load& n, const Stmt& s) {
  bool wide = false;
  for (const Expr& e : coordinates(n.from)) wide |= varies(e);
  const std::string value = load_text(n.from);
  define(n.variable, value, wide, true, s->at);
}

void GridPrinter::operator()(const Store& n, const Stmt& s) {
  if (is_narrow(n.to)) {  // which rounds by itself
    const bool rounds = n.value->op == Op::cast && n.value->type == bf16 && n.value->args[0]->type == f32;
    const std::string value = vector(rounds ? n.value->args[0] : held_as(n.value, bf16));
    return out_.line(fmt::format("store_narrow({}, {});", narrow_place(n.to), value), s->at);
  }
  const Expr held = held_as(n.value, n.to.view.buffer->type);
  const std::string value = lane_ ? vector(held) : scalar(held);
  store(n.to, value, held->type == n.to.view.buffer->type);
}

void GridPrinter::operator()(const Declare& n, const Stmt& s) {
  const std::string type(tile_type(n.tile->type));
  const bool by_products = uses_.panels.contains(n.tile.get()) || uses_.narrow.contains(n.tile.get());
  const std::int64_t bytes =
      by_products ? panel_tile_bytes(*n.tile)
                  : tile_elements(*n.tile, uses_.dense.contains(n.tile.get())) * held_bytes(n.tile->type);
  finished_.erase(n.tile.get());
  const std::string name = names_.unique(n.tile->name);
  pointers_[n.tile.get()] = name;
  const bool moves = kept_names_.contains(n.tile.get());
  out_.line(fmt::format("{0}* {1}{2} = ({0}*){3};", type, moves ? "" : "const ", name, allocate(bytes)),
            s->at);
  if (const auto placed = placed_.find(n.tile.get()); placed != placed_.end()) {
    placed->second.name = names_.unique("rows");
    out_.line(fmt::format("PlacedRows {} = {{{}, nullptr, 0}};", placed->second.name, name));
  }
}

void GridPrinter::operator()(const DeclareVar& n, const Stmt& s) {
  const bool wide = lane_.has_value();
  const std::string value = wide ? vector(n.value) : scalar(n.value);
  define(n.variable, value, wide, false, s->at);
}

void GridPrinter::operator()(const Assign& n, const Stmt& s) {
  const std::string name = variable_text(n.variable);
  if (!varying_.contains(n.variable.get())) {
    out_.line(fmt::format("{} = {};", name, scalar(n.value)), s->at);
    return;
  }
  const std::string value = vector(n.value);
  out_.line(mask_.empty() ? fmt::format("{} = {};", name, value)
                          : fmt::format("{0} = select({1}, {2}, {0});", name, mask_, value),
            s->at);
}

void GridPrinter::open_loop(const VariablePtr& index, const Expr& begin, const Expr& end, const Loc& at) {
  facts_.add_index(index, begin, end);
  const std::string first = scalar(begin), last = names_.unique("end");
  out_.line(fmt::format("const int32_t {} = {};", last, scalar(end)));
  const std::string name = name_variable(index);
  out_.open(fmt::format("for (int32_t {0} = {1}; {0} < {2}; ++{0}) {{  // {3}", name, first, last,
                        short_location(at)));
}

// The tiles of sums that the loop would begin, where it has no step.
void GridPrinter::clear_without_steps(const For& loop, std::span<const BegunSum> sums) {
  if (sums.empty()) return;
  out_.open(fmt::format("if ({} <= {}) {{", scalar(loop.end[0]), scalar(loop.begin[0])));
  for (const BegunSum& sum : sums) rows({*row_op(sum.clear)});
  out_.close();
}

void GridPrinter::operator()(const For& n, const Stmt& s) {
  fetches_.merge(fetches_ahead(n));
  const auto found = begun_.find(s.get());
  const std::span<const BegunSum> begun = found == begun_.end() ? std::span<const BegunSum>() : found->second;
  clear_without_steps(n, begun);
  for (const BegunSum& sum : begun) let_sums_leave(n, sum);
  for (std::size_t i = 0; i < n.index.size(); ++i) open_loop(n.index[i], n.begin[i], n.end[i], s->at);
  for (const BegunSum& sum : begun)
    adds_[sum.product.get()] = fmt::format("{} > {}", scalar(variable(n.index[0])), scalar(n.begin[0]));
  if (n.kind == LoopKind::pipelined) of_maxima_.merge(of_running_maxima(n.body));
  loops_.push_back(n.index);
  pipelined_ += n.kind == LoopKind::pipelined;
  in_scope(n.body);
  pipelined_ -= n.kind == LoopKind::pipelined;
  loops_.pop_back();
  for (std::size_t i = 0; i < n.index.size(); ++i) out_.close();
}

void GridPrinter::masked(const If& n, const Loc& at) {
  const std::string outer = mask_, name = names_.unique("mask"), condition = vector(n.condition);
  const std::string joined = outer.empty() ? "" : " & " + outer;
  out_.line(fmt::format("const vm {} = {}{};", name, condition, joined), at);
  mask_ = name;
  in_scope(n.then);
  if (!n.otherwise.empty()) {
    const std::string other = names_.unique("mask");
    out_.line(fmt::format("const vm {} = ~{}{};", other, name, joined));
    mask_ = other;
    in_scope(n.otherwise);
  }
  mask_ = outer;
}

void GridPrinter::operator()(const If& n, const Stmt& s) {
  if (varies(n.condition)) return masked(n, s->at);
  out_.open(fmt::format("if ({}) {{  // {}", scalar(n.condition), short_location(s->at)));
  in_scope(n.then);
  if (!n.otherwise.empty()) {
    out_.reopen("} else {");
    in_scope(n.otherwise);
  }
  out_.close();
}

void GridPrinter::operator()(const While& n, const Stmt& s) {
  out_.open(fmt::format("for (;;) {{  // {}", short_location(s->at)));
  body(n.test);
  out_.line(fmt::format("if (!({})) break;", scalar(n.condition)));
  in_scope(n.body);
  out_.close();
}

void GridPrinter::operator()(const Break& n, const Stmt& s) {
  out_.line(fmt::format("if ({}) break;", scalar(n.condition)), s->at);
}

void GridPrinter::operator()(const Exit& n, const Stmt& s) {
  out_.line(fmt::format("if ({}) return;", scalar(n.condition)), s->at);
}

// Adds a report, and gives the values of the loops' indices as an argument for the call that makes it.
std::string GridPrinter::report_place(std::vector<CpuProgram::Report>& reports, const std::string& text,
                                      const Loc& at) {
  CpuProgram::Report report{text, at, {}};
  std::string values;
  for (const auto& loop : loops_) {
    report.loops.emplace_back();
    for (const VariablePtr& index : loop) {
      report.loops.back().push_back(index->name);
      values += (values.empty() ? "" : ", ") + variable_text(index);
    }
  }
  reports.push_back(std::move(report));
  if (values.empty()) return "nullptr";
  const std::string name = names_.unique("indices");
  out_.line(fmt::format("const int32_t {}[] = {{{}}};", name, values));
  return name;
}

void GridPrinter::operator()(const Print& n, const Stmt& s) {
  const bool real = n.value->held().is_floating();
  const std::string value = scalar(n.value), place = report_place(program_.prints, n.label, s->at);
  out_.line(fmt::format("call->print(call->context, {}, {}, {}, {}, {});", program_.prints.size() - 1, place,
                        real                         ? "real_value"
                        : n.value->type.is_boolean() ? "truth_value"
                                                     : "integer_value",
                        real ? "0" : fmt::format("int64_t({})", value),
                        real ? fmt::format("double({})", value) : "0"),
            s->at);
}

void GridPrinter::operator()(const Assert& n, const Stmt& s) {
  out_.open(fmt::format("if (!({})) {{", scalar(n.condition)));
  const std::string place = report_place(program_.assertions, n.message, s->at);
  out_.line(fmt::format("call->fail(call->context, {}, {});", program_.assertions.size() - 1, place), s->at);
  out_.line("return;");
  out_.close();
}

void GridPrinter::operator()(const Atomic& n, const Stmt& s) {
  static const char* const names[] = {"AtomicAdd", "AtomicMin", "AtomicMax", "AtomicOr", "AtomicAnd"};
  const BufferPtr& buffer = n.to.view.buffer;
  const std::string value = scalar(held_as(n.value, buffer->type)), op = names[static_cast<int>(n.op)];
  const Address at = address(n.to);
  const std::string guard = at.guard.empty() ? "" : fmt::format("if ({}) ", at.guard);
  if (buffer->is_tile()) {
    const std::string sum = fmt::format("{}::of(*({}), {})", op, at.pointer, value);
    out_.line(fmt::format("{}*({}) = {};", guard, at.pointer, rounded(buffer->type, sum)), s->at);
  } else {
    out_.line(fmt::format("{}atomic_update<{}>({}, {});", guard, op, at.pointer, value), s->at);
  }
}

}  // namespace tegula::codegen
