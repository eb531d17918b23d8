// Ranges of columns of converted rows, where each thread has pieces of one of them: what is only copied comes
// by asynchronous copies, beside which others are converted.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "codegen/cuda/row_printer.hpp"
#include "passes/cuda/column_ranges.hpp"
#include "passes/cuda/existing_rows.hpp"

namespace tegula::codegen {

using namespace ir;
using Of = passes::RowConversion::Of;

namespace {

constexpr std::int64_t looked_up_at_once = 4;  // places of rows that a thread holds

}  // namespace

// Whether elements of 16 bits stay as they are.
bool RowPrinter::only_copies(const passes::RowConversion& plan) {
  const Body& body = as<For>(plan.loop)->body;
  const auto& store = *as<Store>(body.back());
  const auto piece = std::find(plan.statements.begin(), plan.statements.end(), Of::piece);
  if (!plan.reads_one_tensor() || std::count(plan.statements.begin(), plan.statements.end(), Of::element) > 0)
    return false;
  const auto& load = *as<Load>(body[static_cast<std::size_t>(piece - plan.statements.begin())]);
  return is_variable(store.value, load.variable) && load.from.view.buffer->type == store.to.view.buffer->type;
}

std::int64_t RowPrinter::pieces_of_row(const passes::RowConversion& plan) {
  const auto& store = *as<Store>(as<For>(plan.loop)->body.back());
  return store.to.view.extent(static_cast<int>(store.to.view.dims.size()) - 1) / plan.elements;
}

// Ranges whose rows are looked up; none where a thread would have pieces of several. Where rows move in tiles
// that are whole, few others are left.
std::vector<passes::RowConversion> RowPrinter::ranges_of_threads(const passes::RowConversion& plan) const {
  const bool by_producer = roles_ && !is_consumer_;
  if (!by_producer || as<For>(plan.loop)->index.size() != 2 || team_.threads % pieces_of_row(plan) != 0 ||
      !passes::moving_ranges(passes::existing_rows(plan).rows).empty())
    return {};
  std::vector<passes::RowConversion> result = passes::column_ranges(plan);
  const bool are_apart =
      std::all_of(result.begin(), result.end(), [](const auto& own) { return own.reads_one_tensor(); });
  return result.size() > 1 && are_apart ? result : std::vector<passes::RowConversion>();
}

// Prints for threads whose column, the text, is in the range.
void RowPrinter::in_range(const passes::RowConversion& plan, const std::string& column,
                          const std::function<void()>& print) {
  const For& loop = *as<For>(plan.loop);
  const std::int64_t begin = constant_value(loop.begin[1]), end = constant_value(loop.end[1]);
  Texts is_own;
  if (begin > 0) is_own.push_back(fmt::format("{} >= {}", column, begin));
  if (end < pieces_of_row(plan) * plan.elements) is_own.push_back(fmt::format("{} < {}", column, end));
  out_.open(fmt::format("if ({}) {{", fmt::join(is_own, " && ")));
  const Facts before = facts_;
  const std::optional<ElementLoop> outer = loop_;
  add_indices(loop);
  loop_ = ElementLoop{&loop, nullptr, ""};
  print();
  loop_ = outer;
  facts_ = before;
  out_.close();
}

void RowPrinter::wait_for_copies() {
  out_.line("tg::commit_copies();");
  out_.line("tg::wait_copies<0>();");
}

void RowPrinter::convert_in_ranges(std::vector<passes::RowConversion> ranges) {
  const std::string column = names_.unique("column");
  out_.line(fmt::format("const int {} = int(uint32_t({}) % {}) * {};", column, team_.thread,
                        pieces_of_row(ranges[0]), ranges[0].elements));
  std::stable_partition(ranges.begin(), ranges.end(), only_copies);
  for (const passes::RowConversion& own : ranges)
    in_range(own, column, [&] {
      if (only_copies(own))
        copy_looked_up(own);
      else
        convert_batches(own, registers_of_pieces(own));
    });
  if (only_copies(ranges[0])) wait_for_copies();
}

void RowPrinter::copy_looked_up(const passes::RowConversion& plan) {
  const std::int64_t pieces = pieces_of_thread(plan), together = std::gcd(pieces, looked_up_at_once);
  const std::string round = names_.unique("round");
  out_.line("#pragma unroll 1");
  out_.open(fmt::format("for (int {0} = 0; {0} < {1}; {0} += {2}) {{", round, pieces, together));
  each_piece(plan, together, round, [&] {
    for (std::size_t i = 0; i < plan.statements.size(); ++i) {
      if (plan.statements[i] == Of::row) load_row(plan, i);
      if (plan.statements[i] != Of::piece) continue;
      const GuardedAddress from = address_of_piece(plan, i);
      const Texts places = places_of_piece(plan);
      for (std::size_t part = 0; part < places.size(); ++part)
        out_.line(fmt::format("tg::copy_async({}, {}, {});", places[part],
                              plus(from.pointer, static_cast<std::int64_t>(part) * part_elements),
                              from.guard.empty() ? "true" : from.guard));
    }
  });
  out_.close();
}

}  // namespace tegula::codegen
