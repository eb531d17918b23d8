// Loops that bring rows of tensors to shared tiles: in pieces of 16 bytes, consecutive threads along a row.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"

namespace tegula::codegen {

using namespace ir;

void CudaGridPrinter::require_aligned(const BufferPtr& tensor) {
  program_.aligned.insert(signature_.slot_of(tensor.get()));
}

// Where a thread's pieces all lie in one column, the column is found once.
void CudaGridPrinter::rows(const Stmt& s, const passes::RowCopy& plan, bool async) {
  const auto& loop = *as<For>(s);
  const std::int64_t pieces = constant_value(loop.end.back()) / plan.elements;
  std::int64_t count = 1;
  for (std::size_t d = 0; d + 1 < loop.end.size(); ++d) count *= constant_value(loop.end[d]);
  const bool one_column = team_.threads % pieces == 0;
  if (async) require_aligned(plan.load->from.view.buffer);
  out_.code();
  touch_all(loop.body);
  out_.open(fmt::format("{{  // {}: rows in pieces of 16 bytes", short_location(s->at)));
  const Facts before = facts_;
  const std::string column = name_variable(loop.index.back()), f = names_.unique("f");
  facts_.add_range(loop.index.back(), {0, (pieces - 1) * plan.elements});
  const auto name_column = [&](const std::string& number) {
    out_.line(fmt::format("const int32_t {} = {} % {} * {};", column, number, pieces, plan.elements));
  };
  if (one_column) name_column(team_.thread);
  out_.line(async ? "#pragma unroll 4" : "#pragma unroll 2");
  if (one_column)
    out_.open(fmt::format("for (int {0} = {1} / {2}; {0} < {3}; {0} += {4}) {{", f, team_.thread, pieces,
                          count, team_.threads / pieces));
  else
    out_.open(fmt::format("for (int {0} = {1}; {0} < {2}; {0} += {3}) {{", f, team_.thread, count * pieces,
                          team_.threads));
  if (!one_column) name_column(f);
  name_rows(loop, one_column ? f : fmt::format("{} / {}", f, pieces));
  loop_ = ElementLoop{&loop, nullptr, ""};
  body(Body(loop.body.begin(), loop.body.begin() + static_cast<std::ptrdiff_t>(plan.lookups)));
  piece(plan, async);
  loop_.reset();
  facts_ = before;
  out_.close();
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

void CudaGridPrinter::piece(const passes::RowCopy& plan, bool async) {
  const Address from = address(plan.load->from), to = address(plan.store->to);
  const std::string exists = from.guard.empty() ? "true" : from.guard;
  if (async) return out_.line(fmt::format("tg::copy_async({}, {}, {});", to.pointer, from.pointer, exists));
  out_.line(fmt::format("tg::copy_vector({}, {}, {}, {} ? {} : 0);", to.pointer, from.pointer,
                        stride_text(plan.load->from.view, plan.dim), exists, plan.elements));
}

}  // namespace tegula::codegen
