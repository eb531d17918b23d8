// Loops that bring rows of tensors to shared tiles: in pieces of 16 bytes, consecutive threads along a row.
#include <fmt/format.h>

#include "codegen/cuda/row_printer.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

constexpr std::int64_t most_rows_looked_up = 8;  // by a thread, before it copies
// Registers of a piece whose words are on their way, of where its row is, and of what a thread has beside
// them. Where these are too few, the assembler lets loads wait for the words of those before them.
constexpr std::int64_t words_on_the_way = 8, registers_of_row = 3, beside_pieces = 40;

}  // namespace

// The address of the first chunk of a row, and whether the row exists.
GuardedAddress RowPrinter::row_address(const passes::RowCopy& plan, bool async) {
  const Access& from = plan.load->from;
  if (async && plan.elements > 1) {
    require_aligned(from.view.buffer, plan.unit);
    aligned_ = from.view.buffer.get();
  }
  if (plan.may_be_cut) unlimited_ = {plan.dim};
  const GuardedAddress result = address(from);
  aligned_ = nullptr;
  unlimited_.clear();
  return result;
}

// How many bytes there are of the piece at the loop's column, `more` elements further.
std::string RowPrinter::piece_bytes_text(const passes::RowCopy& plan, std::int64_t more) {
  if (!plan.may_be_cut) return std::to_string(passes::piece_bytes);
  const View& view = plan.load->from.view;
  const ViewDim& dim = view.dims[plan.dim];
  std::string first = value(coordinates(plan.load->from)[plan.dim]), end = value(view.shape[plan.dim]);
  if (dim.high && !equal(dim.high, view.shape[plan.dim]))
    end = fmt::format("tg::min<int64_t>({}, {})", end, value(dim.high));
  if (more > 0) first += fmt::format(" + {}", more);
  return fmt::format("tg::bytes_of_piece<{}>({}, {})", element_type(view.buffer->type), first, end);
}

void RowPrinter::rows(const passes::RowCopy& plan, bool async) {
  const auto& loop = *as<For>(plan.loop);
  out_.code();
  touch_all(loop.body);
  out_.open(fmt::format("{{  // {}: rows in pieces of {} bytes", location_in_folder(plan.loop->at),
                        plan.elements * plan.store->to.view.buffer->type.bytes()));
  const Facts before = facts_;
  loop_ = ElementLoop{&loop, nullptr, ""};
  const std::int64_t pieces = constant_value(loop.end.back()) / plan.elements;
  facts_.add_range(loop.index.back(), {0, (pieces - 1) * plan.elements});
  const TileOrder order = shared_.at(plan.store->to.view.buffer.get()).order;
  const std::int64_t blocks =
      order.is_swizzled() ? constant_value(loop.end.back()) / order.columns : 1;  // of columns
  if (async && plan.elements > 1 && team_.threads % (pieces / blocks) == 0)
    rows_in_batches(loop, plan, pieces, blocks);
  else
    rows_one_by_one(loop, plan, pieces, async);
  if (async && plan.holds_words()) out_.line("tg::order_pieces();");
  loop_.reset();
  facts_ = before;
  out_.close();
}

void RowPrinter::name_column(const For& loop, const std::string& number, std::int64_t pieces, int elements) {
  out_.line(fmt::format("const int32_t {} = {} % {} * {};", name_variable(loop.index.back()), number, pieces,
                        elements));
}

void RowPrinter::lookup(const For& loop, const passes::RowCopy& plan) {
  body(Body(loop.body.begin(), loop.body.begin() + static_cast<std::ptrdiff_t>(plan.lookups)));
}

