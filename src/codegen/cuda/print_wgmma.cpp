// Products of warp groups.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

struct Instruction {
  int n;
  std::string type;  // as in PTX: f16 or bf16
  bool a_in_registers, a_transposed, b_transposed;

  std::string name() const {
    return fmt::format("wgmma_n{}_{}{}{}{}", n, type, a_in_registers ? "_registers" : "",
                       a_transposed ? "_ta" : "", b_transposed ? "_tb" : "");
  }
  std::string text() const;
};

std::string list(int from, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += fmt::format("{}%{}", i == 0 ? "" : ", ", from + i);
  return result;
}

// d = a b, or d += a b if `add`.
std::string Instruction::text() const {
  const int registers = n / 2, operands = a_in_registers ? 4 : 1;
  std::string outputs;
  for (int i = 0; i < registers; ++i) outputs += fmt::format("{}\"+f\"(d[{}])", i == 0 ? "" : ", ", i);
  const std::string a = a_in_registers ? fmt::format("{{{}}}", list(registers, 4)) : list(registers, 1);
  return fmt::format(
      "TG_DEVICE void {}(float (&d)[{}], {}, uint64_t b, int add) {{\n"
      "  asm volatile(\"{{\\n.reg .pred add;\\nsetp.ne.b32 add, %{}, 0;\\n\"\n"
      "               \"wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{{}}}, {}, %{}, add, 1, 1{}, "
      "{};\\n}}\"\n"
      "               : {}\n"
      "               : {}, \"l\"(b), \"r\"(add));\n}}\n",
      name(), registers, a_in_registers ? "const uint32_t* a" : "uint64_t a", registers + operands + 1, n,
      type, type, list(0, registers), a, registers + operands,
      a_in_registers ? ""
      : a_transposed ? ", 1"
                     : ", 0",
      b_transposed ? 1 : 0, outputs,
      a_in_registers ? "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])" : "\"l\"(a)");
}

}  // namespace

// The operand at a row and a column of the view.
std::string CudaGridPrinter::operand_at(const View& view, const std::string& row, const std::string& column) {
  const SharedTile& tile = shared_.at(view.buffer.get());
  const bool transposed = passes::is_transposed(view);
  const std::string shape = fmt::format("{}, {}", view.buffer->extent(0), tile.order.columns);
  return fmt::format("tg::operand<{0}>({1}) + tg::operand_step<{0}>({2}, {3})", shape, tile.name,
                     transposed ? column : row, transposed ? row : column);
}

// One accumulator of 64 rows and at most 256 columns after the other.
void CudaGridPrinter::wgmma(const Gemm& n, const passes::GemmPlan& plan, const FragmentTile& c,
                            const Loc& at) {
  const std::int64_t m = n.c.extent(0), columns = n.c.extent(1) / plan.parts.along_n, k = n.a.extent(1),
                     groups = plan.parts.along_m;
  const std::int64_t parts = (columns + 255) / 256, width = columns / parts;
  // Operand A is K-major as it stands, operand B if it is transposed.
  const Instruction instruction{static_cast<int>(width), n.a.buffer->type == bf16 ? "bf16" : "f16",
                                plan.a_in_registers, !plan.a_in_registers && passes::is_transposed(n.a),
                                !passes::is_transposed(n.b)};
  program_.instructions.emplace(instruction.name(), instruction.text());
  out_.open(fmt::format("{{  // {}: {} a b", short_location(at), n.overwrite ? "c =" : "c +="));
  const bool alone = team_.count > 1;
  std::string group, first_column;
  if (!alone && groups > 1)
    group =
        fmt::format("{}{} * 64", warp_group(), plan.parts.along_n > 1 ? fmt::format(" % {}", groups) : "");
  if (!alone && plan.parts.along_n > 1)
    first_column =
        fmt::format("{}{} * {} + ", warp_group(), groups > 1 ? fmt::format(" / {}", groups) : "", columns);
  std::string a_registers;
  if (plan.a_in_registers) a_registers = packed_operand(fragments_.at(n.a.buffer.get()), n.a.buffer->type);
  for (std::int64_t i = 0; i < m / (64 * groups); ++i) {
    for (std::int64_t j = 0; j < parts; ++j) {
      const std::int64_t block = i * parts + j;
      const std::string sum = fmt::format("*(float(*)[{}])({} + {})", width / 2, c.name, block * width / 2);
      const std::string row = fmt::format("{}{}", group.empty() ? "" : group + " + ", i * 64 * groups);
      out_.line("#pragma unroll");
      out_.open(fmt::format("for (int k = 0; k < {}; ++k) {{", k / 16));
      const std::string a = plan.a_in_registers ? fmt::format("{} + {} + 4 * k", a_registers, i * (k / 4))
                                                : operand_at(n.a, row, "16 * k");
      out_.line(fmt::format("{}({}, {}, {}, {});", instruction.name(), sum, a,
                            operand_at(n.b, "16 * k", fmt::format("{}{}", first_column, j * width)),
                            n.overwrite ? "k > 0" : "1"));
      out_.close();
    }
  }
  out_.close();
}

// The name of the words that hold the fragment, two elements each.
std::string CudaGridPrinter::packed_operand(const FragmentTile& tile, DType type) {
  if (tile.is_packed) return tile.name;
  const std::string name = names_.unique(tile.name + "_words");
  const std::int64_t words = tile.layout.register_count() / 2;
  out_.line(fmt::format("uint32_t {}[{}];", name, words));
  out_.line("#pragma unroll");
  out_.line(fmt::format("for (int r = 0; r < {0}; ++r) {1}[r] = tg::pair<{2}>({3}[2 * r], {3}[2 * r + 1]);",
                        words, name, element_type(type), tile.name));
  return name;
}

// What threads wrote to shared memory becomes visible to the tensor cores.
void CudaGridPrinter::publish_operands() {
  out_.code();
  out_.line("tg::fence_async_shared();");
  out_.barrier(team_barrier_);
}

// At once: what threads wrote is made visible, and the product is awaited.
void CudaGridPrinter::gemm_wgmma(const Gemm& n, const FragmentTile& c, const Loc& at) {
  if (n.a.buffer->space == Space::shared || n.b.buffer->space == Space::shared) publish_operands();
  out_.code();
  touch_operands(n);
  out_.line("tg::wgmma_fence();");
  wgmma(n, passes::plan_gemm(n, team_.threads, target_), c, at);
  out_.line("tg::wgmma_commit();");
  out_.line("tg::wgmma_wait<0>();");
  out_.line(fmt::format("tg::pin({});", c.name));
}

}  // namespace tegula::codegen
