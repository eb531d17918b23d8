// Loops that bring rows of tensors to shared tiles: in pieces of 16 bytes, consecutive threads along a row.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

constexpr std::int64_t most_rows_looked_up = 8;  // by a thread, before it copies

}  // namespace

void CudaGridPrinter::require_aligned(const BufferPtr& tensor) {
  program_.aligned.insert(signature_.slot_of(tensor.get()));
}

GuardedAddress CudaGridPrinter::aligned_address(const Access& access) {
  require_aligned(access.view.buffer);
  aligned_ = access.view.buffer.get();
  const GuardedAddress result = address(access);
  aligned_ = nullptr;
  return result;
}

void CudaGridPrinter::rows(const Stmt& s, const passes::RowCopy& plan, bool async) {
  const auto& loop = *as<For>(s);
  out_.code();
  touch_all(loop.body);
  out_.open(fmt::format("{{  // {}: rows in pieces of 16 bytes", location_in_folder(s->at)));
  const Facts before = facts_;
  loop_ = ElementLoop{&loop, nullptr, ""};
  const std::int64_t pieces = constant_value(loop.end.back()) / plan.elements;
  facts_.add_range(loop.index.back(), {0, (pieces - 1) * plan.elements});
  const TileOrder order = shared_.at(plan.store->to.view.buffer.get()).order;
  const std::int64_t blocks =
      order.is_swizzled() ? constant_value(loop.end.back()) / order.columns : 1;  // of columns
  if (async && team_.threads % (pieces / blocks) == 0)
    rows_in_batches(loop, plan, pieces, blocks);
  else
    rows_one_by_one(loop, plan, pieces, async);
  loop_.reset();
  facts_ = before;
  out_.close();
}

void CudaGridPrinter::name_column(const For& loop, const std::string& number, std::int64_t pieces,
                                  int elements) {
  out_.line(fmt::format("const int32_t {} = {} % {} * {};", name_variable(loop.index.back()), number, pieces,
                        elements));
}

void CudaGridPrinter::lookup(const For& loop, const passes::RowCopy& plan) {
  body(Body(loop.body.begin(), loop.body.begin() + static_cast<std::ptrdiff_t>(plan.lookups)));
}

void CudaGridPrinter::rows_one_by_one(const For& loop, const passes::RowCopy& plan, std::int64_t pieces,
                                      bool async) {
  std::int64_t count = pieces;
  for (std::size_t d = 0; d + 1 < loop.end.size(); ++d) count *= constant_value(loop.end[d]);
  const std::string f = names_.unique("f");
  out_.line(is_ahead_ ? "#pragma unroll 1" : "#pragma unroll 2");
  out_.open(
      fmt::format("for (int {0} = {1}; {0} < {2}; {0} += {3}) {{", f, team_.thread, count, team_.threads));
  name_column(loop, f, pieces, plan.elements);
  name_rows(loop, fmt::format("{} / {}", f, pieces));
  lookup(loop, plan);
  const GuardedAddress from = async ? aligned_address(plan.load->from) : address(plan.load->from),
                       to = address(plan.store->to);
  const std::string exists = from.guard.empty() ? "true" : from.guard;
  if (async) {
    out_.line(fmt::format("tg::copy_async({}, {}, {});", to.pointer, from.pointer, exists));
  } else {
    out_.line(fmt::format("tg::{}({}, {}, {}, {} ? {} : 0);", is_ahead_ ? "bring" : "copy_vector", to.pointer,
                          from.pointer, stride_text(plan.load->from.view, plan.dim), exists, plan.elements));
  }
  out_.close();
}

// All pieces of a thread lie in one column of each block of columns. Several rows are looked up before the
// first is copied, because no load from shared memory overtakes a copy into it.
void CudaGridPrinter::rows_in_batches(const For& loop, const passes::RowCopy& plan, std::int64_t pieces,
                                      std::int64_t blocks) {
  std::int64_t count = 1;
  for (std::size_t d = 0; d + 1 < loop.end.size(); ++d) count *= constant_value(loop.end[d]);
  const std::int64_t lanes = pieces / blocks, step = team_.threads / lanes;
  std::int64_t batch = most_rows_looked_up;
  while (batch > 0 && count % (batch * step) != 0) batch /= 2;
  if (batch == 0) return rows_one_by_one(loop, plan, pieces, true);
  const std::string f = names_.unique("f"), from = names_.unique("from"), exists = names_.unique("exists");
  name_column(loop, team_.thread, lanes, plan.elements);
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
    const GuardedAddress at = aligned_address(plan.load->from);
    out_.line(fmt::format("{}[r] = {};", from, at.pointer));
    out_.line(fmt::format("{}[r] = {};", exists, at.guard.empty() ? "true" : at.guard));
  });
  const std::string column = variable_text(loop.index.back());
  each([&] {
    for (std::int64_t i = 0; i < blocks; ++i) {
      const std::int64_t begin = i * lanes * plan.elements;
      values_.set(loop.index.back(), i == 0 ? column : fmt::format("({} + {})", column, begin));
      out_.line(fmt::format("tg::copy_async({}, {}[r]{}, {}[r]);", address(plan.store->to).pointer, from,
                            i == 0 ? "" : fmt::format(" + {}", begin), exists));
    }
  });
  out_.close();
}

// The indices before the last from the number of the row.
void CudaGridPrinter::name_rows(const For& loop, const std::string& number) {
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