void RowPrinter::rows_one_by_one(const For& loop, const passes::RowCopy& plan, std::int64_t pieces,
                                 bool async) {
  std::int64_t count = pieces;
  for (std::size_t d = 0; d + 1 < loop.end.size(); ++d) count *= constant_value(loop.end[d]);
  const std::string f = names_.unique("f");
  // Rows that are known to begin off 16 bytes come by the words around their pieces.
  const bool by_words = !async && !is_ahead_ && plan.elements > 1 && plan.unit < passes::piece_bytes;
  out_.line(is_ahead_ ? "#pragma unroll 1" : by_words ? "#pragma unroll 4" : "#pragma unroll 2");
  out_.open(
      fmt::format("for (int {0} = {1}; {0} < {2}; {0} += {3}) {{", f, team_.thread, count, team_.threads));
  name_column(loop, f, pieces, plan.elements);
  name_rows(loop, fmt::format("{} / {}", f, pieces));
  lookup(loop, plan);
  const GuardedAddress from = row_address(plan, async || by_words), to = address(plan.store->to);
  const std::string exists = from.guard.empty() ? "true" : from.guard;
  if (async && !plan.may_be_cut && plan.unit == passes::piece_bytes) {
    out_.line(fmt::format("tg::{}({}, {}, {});", plan.elements > 1 ? "copy_async" : "copy_element_async",
                          to.pointer, from.pointer, exists));
  } else if (async && !plan.holds_words()) {
    copy_piece(plan, from.pointer, exists, piece_bytes_text(plan, 0));
  } else if (async || by_words) {
    out_.line(fmt::format("tg::store_piece({}, {});", to.pointer,
                          held_piece_text({from.pointer, exists, piece_bytes_text(plan, 0), ""})));
  } else {
    const std::string count = plan.may_be_cut ? fmt::format("{} / {}", piece_bytes_text(plan, 0),
                                                            passes::piece_bytes / plan.elements)
                                              : std::to_string(plan.elements);
    out_.line(fmt::format("tg::{}({}, {}, {}, {} ? {} : 0);", is_ahead_ ? "bring" : "copy_vector", to.pointer,
                          from.pointer, stride_text(plan.load->from.view, plan.dim), exists, count));
  }
  out_.close();
}

// That a thread looks up before it copies.
std::int64_t RowPrinter::rows_at_once(const passes::RowCopy& plan, std::int64_t blocks) const {
  std::int64_t rows = most_rows_looked_up;
  if (!plan.holds_words()) return rows;
  const std::int64_t of_row = blocks * words_on_the_way + registers_of_row,
                     most = registers_of_producer() - beside_pieces;
  while (rows > 1 && rows * of_row > most) rows /= 2;
  return rows;
}

// All pieces of a thread are in one column of each block of columns. Several rows are looked up before the
// first is copied, because no load from shared memory overtakes a copy into it.
void RowPrinter::rows_in_batches(const For& loop, const passes::RowCopy& plan, std::int64_t pieces,
                                 std::int64_t blocks) {
  std::int64_t count = 1;
  for (std::size_t d = 0; d + 1 < loop.end.size(); ++d) count *= constant_value(loop.end[d]);
  const std::int64_t lanes = pieces / blocks, step = team_.threads / lanes;
  std::int64_t batch = rows_at_once(plan, blocks);
  while (batch > 0 && count % (batch * step) != 0) batch /= 2;
  if (batch == 0) return rows_one_by_one(loop, plan, pieces, true);
  const std::string f = names_.unique("f"), from = names_.unique("from"), exists = names_.unique("exists");
  name_column(loop, team_.thread, lanes, plan.elements);
  const Texts bytes = bytes_of_pieces(plan, lanes, blocks);
  out_.line("#pragma unroll 1");
  out_.open(fmt::format("for (int {0} = {1} / {2}; {0} < {3}; {0} += {4}) {{", f, team_.thread, lanes, count,
                        batch * step));
  out_.line(fmt::format("const {}* {}[{}];", element_type(plan.load->from.view.buffer->type), from, batch));
  out_.line(fmt::format("bool {}[{}];", exists, batch));
  const auto each = [&](const std::function<void()>& print) {
    out_.line("#pragma unroll");
    out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", batch));
    name_rows(loop, fmt::format("({} + r * {})", f, step));
    print();
    out_.close();
  };
  each([&] {
    lookup(loop, plan);
    const GuardedAddress at = row_address(plan, true);
    out_.line(fmt::format("{}[r] = {};", from, at.pointer));
    out_.line(fmt::format("{}[r] = {};", exists, at.guard.empty() ? "true" : at.guard));
  });
  const std::string column = variable_text(loop.index.back());
  copy_pieces(plan, batch * blocks, [&](const std::function<void(const Piece&)>& print) {
    each([&] {
      for (std::int64_t i = 0; i < blocks; ++i) {
        const std::int64_t begin = i * lanes * plan.elements;
        values_.set(loop.index.back(), i == 0 ? column : fmt::format("({} + {})", column, begin));
        print({fmt::format("{}[r]{}", from, i == 0 ? "" : fmt::format(" + {}", begin)),
               fmt::format("{}[r]", exists), bytes.empty() ? "" : bytes[static_cast<std::size_t>(i)],
               blocks == 1 ? "r" : fmt::format("{} * r + {}", blocks, i)});
      }
    });
  });
  out_.close();
}

