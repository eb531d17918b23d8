// 8-bit elements of tensors to tiles of the other order: threads turn four times four bytes in registers.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "passes/cuda/plan_byte_turns.hpp"

namespace tegula::codegen {

using namespace ir;

// Neighbouring threads store neighbouring words of a row of the tile, so that no two meet in a bank.
void CudaGridPrinter::turn_bytes(const For& n, const passes::ByteTurn& plan) {
  constexpr int rows = passes::turned_rows, columns = passes::turned_columns;
  const std::int64_t words = constant_value(n.end[0]) / rows, count = constant_value(n.end[1]) / columns * words;
  const std::string f = names_.unique("f"), packs = names_.unique("packs"), turned = names_.unique("turned"),
                    type = element_type(plan.load->from.view.buffer->type);
  const auto index = [&](const VariablePtr& v, const std::string& text) {
    const std::string_view own = scalar_type(v->type);
    out_.line(fmt::format("const {} {} = {};", own, name_variable(v), text));
  };
  out_.line("#pragma unroll 2");
  out_.open(fmt::format("for (int {0} = {1}; {0} < {2}; {0} += {3}) {{", f, team_.thread, count, team_.threads));
  index(n.index[0], fmt::format("{} % {} * {}", f, words, rows));
  index(n.index[1], fmt::format("{} / {} * {}", f, words, columns));
  const std::string row = variable_text(n.index[0]), column = variable_text(n.index[1]);
  loop_ = ElementLoop{&n, nullptr, ""};
  out_.line(fmt::format("tg::Pack<{}, {}> {}[{}];", type, columns, packs, rows));
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", rows));
  index(n.index[0], row + " + r");
  unlimited_ = dims_known_before(n, plan.load->from);
  out_.line(fmt::format("{}[r] = tg::load_pack<{}>({});", packs, columns, address(plan.load->from).pointer));
  unlimited_.clear();
  out_.close();
  out_.line(fmt::format("const auto {} = tg::turned_bytes({});", turned, packs));
  values_.set(n.index[0], row);
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int e = 0; e < {}; ++e) {{", columns));
  index(n.index[1], column + " + e");
  out_.line(fmt::format("*(uint32_t*)({}) = {}.word[e];", address(plan.store->to).pointer, turned));
  out_.close();
  loop_.reset();
  out_.close();
}

}  // namespace tegula::codegen
