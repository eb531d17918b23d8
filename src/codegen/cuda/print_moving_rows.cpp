// Rows that threads convert through pointers that move from row to row: without additions of 64 bits for each
// piece, and without registers for places that are known from others, several pieces are on their way all the
// time, each replaced when it has been stored.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "codegen/cuda/row_printer.hpp"
#include "ir/lists.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/column_ranges.hpp"

namespace tegula::codegen {

using namespace ir;
using Of = passes::RowConversion::Of;

namespace {

constexpr std::int64_t rows_of_exchange = 8;  // after which a swizzled tile exchanges pieces as before
constexpr std::int64_t most_places = 4;       // of stores that a thread keeps
constexpr std::int64_t replaced_at_once = 2;  // pieces: their conversions run beside each other
constexpr std::int64_t most_under_way = 12;   // pieces: more have not been faster
// Registers of a thread that converts, beside those of pieces on their way.
constexpr std::int64_t registers_beside = 44;

}  // namespace

// Whether every element that the access reads exists where dimensions are asked for the whole tile.
bool RowPrinter::needs_no_question(const Access& from, const std::vector<std::size_t>& asked) {
  const std::vector<Expr> at = coordinates(from);
  Texts guards;
  for (std::size_t d = 0; d < at.size(); ++d)
    if (!contains(asked, d)) add_limits(from.view, d, at[d], "", guards);
  return guards.empty();
}

std::vector<std::size_t> RowPrinter::dims_asked_for_all(const passes::RowConversion& plan,
                                                        std::size_t statement) const {
  const For& loop = *as<For>(plan.loop);
  const auto& load = *as<Load>(loop.body[statement]);
  if (plan.statements[statement] == Of::row) return dims_of_rows(loop, load);
  std::vector<std::size_t> result = dims_known_before(loop, load.from);
  for (const std::size_t d : dims_asked_by_piece(loop, load.from, plan.elements)) std::erase(result, d);
  return result;
}

// Those of each range of columns, whose threads have the same columns of all their rows; none where rows are
// not found by moving.
std::vector<RowPrinter::MovingPieces> RowPrinter::moving_pieces(const passes::RowConversion& plan,
                                                                const PieceRegisters& registers) {
  std::vector<MovingPieces> result;
  if (!in_existing_rows_) return result;
  const std::vector<passes::MovingRows> ranges = passes::moving_ranges(plan);
  for (const passes::MovingRows& range : ranges) {
    const Facts before = facts_;
    add_indices(*as<For>(range.rows.loop));
    auto own = moving_range(plan, range, ranges.size() > 1 ? registers_of_pieces(range.rows) : registers);
    facts_ = before;
    if (!own) return {};
    result.push_back(std::move(*own));
  }
  return result;
}

bool RowPrinter::moves_in_ranges(const passes::RowConversion& plan) {
  in_existing_rows_ = true;
  const bool result = moving_pieces(plan, {}).size() > 1;
  in_existing_rows_ = false;
  return result;
}

// The rows of a piece are those of the one before and as many more as all threads take at once; a swizzled
// tile has them at equal distances, but for the exchange of pieces in a row, which recurs.
std::optional<RowPrinter::MovingPieces> RowPrinter::moving_range(const passes::RowConversion& plan,
                                                                 const passes::MovingRows& rows,
                                                                 const PieceRegisters& registers) {
  const std::int64_t of_row = pieces_of_row(plan);
  if (team_.threads % of_row != 0) return std::nullopt;
  MovingPieces result{rows};
  result.registers = registers;
  result.rows = team_.threads / of_row;
  result.phases = rows_of_exchange / std::gcd(rows_of_exchange, result.rows);
  result.pieces = pieces_of_thread(plan);
  result.held = std::min({result.pieces, most_under_way,
                          (registers_of_producer() - registers_beside) / registers.words}) /
                replaced_at_once * replaced_at_once;
  if (result.phases * plan.elements / part_elements > most_places || result.pieces % result.phases != 0 ||
      result.pieces % replaced_at_once != 0 || result.held <= 0)
    return std::nullopt;
  const Body& body = as<For>(rows.rows.loop)->body;
  for (std::size_t i = 0; i < rows.rows.statements.size(); ++i) {
    if (!rows.steps.contains(body[i].get())) continue;
    if (!needs_no_question(as<Load>(body[i])->from, dims_asked_for_all(rows.rows, i))) return std::nullopt;
  }
  return result;
}

// Eight threads that store at once have parts of pieces that are two parts each: every other part of a row of
// 128 bytes, and of the next row the parts between, so that they meet in no bank.
void RowPrinter::name_first_piece(const MovingPieces& moving) {
  const passes::RowConversion& plan = moving.moving.rows;
  const For& loop = *as<For>(plan.loop);
  const Access& to = as<Store>(loop.body.back())->to;
  const std::int64_t of_row = team_.threads / moving.rows, together = 4;
  const bool two_parts = plan.elements == 2 * part_elements &&
                         shared_.at(to.view.buffer.get()).order.columns == 2 * together * part_elements;
  if (!two_parts || of_row % together != 0 || moving.rows % 2 != 0)
    return name_piece_of_team(plan, of_row, "");
  const std::string thread = fmt::format("uint32_t({})", team_.thread);
  const auto name = [&](std::size_t d, const std::string& text) {
    out_.line(fmt::format("const {} {} = {};", scalar_type(loop.index[d]->type), name_variable(loop.index[d]),
                          text));
  };
  name(1, fmt::format("int({0} % 4 + {0} / 8 % {1} * 4) * {2}", thread, of_row / together, plan.elements));
  name(0, fmt::format("int({0} / {1} % {2} * 2 + {0} / 4 % 2)", thread, 2 * of_row, moving.rows / 2));
}

// Declares a pointer to what the statement loads of the thread's first row, and the distance to its next one.
void RowPrinter::declare_moving(MovingPieces& moving, std::size_t statement) {
  const passes::RowConversion& plan = moving.moving.rows;
  const Stmt& s = as<For>(plan.loop)->body[statement];
  const Access& from = as<Load>(s)->from;
  unlimited_ = dims_asked_for_all(plan, statement);
  const GuardedAddress first = address(from);
  unlimited_.clear();
  Texts terms;
  const std::vector<std::int64_t>& steps = moving.moving.steps.at(s.get());
  for (std::size_t d = 0; d < steps.size(); ++d)
    if (steps[d] != 0) terms.push_back(times(stride_text(from.view, d), steps[d] * moving.rows));
  MovingPieces::Pointer own{names_.unique("from"), names_.unique("step")};
  out_.line(fmt::format("const {}* {} = {};", element_type(from.view.buffer->type), own.name, first.pointer));
  out_.line(fmt::format("const int64_t {} = {};", own.step,
                        terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "))));
  moving.pointers.emplace(s.get(), own);
}

// What is the same for all rows, and pointers to what is not.
void RowPrinter::declare_rows(MovingPieces& moving) {
  const PieceRegisters& registers = moving.registers;
  const passes::RowConversion& plan = moving.moving.rows;
  const For& loop = *as<For>(plan.loop);
  moving.kept.resize(registers.kept.size());
  for (std::size_t i = 0; i < plan.statements.size(); ++i) {
    const Stmt& s = loop.body[i];
    const bool moves = moving.moving.steps.contains(s.get());
    if (moves) {
      declare_moving(moving, i);
    } else if (plan.statements[i] == Of::row) {
      if (as<Load>(s)) unlimited_ = dims_asked_for_all(plan, i);
      body({s});
      unlimited_.clear();
    }
    for_each_definition(s, [&](const VariablePtr& own) {
      const auto kept = std::find(registers.kept.begin(), registers.kept.end(), own);
      if (kept == registers.kept.end()) return;
      moving.kept[static_cast<std::size_t>(kept - registers.kept.begin())] =
          moves ? fmt::format("tg::load({})", moving.pointers.at(s.get()).name) : variable_text(own);
    });
  }
}

// Keeps the places where the first pieces are stored, one for each way in which a row exchanges its pieces.
void RowPrinter::declare_places(MovingPieces& moving) {
  const passes::RowConversion& plan = moving.moving.rows;
  const For& loop = *as<For>(plan.loop);
  const Access& to = as<Store>(loop.body.back())->to;
  const std::string row = variable_text(loop.index[0]);
  Texts places;
  for (std::int64_t phase = 0; phase < moving.phases; ++phase) {
    if (phase > 0) values_.set(loop.index[0], fmt::format("({} + {})", row, phase * moving.rows));
    for (int first = 0; first < plan.elements; first += part_elements)
      places.push_back(part_pointer(to, first));
  }
  values_.set(loop.index[0], row);
  moving.to = names_.unique("to");
  out_.line(fmt::format("{}* const {}[{}] = {{{}}};", element_type(to.view.buffer->type), moving.to,
                        places.size(), fmt::join(places, ", ")));
}

void RowPrinter::load_moving(const MovingPieces& moving) {
  const PieceRegisters& registers = moving.registers;
  const passes::RowConversion& plan = moving.moving.rows;
  const For& loop = *as<For>(plan.loop);
  for (std::size_t i = 0; i < plan.statements.size(); ++i)
    if (plan.statements[i] == Of::piece)
      out_.line(fmt::format("{} = tg::load_pack<{}>({});", registers.vectors.names.at(loop.body[i].get()),
                            plan.elements, moving.pointers.at(loop.body[i].get()).name));
  for (std::size_t i = 0; i < registers.kept.size(); ++i)
    out_.line(fmt::format("{}[r] = {};", registers.kept_names[i], moving.kept[i]));
  for (const Stmt& s : loop.body)
    if (const auto from = moving.pointers.find(s.get()); from != moving.pointers.end())
      out_.line(fmt::format("{} += {};", from->second.name, from->second.step));
}

RowPrinter::Texts RowPrinter::places_of_piece(const MovingPieces& moving, const std::string& piece) const {
  const passes::RowConversion& plan = moving.moving.rows;
  const Access& to = as<Store>(as<For>(plan.loop)->body.back())->to;
  const std::int64_t columns = shared_.at(to.view.buffer.get()).order.columns,
                     parts = plan.elements / part_elements;
  Texts result;
  for (std::int64_t part = 0; part < parts; ++part)
    result.push_back(fmt::format(
        "{}[{}] + {}", moving.to, plus(times(fmt::format("{} % {}", piece, moving.phases), parts), part),
        times(fmt::format("{} / {}", piece, moving.phases), moving.phases * moving.rows * columns)));
  return result;
}

// Each thread has pieces of one range. What is only copied is on its way while others convert.
void RowPrinter::convert_moving(std::vector<MovingPieces> ranges) {
  name_first_piece(ranges[0]);
  if (ranges.size() == 1) return convert_range(ranges[0]);
  const std::string column = variable_text(as<For>(ranges[0].moving.rows.loop)->index[1]);
  std::stable_partition(ranges.begin(), ranges.end(),
                        [](const MovingPieces& own) { return only_copies(own.moving.rows); });
  for (MovingPieces& own : ranges) {
    values_.set(as<For>(own.moving.rows.loop)->index[1], column);
    in_range(own.moving.rows, column, [&] {
      if (only_copies(own.moving.rows))
        copy_range(own);
      else
        convert_range(own);
    });
  }
  if (only_copies(ranges[0].moving.rows)) wait_for_copies();
}

void RowPrinter::copy_range(MovingPieces& moving) {
  const passes::RowConversion& plan = moving.moving.rows;
  declare_rows(moving);
  declare_places(moving);
  const MovingPieces::Pointer& from = moving.pointers.at(as<For>(plan.loop)->body.front().get());
  const std::string piece = names_.unique("piece");
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0}) {{", piece, moving.pieces));
  const Texts places = places_of_piece(moving, piece);
  for (std::size_t part = 0; part < places.size(); ++part)
    out_.line(fmt::format("tg::copy_async({}, {}, true);", places[part],
                          plus(from.name, static_cast<std::int64_t>(part) * part_elements)));
  out_.line(fmt::format("{} += {};", from.name, from.step));
  out_.close();
}

void RowPrinter::convert_range(MovingPieces& moving) {
  const passes::RowConversion& plan = moving.moving.rows;
  const PieceRegisters& registers = moving.registers;
  declare_rows(moving);
  declare_places(moving);
  for (const std::string& line : registers.declarations) out_.line(fmt::format("{}[{}];", line, moving.held));
  const std::string piece = names_.unique("piece"), next = names_.unique("next");
  const auto each = [&](const std::string& name, const std::string& first, std::int64_t count,
                        const std::function<void()>& print) {
    out_.line("#pragma unroll");
    out_.open(fmt::format("for (int {0} = {1}; {0} < {2}; ++{0}) {{", name, first, plus(first, count)));
    print();
    out_.close();
  };
  each("r", "0", moving.held, [&] { load_moving(moving); });
  out_.line("tg::keep_order();");
  out_.line("#pragma unroll");
  out_.open(
      fmt::format("for (int {0} = 0; {0} < {1}; {0} += {2}) {{", next, moving.pieces, replaced_at_once));
  each(piece, next, replaced_at_once, [&] {
    out_.line(fmt::format("const int r = {} % {};", piece, moving.held));
    make_pieces(plan, registers, places_of_piece(moving, piece));
  });
  out_.line("tg::keep_order();");
  out_.open(fmt::format("if ({} + {} < {}) {{", next, moving.held, moving.pieces));
  each(piece, next, replaced_at_once, [&] {
    out_.line(fmt::format("const int r = {} % {};", piece, moving.held));
    load_moving(moving);
  });
  out_.line("tg::keep_order();");
  out_.close();
  out_.close();
}

}  // namespace tegula::codegen