// Each of them, which have numbers. Those that come by way of registers are all on their way before the first
// is stored.
void RowPrinter::copy_pieces(const passes::RowCopy& plan, std::int64_t count, const EachPiece& each) {
  if (!plan.holds_words())
    return each([&](const Piece& piece) { copy_piece(plan, piece.from, piece.exists, piece.bytes); });
  const std::string words = names_.unique("words");
  out_.line(fmt::format("uint4 {}[{}];", words, count));
  each([&](const Piece& piece) {
    out_.line(fmt::format("{}[{}] = {};", words, piece.number, held_piece_text(piece)));
  });
  each([&](const Piece& piece) {
    out_.line(
        fmt::format("tg::store_piece({}, {}[{}]);", address(plan.store->to).pointer, words, piece.number));
  });
}

std::string RowPrinter::held_piece_text(const Piece& piece) const {
  return fmt::format("tg::load_piece({}, {} ? {} : 0)", piece.from, piece.exists,
                     piece.bytes.empty() ? std::to_string(passes::piece_bytes) : piece.bytes);
}

// Of a piece in each block of columns, where rows may be cut off.
RowPrinter::Texts RowPrinter::bytes_of_pieces(const passes::RowCopy& plan, std::int64_t lanes,
                                              std::int64_t blocks) {
  Texts bytes;
  for (std::int64_t i = 0; plan.may_be_cut && i < blocks; ++i) {
    bytes.push_back(names_.unique("bytes"));
    out_.line(
        fmt::format("const int {} = {};", bytes.back(), piece_bytes_text(plan, i * lanes * plan.elements)));
  }
  return bytes;
}

void RowPrinter::copy_piece(const passes::RowCopy& plan, const std::string& from, const std::string& exists,
                            const std::string& bytes) {
  const std::string to = address(plan.store->to).pointer;
  if (plan.unit < passes::piece_bytes)
    out_.line(fmt::format("tg::copy_units_async<{}>({}, {}, {} ? {} : 0);", plan.unit, to, from, exists,
                          bytes.empty() ? std::to_string(passes::piece_bytes) : bytes));
  else if (bytes.empty() || !plan.cuts_pieces)
    out_.line(fmt::format("tg::copy_async({}, {}, {}{});", to, from, exists,
                          bytes.empty() ? "" : fmt::format(" && {} > 0", bytes)));
  else
    out_.line(fmt::format("tg::copy_bytes_async({}, {}, {} ? {} : 0);", to, from, exists, bytes));
}

// The indices before the last from the number of the row.
void RowPrinter::name_rows(const For& loop, const std::string& number) {
  std::int64_t step = 1;
  for (std::size_t d = loop.index.size() - 1; d-- > 0;) {
    const std::int64_t extent = constant_value(loop.end[d]);
    std::string text = step == 1 ? number : fmt::format("{} / {}", number, step);
    if (d > 0) text += fmt::format(" % {}", extent);
    out_.line(fmt::format("const int32_t {} = {};", name_variable(loop.index[d]), text));
    facts_.add_range(loop.index[d], {0, extent - 1});
    step *= extent;
  }
}

}  // namespace tegula::codegen
