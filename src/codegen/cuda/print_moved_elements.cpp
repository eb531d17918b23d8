// Elements that are only moved, from one place to another of their type.
#include <fmt/format.h>

#include "codegen/cuda/element_printer.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

constexpr int most_on_their_way = 4;  // pieces of a thread

// Pieces of such a loop, if their number is known.
std::int64_t pieces_of(const For& n, int width) {
  std::int64_t count = 1;
  for (const Expr& end : n.end) count *= is_constant(end) ? constant_value(end) : 0;
  return count / width;
}

}  // namespace

// The byte of an element, which a store of the same type takes.
void ElementPrinter::move_element(const Load& n, const Stmt& s) {
  const std::string type = element_type(n.from.view.buffer->type);
  std::string text;
  if (is_packed(s)) {
    text = fmt::format("{}.get(e)", vectors_->names.at(s.get()));
  } else {
    const GuardedAddress at = address(n.from);
    text = fmt::format("*({})", at.pointer);
    if (!at.guard.empty()) text = fmt::format("{} ? {} : {}{{}}", at.guard, text, type);
  }
  out_.line(fmt::format("const {} {} = {};", type, name_variable(n.variable), text), s->at);
}

// Whether the loop stores elements of a shared tile as they are in a tensor, in whole pieces of which every
// thread has as many.
bool ElementPrinter::moves_pieces(const For& n, const Vectors& vectors) const {
  if (n.body.size() != 2 || rows_found_ || !vectors.anywhere.empty()) return false;
  const auto* load = as<Load>(n.body[0]);
  const auto* store = as<Store>(n.body[1]);
  if (!load || !store || !vectors.names.contains(n.body[0].get()) ||
      !vectors.names.contains(n.body[1].get()) || vectors.in_parts.contains(n.body[1].get()))
    return false;
  const Buffer &from = *load->from.view.buffer, &to = *store->to.view.buffer;
  return from.space == Space::shared && !to.is_tile() && from.type == to.type &&
         vectors.width * to.type.bytes() == vector_bytes && is_variable(store->value, load->variable) &&
         pieces_of(n, vectors.width) > 0 && pieces_of(n, vectors.width) % team_.threads == 0;
}

// The indices of a loop's piece with this number, which is not negative.
void ElementPrinter::name_piece(const For& n, const std::string& number, int width) {
  std::int64_t inner = 1;
  for (std::size_t d = n.index.size(); d-- > 0;) {
    const int scale = d + 1 == n.index.size() ? width : 1;
    const std::int64_t extent = constant_value(n.end[d]) / scale;
    const std::string digit = d == 0 ? fmt::format("uint32_t({}) / {}", number, inner)
                                     : digit_text(fmt::format("uint32_t({})", number), inner, extent);
    out_.line(fmt::format("const int32_t {} = {};", name_variable(n.index[d]),
                          scale > 1 ? times(digit, scale) : digit));
    inner *= extent;
  }
}

// Several pieces are on their way to registers before the first is stored. Where all threads together have
// whole rows, those of a thread differ by their row alone.
void ElementPrinter::move_pieces(const For& n, const Vectors& vectors) {
  const std::int64_t pieces = pieces_of(n, vectors.width), rows = constant_value(n.end.front());
  const std::int64_t of_row = n.index.size() > 1 ? pieces / rows : 1;
  std::int64_t batch = most_on_their_way;
  while (pieces % (batch * team_.threads) != 0) batch /= 2;
  const std::string f = names_.unique("f");
  out_.line("#pragma unroll 1");
  out_.open(fmt::format("for (int {0} = {1}; {0} < {2}; {0} += {3}) {{", f, team_.thread, pieces,
                        batch * team_.threads));
  loop_ = ElementLoop{&n, nullptr, ""};
  Texts stores;
  std::string first;
  for (std::int64_t r = 0; r < batch; ++r) {
    const bool other_row = r > 0 && n.index.size() > 1 && team_.threads % of_row == 0;
    if (!other_row) {
      name_piece(n, r == 0 ? f : fmt::format("{} + {}", f, r * team_.threads), vectors.width);
    } else {
      const std::string row = name_variable(n.index.front());
      out_.line(fmt::format("const int32_t {} = {} + {};", row, first, r * team_.threads / of_row));
    }
    if (r == 0) first = variable_text(n.index.front());
    Vectors own = vectors;
    own.names[n.body[0].get()] = own.names[n.body[1].get()] = names_.unique("pack");
    own.moved.insert(n.body[1].get());
    begin_pieces(n, own, n.body[0], "");
    for (std::string& store : begin_pieces(n, own, n.body[1], "")) stores.push_back(std::move(store));
  }
  for (const std::string& store : stores) out_.line(store);
  loop_.reset();
  out_.close();
}

}  // namespace tegula::codegen
