// Loops that convert rows of tensors into tiles: several pieces are on their way to a thread before it makes
// the first, because no load overtakes a store into the tile.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/cuda/row_printer.hpp"
#include "ir/lists.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/build_schedule.hpp"
#include "passes/cuda/existing_rows.hpp"

namespace tegula::codegen {

using namespace ir;
using Of = passes::RowConversion::Of;

namespace {

// Registers of a thread for data in flight: in a converting producer with additional registers, and
// elsewhere.
constexpr int registers_to_convert = 80;
constexpr std::int64_t many_words = 52, few_words = 12;

// The same names for the statements of a copy of the loop.
PieceRegisters with_names_of(const For& loop, const For& copy, const PieceRegisters& registers) {
  PieceRegisters result = registers;
  result.vectors.names.clear();
  for (std::size_t i = 0; i < loop.body.size(); ++i)
    if (const auto found = registers.vectors.names.find(loop.body[i].get());
        found != registers.vectors.names.end())
      result.vectors.names.emplace(copy.body[i].get(), found->second);
  return result;
}

// Variables of statements of the row that elements, or the store, need.
std::vector<VariablePtr> kept_variables(const passes::RowConversion& plan, const Body& body) {
  std::vector<VariablePtr> result;
  for (std::size_t i = 0; i < plan.statements.size(); ++i) {
    if (plan.statements[i] != Of::row) continue;
    for_each_definition(body[i], [&](const VariablePtr& own) {
      const auto needs = [&](std::size_t k) {
        bool found = false;
        if (k + 1 < body.size() && plan.statements[k] != Of::element) return false;
        for_each_expr(body[k], [&](const Expr& e) { found |= uses(e, own); });
        return found;
      };
      for (std::size_t k = i + 1; k < body.size(); ++k)
        if (needs(k)) return result.push_back(own);
    });
  }
  return result;
}

}  // namespace

void RowPrinter::add_indices(const For& n) {
  for (std::size_t d = 0; d < n.index.size(); ++d) facts_.add_index(n.index[d], n.begin[d], n.end[d]);
}

// How many pieces each thread makes, if all make as many and the tile takes them side by side; else 0.
std::int64_t RowPrinter::pieces_of_thread(const passes::RowConversion& plan) const {
  const For& loop = *as<For>(plan.loop);
  const Access& to = as<Store>(loop.body.back())->to;
  const TileOrder& order = shared_.at(to.view.buffer.get()).order;
  if (!order.is_swizzled() || order.columns % plan.elements != 0) return 0;
  for (std::size_t i = 0; i < plan.statements.size(); ++i) {
    const auto* load = as<Load>(loop.body[i]);
    if (plan.statements[i] == Of::piece && !is_aligned(loop, load->from, plan.elements)) return 0;
  }
  std::int64_t pieces = pieces_of_row(plan);
  for (std::size_t d = 0; d + 1 < loop.end.size(); ++d) pieces *= constant_value(loop.end[d]);
  return pieces % team_.threads == 0 ? pieces / team_.threads : 0;
}

// Dimensions whose limits each piece asks for itself: that of the row if some pieces are outside, and those
// that differ from row to row, so that the rows of a tile that do not exist leave vectors to the others. All
// threads of a block, who compute as well, ask once for a whole tile.
std::vector<std::size_t> RowPrinter::dims_asked_by_piece(const For& loop, const Access& from,
                                                         int elements) const {
  std::vector<std::size_t> result = dims_of_some_pieces(loop, from, elements);
  if (!roles_ || is_consumer_) return result;
  const std::vector<Expr> at = coordinates(from);
  for (std::size_t d = 0; d + 1 < at.size(); ++d) {
    if (in_existing_rows_ && passes::goes_by_row(loop, at[d])) continue;
    const bool by_row = std::any_of(loop.index.begin(), loop.index.end() - 1,
                                    [&](const VariablePtr& v) { return uses(at[d], v); });
    if (by_row) result.push_back(d);
  }
  return result;
}

// Under which a thread may load pieces.
RowPrinter::Texts RowPrinter::conditions_of_pieces(const passes::RowConversion& plan) {
  const For& loop = *as<For>(plan.loop);
  Texts result;
  for (std::size_t i = 0; i < plan.statements.size(); ++i) {
    const auto* load = as<Load>(loop.body[i]);
    if (plan.statements[i] == Of::piece)
      add_conditions(loop, load->from, plan.elements, result,
                     dims_asked_by_piece(loop, load->from, plan.elements));
    else if (in_existing_rows_ && plan.statements[i] == Of::row && load)
      add_corner_limits(loop, load->from, dims_of_rows(loop, *load), result);
  }
  return result;
}

// Dimensions of what is read once a row whose limits are asked for the whole tile.
std::vector<std::size_t> RowPrinter::dims_of_rows(const For& loop, const Load& load) const {
  std::vector<std::size_t> result;
  if (!in_existing_rows_ || load.from.view.is_tile()) return result;
  const std::vector<Expr> at = coordinates(load.from);
  for (const std::size_t d : dims_known_before(loop, load.from))
    if (passes::goes_by_row(loop, at[d])) result.push_back(d);
  return result;
}

// Prints pieces without questions of each row for tiles all of whose rows exist, where that saves any, and as
// planned for the others; `otherwise` where pieces cannot be loaded.
void RowPrinter::by_existing_rows(const passes::RowConversion& plan, const PieceRegisters& registers,
                                  bool in_ranges, const PrintPieces& pieces,
                                  const std::function<void()>& otherwise) {
  const passes::ExistingRows whole = passes::existing_rows(plan);
  const PieceRegisters own = with_names_of(*as<For>(plan.loop), *as<For>(whole.rows.loop), registers);
  const Texts asked = conditions_of_pieces(plan);
  // Of two tensors the assembler would load pieces behind the stores of others, one way after the other, but
  // where each thread has pieces of one of them.
  in_existing_rows_ =
      roles_ && !is_consumer_ &&
      (plan.reads_one_tensor() ||
       (in_ranges && (moves_in_ranges(whole.rows) || !ranges_of_threads(whole.rows).empty())));
  Texts conditions = conditions_of_pieces(whole.rows);
  for (const Expr& e : whole.conditions) {
    const std::string text = compared(e, value(e));
    if (!contains(conditions, text)) conditions.push_back(text);
  }
  const bool saves = in_existing_rows_ && (conditions != asked);
  if (saves) {
    out_.open(fmt::format("if ({}) {{", fmt::join(conditions, " && ")));
    const std::optional<ElementLoop> outer = loop_;
    loop_ = ElementLoop{as<For>(whole.rows.loop), nullptr, ""};
    pieces(whole.rows, own);
    loop_ = outer;
  }
  in_existing_rows_ = false;
  if (!saves && asked.empty()) return pieces(plan, registers);
  if (saves)
    out_.reopen(asked.empty() ? "} else {" : fmt::format("}} else if ({}) {{", fmt::join(asked, " && ")));
  else
    out_.open(fmt::format("if ({}) {{", fmt::join(asked, " && ")));
  pieces(plan, registers);
  if (otherwise && !asked.empty()) {
    out_.reopen("} else {");
    otherwise();
  }
  out_.close();
}

void RowPrinter::convert_rows(const passes::RowConversion& plan) {
  const For& loop = *as<For>(plan.loop);
  out_.code();
  touch_all(loop.body);
  out_.open(fmt::format("{{  // {}: {} elements of a row at a time", location_in_folder(plan.loop->at),
                        plan.elements));
  const Facts before = facts_;
  add_indices(loop);
  loop_ = ElementLoop{&loop, nullptr, ""};
  by_existing_rows(
      plan, registers_of_pieces(plan), true,
      [&](const auto& rows, const auto& registers) { convert_in_batches(rows, registers); },
      [&] { convert_elements(loop); });
  loop_.reset();
  facts_ = before;
  out_.close();
}

// The indices of the thread's piece: of its first element along the row.
void RowPrinter::name_piece(const passes::RowConversion& plan, const std::string& round) {
  const For& loop = *as<For>(plan.loop);
  const std::int64_t of_row = pieces_of_row(plan);
  const bool by_producer = roles_ && !is_consumer_;
  if (by_producer && plan.reads_one_tensor() && loop.index.size() == 2 && team_.threads % of_row == 0)
    return name_piece_of_team(plan, of_row, round);
  const std::string f = names_.unique("f");
  out_.line(fmt::format("const int {} = {} + ({}) * {};", f, team_.thread, round, team_.threads));
  std::int64_t inner = 1;
  for (std::size_t d = loop.index.size(); d-- > 0;) {
    const bool along = d + 1 == loop.index.size();
    const std::int64_t extent = constant_value(loop.end[d]) / (along ? plan.elements : 1);
    std::string text = inner == 1 ? f : fmt::format("{} / {}", f, inner);
    if (d > 0) text += fmt::format(" % {}", extent);
    if (along) text += fmt::format(" * {}", plan.elements);
    out_.line(fmt::format("const {} {} = {};", scalar_type(loop.index[d]->type), name_variable(loop.index[d]),
                          text));
    inner *= extent;
  }
}

// Where all threads take whole rows, each of them takes the same columns of rows that are equally far apart:
// a form that shows that to the compiler of the text. Without a round, it is the thread's first row.
void RowPrinter::name_piece_of_team(const passes::RowConversion& plan, std::int64_t of_row,
                                    const std::string& round) {
  const For& loop = *as<For>(plan.loop);
  const auto name = [&](std::size_t d, const std::string& text) {
    out_.line(fmt::format("const {} {} = {};", scalar_type(loop.index[d]->type), name_variable(loop.index[d]),
                          text));
  };
  const std::string thread = fmt::format("uint32_t({})", team_.thread);
  const std::int64_t rows = team_.threads / of_row;
  const std::string first = fmt::format("int({} / {} % {})", thread, of_row, rows);
  name(1, fmt::format("int({} % {}) * {}", thread, of_row, plan.elements));
  name(0, round.empty() ? first : fmt::format("{} + ({}) * {}", first, round, rows));
}

std::int64_t RowPrinter::words_of_piece(const passes::RowConversion& plan) const {
  const Body& body = as<For>(plan.loop)->body;
  auto words = static_cast<std::int64_t>(kept_variables(plan, body).size());
  for (std::size_t i = 0; i < plan.statements.size(); ++i)
    if (plan.statements[i] == Of::piece)
      words += plan.elements * as<Load>(body[i])->from.view.buffer->type.bytes() / 4;
  return words;
}

PieceRegisters RowPrinter::registers_of_pieces(const passes::RowConversion& plan) {
  const For& loop = *as<For>(plan.loop);
  PieceRegisters result{.kept = kept_variables(plan, loop.body), .words = words_of_piece(plan)};
  const auto declare = [&](const std::string& type, const std::string& name) {
    result.declarations.push_back(fmt::format("{} {}", type, name));
    return name;
  };
  for (std::size_t i = 0; i < plan.statements.size(); ++i) {
    if (plan.statements[i] != Of::piece) continue;
    const DType type = as<Load>(loop.body[i])->from.view.buffer->type;
    const std::string name =
        declare(fmt::format("tg::Pack<{}, {}>", element_type(type), plan.elements), names_.unique("pack"));
    result.vectors.names.emplace(loop.body[i].get(), name + "[r]");
  }
  for (const VariablePtr& own : result.kept)
    result.kept_names.push_back(declare(std::string(scalar_type(own->type)), names_.unique("kept")));
  return result;
}

// A producer without a share of its own has as many registers as the kernel is launched with.
std::int64_t RowPrinter::registers_of_producer() const {
  const passes::RegisterShares shares = passes::register_shares(*roles_);
  return shares.producer > 0 ? shares.producer : shares.launch;
}

std::int64_t RowPrinter::words_to_convert() const {
  const bool many = roles_ && !is_consumer_ && registers_of_producer() > registers_to_convert;
  return many ? many_words : few_words;
}

void RowPrinter::each_piece(const passes::RowConversion& plan, std::int64_t count, const std::string& first,
                            const std::function<void()>& print) {
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", count));
  name_piece(plan, first.empty() ? "r" : first + " + r");
  print();
  out_.close();
}

void RowPrinter::load_pieces(const passes::RowConversion& plan, const PieceRegisters& registers) {
  load_piece(plan, registers.vectors);
  for (std::size_t i = 0; i < registers.kept.size(); ++i)
    out_.line(fmt::format("{}[r] = {};", registers.kept_names[i], variable_text(registers.kept[i])));
}

void RowPrinter::make_pieces(const passes::RowConversion& plan, const PieceRegisters& registers,
                             const Texts& places) {
  for (std::size_t i = 0; i < registers.kept.size(); ++i)
    values_.set(registers.kept[i], registers.kept_names[i] + "[r]");
  make_piece(plan, registers.vectors, places);
}

void RowPrinter::convert_in_batches(const passes::RowConversion& plan, const PieceRegisters& registers) {
  if (auto ranges = moving_pieces(plan, registers); !ranges.empty()) return convert_moving(std::move(ranges));
  if (auto ranges = ranges_of_threads(plan); !ranges.empty()) return convert_in_ranges(std::move(ranges));
  convert_batches(plan, registers);
}

void RowPrinter::convert_batches(const passes::RowConversion& plan, const PieceRegisters& registers) {
  const std::int64_t rounds = pieces_of_thread(plan);
  std::int64_t batch = 8;
  while (batch > 1 && (rounds % batch != 0 || batch * registers.words > words_to_convert())) batch /= 2;
  const std::string round = names_.unique("round");
  out_.line("#pragma unroll 1");
  out_.open(fmt::format("for (int {0} = 0; {0} < {1}; {0} += {2}) {{", round, rounds, batch));
  for (const std::string& line : registers.declarations) out_.line(fmt::format("{}[{}];", line, batch));
  each_piece(plan, batch, round, [&] { load_pieces(plan, registers); });
  each_piece(plan, batch, round, [&] { make_pieces(plan, registers, places_of_piece(plan)); });
  out_.close();
}

void RowPrinter::load_row(const passes::RowConversion& plan, std::size_t statement) {
  const For& loop = *as<For>(plan.loop);
  const Stmt& s = loop.body[statement];
  if (const auto* load = as<Load>(s)) unlimited_ = dims_of_rows(loop, *load);
  body({s});
  unlimited_.clear();
}

GuardedAddress RowPrinter::address_of_piece(const passes::RowConversion& plan, std::size_t statement) {
  const For& loop = *as<For>(plan.loop);
  const Access& from = as<Load>(loop.body[statement])->from;
  unlimited_ = dims_known_before(loop, from);
  for (const std::size_t d : dims_asked_by_piece(loop, from, plan.elements)) std::erase(unlimited_, d);
  GuardedAddress result = address(from);
  unlimited_.clear();
  return result;
}

// What is the same for the whole piece, and the piece of each tensor; zeros where there is no such row.
void RowPrinter::load_piece(const passes::RowConversion& plan, const Vectors& vectors) {
  const For& loop = *as<For>(plan.loop);
  for (std::size_t i = 0; i < plan.statements.size(); ++i) {
    const Stmt& s = loop.body[i];
    if (plan.statements[i] == Of::row) load_row(plan, i);
    if (plan.statements[i] != Of::piece) continue;
    const Access& from = as<Load>(s)->from;
    const GuardedAddress at = address_of_piece(plan, i);
    const std::string pack = fmt::format("tg::load_pack<{}>({})", plan.elements, at.pointer);
    const std::string none =
        fmt::format("tg::Pack<{}, {}>{{}}", element_type(from.view.buffer->type), plan.elements);
    out_.line(fmt::format("{} = {};", vectors.names.at(s.get()),
                          at.guard.empty() ? pack : fmt::format("{} ? {} : {}", at.guard, pack, none)));
  }
}

// Where the parts of the thread's piece are stored.
RowPrinter::Texts RowPrinter::places_of_piece(const passes::RowConversion& plan) {
  const Access& to = as<Store>(as<For>(plan.loop)->body.back())->to;
  Texts result;
  for (int first = 0; first < plan.elements; first += part_elements)
    result.push_back(part_pointer(to, first));
  return result;
}

void RowPrinter::make_piece(const passes::RowConversion& plan, Vectors vectors, const Texts& places) {
  const For& loop = *as<For>(plan.loop);
  const Access& to = as<Store>(loop.body.back())->to;
  const std::string values = names_.unique("values");
  vectors.width = plan.elements;
  vectors.names.emplace(loop.body.back().get(), values);
  vectors.in_parts.insert(loop.body.back().get());
  out_.line(fmt::format("tg::Values<{}, {}> {};", element_type(to.view.buffer->type), plan.elements, values));
  Body own;
  for (std::size_t i = 0; i < loop.body.size(); ++i)
    if (i + 1 == loop.body.size() || plan.statements[i] != Of::row) own.push_back(loop.body[i]);
  const VariablePtr& column = loop.index.back();
  const std::string first = variable_text(column);
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int e = 0; e < {}; ++e) {{", plan.elements));
  out_.line(fmt::format("const {} {} = {} + e;", scalar_type(column->type), name_variable(column), first));
  vectors_ = &vectors;
  body(own);
  vectors_ = nullptr;
  out_.close();
  for (std::size_t i = 0; i < places.size(); ++i)
    out_.line(fmt::format("tg::store_part({}, {}, {});", places[i], values, i * part_elements));
}

}  // namespace tegula::codegen
