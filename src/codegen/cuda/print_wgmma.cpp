// Products of warp groups.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/cuda/grid_printer.hpp"
#include "codegen/cuda/packed_words.hpp"
#include "codegen/cuda/wgmma_instruction.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// Words of operand A that a thread has of 64 rows of the fragment.
std::int64_t words_of_row_block(const View& a) { return a.buffer->extent(1) * a.buffer->type.bits() / 64; }

std::string product_type(DType type) {
  if (type == i8) return "s8";
  if (type == f32) return "tf32";
  return std::string(type.name());
}

}  // namespace

// The operand at a row and a column of the view, whose axis `along_k` goes along k.
std::string CudaGridPrinter::operand_at(const View& view, int along_k, const std::string& row,
                                        const std::string& column) {
  const SharedTile& tile = shared_.at(view.buffer.get());
  const passes::OperandPlace place = *passes::place_of(view, along_k);
  std::string of_row = place.is_transposed ? column : row, of_column = place.is_transposed ? row : column;
  of_row = plus(of_row, place.row);
  of_column = plus(of_column, place.column);
  const std::string shape =
      view.buffer->type.bytes() == 2
          ? fmt::format("{}, {}", place.rows, tile.order.columns)
          : fmt::format("{}, {}, {}", place.rows, tile.order.columns, view.buffer->type.bytes());
  // Apart from columns that change from instruction to instruction, since their sum would be divided.
  std::string apart;
  for (const passes::OperandPlace::Step& step : place.steps) {
    const bool inside =
        values_.is_at_least(step.index, 0) &&
        values_.is_less(step.index, constant(step.index->held(), step.extent, step.index->at));
    const std::string index = fmt::format("int({})", value(step.index));
    const std::string further =
        fmt::format("{} * {}", inside ? index : fmt::format("tg::inside({}, {})", index, step.extent),
                    step.columns + step.rows);
    std::string& text = step.columns > 0 ? of_column : of_row;
    if (step.columns > 0 && !place.is_transposed && text != "0")
      apart += fmt::format(" + tg::operand_step<{}>(0, {})", shape, further);
    else
      text += " + " + further;
  }
  const auto carried = std::find_if(carried_.begin(), carried_.end(), [&](const CarriedOperand& own) {
    return own.tile == view.buffer.get() && own.shape == shape;
  });
  const std::string step = fmt::format("tg::operand_step<{}>({}, {}){}", shape, of_row, of_column, apart);
  if (carried != carried_.end()) return fmt::format("{}.at({})", carried->name, step);
  if (!nothing_.empty())
    return fmt::format("tg::operand_apart<{}>({} + {}) + {}", shape, tile.name, nothing_, step);
  return fmt::format("tg::operand<{}>({}) + {}", shape, tile.name, step);
}

// What is added to the operands of this product alone.
void CudaGridPrinter::name_nothing() {
  nothing_.clear();
  if (step_apart_.empty()) return;
  nothing_ = names_.unique("nothing");
  out_.line(fmt::format("const int {} = tg::nothing<{}>({});", nothing_, ++apart_, step_apart_));
}

// Where a warp group's rows and columns of a product begin.
std::pair<std::string, std::string> CudaGridPrinter::own_part(const passes::GemmPlan& plan,
                                                              std::int64_t columns) const {
  const layout::Division& parts = plan.parts;
  std::pair<std::string, std::string> result{"0", "0"};
  if (team_.count > 1) return result;
  if (parts.along_m > 1)
    result.first =
        fmt::format("{}{} * 64", warp_group(), parts.along_n > 1 ? fmt::format(" % {}", parts.along_m) : "");
  if (parts.along_n > 1)
    result.second = fmt::format("{}{} * {}", warp_group(),
                                parts.along_m > 1 ? fmt::format(" / {}", parts.along_m) : "", columns);
  return result;
}

namespace {

// Registers of the sum of so many columns.
std::string sum_of_instruction(const FragmentTile& c, DType type, int columns, std::int64_t first) {
  if (columns / 2 == c.layout.register_count()) return c.name;
  const int together = c.is_packed ? 2 : 1;
  return fmt::format("*({}(*)[{}])({})", c.is_packed ? "uint32_t" : scalar_type(type), columns / 2 / together,
                     plus(c.name, first / together));
}

}  // namespace

// One accumulator of 64 rows and the columns of an instruction after the other; only one of those that are
// awaited one by one, in registers of its own.
Flight CudaGridPrinter::wgmma(const Gemm& n, const passes::GemmPlan& plan, const FragmentTile& c,
                              const Loc& at, int only) {
  const auto [left, right] = passes::instruction_operands(n, plan);
  const std::int64_t columns = right.extent(1) / plan.parts.along_n, k = n.depth();
  const int parts = static_cast<int>(plan.columns.size()), count = passes::accumulators(n, plan);
  const std::string part = only >= 0 ? names_.unique("part") : "";
  if (only >= 0)
    out_.line(fmt::format("float {}[{}];", part, plan.columns[static_cast<std::size_t>(only % parts)] / 2));
  Flight flight{c.name, rounding_of_sum(n, c)};
  // Elements that change threads go through shared memory, with barriers, in front of the product.
  const bool moves = plan.a_in_registers && fragments_.at(n.a.buffer.get()).layout != plan.operand_a;
  std::string a_registers = moves ? operand_registers(n, plan, at) : "";
  out_.open(fmt::format("{{  // {}: {} a b", location_in_folder(at), n.overwrite ? "c =" : "c +="));
  if (plan.a_in_registers && !moves) a_registers = operand_registers(n, plan, at);
  name_nothing();
  const auto [first_row, first_column] = own_part(plan, columns);
  const std::string inner = fmt::format("{} * k", plan.k),
                    inner_of_a = n.metadata ? fmt::format("{} * k", plan.k / 2) : inner;
  std::int64_t column = 0;
  for (int block = 0; block < count; ++block) {
    const int width = plan.columns[static_cast<std::size_t>(block % parts)];
    if (block % parts == 0) column = 0;
    const std::int64_t i = block / parts, first = column, steps = k / plan.k;
    column += width;
    if (only >= 0 && block != only) continue;
    const std::string sum = sum_of_instruction(c, n.c.buffer->type, width, (i * columns + first) / 2);
    if (only >= 0) flight = {part, fmt::format("tg::add_to({}, {});", sum, part)};
    out_.line("#pragma unroll");
    out_.open(
        fmt::format("for (int k = {}; k < {}; ++k) {{", steps * part_.first / 16, steps * part_.last / 16));
    const std::string a = plan.a_in_registers
                              ? fmt::format("{} + 4 * k", plus(a_registers, i * words_of_row_block(n.a)))
                              : operand_at(left, 1, plus(first_row, i * 64 * plan.parts.along_m), inner_of_a);
    const std::string arguments = fmt::format("{}, {}, {}", only < 0 ? sum : part, a,
                                              operand_at(right, 0, inner, plus(first_column, first))),
                      adds = n.overwrite || only >= 0 ? "k > 0" : "1";
    if (n.metadata)
      sparse_product(n, plan, width, i * steps, arguments, adds);
    else
      out_.line(fmt::format("{}({}, {});", instruction(n, plan, width), arguments, adds));
    out_.close();
  }
  out_.close();
  return flight;
}

// A sparse product of step k, whose metadata of rows `i` begin with so many steps. Two steps in 16 bits share
// a word, each of which has an instruction of its own: the selector is part of it.
void CudaGridPrinter::sparse_product(const Gemm& n, const passes::GemmPlan& plan, int columns,
                                     std::int64_t first, const std::string& arguments,
                                     const std::string& adds) {
  const int together = 64 / plan.k;
  const std::string word =
      fmt::format("{}[{}]", metadata_, plus(together == 1 ? "k" : "k / 2", first / together));
  for (int selector = 0; selector < together; ++selector) {
    const std::string text =
        fmt::format("{}({}, {}, {});", instruction(n, plan, columns, selector), arguments, word, adds);
    out_.line(together == 1 ? text : fmt::format("{} {}", selector == 0 ? "if (k % 2 == 0)" : "else", text));
  }
}

// The same where others may have written the tile.
void CudaGridPrinter::read_metadata(const Gemm& n) {
  out_.code();
  touch(*n.metadata, MemoryUse::read, false);
  load_metadata(n);
}

// The number of an element of a tile whose rows have several parts, one of which the view shows.
std::string CudaGridPrinter::place_in_part(const View& view, const std::string& row,
                                           const std::string& column) {
  return fmt::format("(({}) * {} + int({})) * {} + ({})", row, constant_value(view.shape[1]),
                     value(view.dims[1].offset), constant_value(view.shape[2]), column);
}

// A function of the place of a byte of metadata that gives its address; rows outside, whose values are 0,
// have those of the last one.
std::string CudaGridPrinter::metadata_bytes(const Gemm& n, bool some_outside) {
  const Buffer& tile = *n.metadata->buffer;
  const SharedTile& shared = shared_.at(&tile);
  const std::string row = some_outside ? fmt::format("tg::min(row, {})", n.a.extent(0) - 1) : "row",
                    at = passes::is_matrix(*n.metadata) ? offset_in(shared, tile, {row, "column"})
                                                        : place_in_part(*n.metadata, row, "column");
  return fmt::format("[&](int row, int column) {{ return {} + {}; }}", shared.name, at);
}

// The words of metadata that this thread gives to the instructions of a sparse product.
void CudaGridPrinter::load_metadata(const Gemm& n) {
  if (!n.metadata) return;
  const passes::GemmPlan plan = passes::plan_gemm(n, team_.threads, target_);
  const std::int64_t blocks = n.a.extent(0) / (64 * plan.parts.along_m), words = n.depth() / 64;
  const std::string first_row = own_part(plan, n.c.extent(1) / plan.parts.along_n).first;
  metadata_ = names_.unique("metadata");
  out_.line(fmt::format("uint32_t {}[{}];", metadata_, blocks * words));
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int w = 0; w < {}; ++w) {{", blocks * words));
  const std::string row = fmt::format("{} + w / {} * {}", first_row, words, 64 * plan.parts.along_m);
  out_.line(fmt::format("{}[w] = tg::metadata_word<{}>({}, w % {}, {});", metadata_, n.a.buffer->type.bytes(),
                        row, words, metadata_bytes(n, false)));
  out_.close();
}

// The name of the instruction that multiplies so many columns, whose text the program then has.
std::string CudaGridPrinter::instruction(const Gemm& n, const passes::GemmPlan& plan, int columns,
                                         int selector) {
  const auto [left, right] = passes::instruction_operands(n, plan);
  // Operand A is K-major as it stands, operand B if it is transposed.
  const WgmmaInstruction result{columns,
                           product_type(n.a.buffer->type),
                           plan.k,
                           plan.a_in_registers,
                           !plan.a_in_registers && passes::is_transposed(left),
                           !passes::is_transposed(right),
                           selector,
                           fragments_.at(n.c.buffer.get()).is_packed};
  program_.instructions.emplace(result.name(), result.text());
  return result.name();
}

// The words of operand A, of which the first are those of the first column that the product reads.
std::string CudaGridPrinter::operand_registers(const Gemm& n, const passes::GemmPlan& plan, const Loc& at) {
  FragmentTile tile = fragments_.at(n.a.buffer.get());
  if (tile.layout != plan.operand_a) tile = converted(n.a.buffer, plan.operand_a, true, at);
  const std::string words = packed_operand(tile, n.a.buffer->type);
  const std::int64_t first = *passes::columns_of_fragment(n.a) * n.a.buffer->type.bits() / 64;
  return plus(words, first);
}

// The registers of a product that was awaited are there.
void CudaGridPrinter::land(const Flight& flight) {
  out_.line(fmt::format("tg::pin({});", flight.registers));
  if (!flight.then.empty()) out_.line(flight.then);
}

// The name of the words that hold the fragment, two elements each, or four of 8 bits.
std::string CudaGridPrinter::packed_operand(const FragmentTile& tile, DType type) {
  if (tile.is_packed) return tile.name;
  const std::string name = names_.unique(tile.name + "_words");
  const std::int64_t registers = tile.layout.register_count();
  out_.line(fmt::format("uint32_t {}[{}];", name, registers / elements_of_word(type)));
  out_.line("#pragma unroll");
  out_.line(loop_over_words(type, tile.name, name, registers, part_.first, part_.last));
  return name;
}

// What threads wrote to shared memory becomes visible to the tensor cores, unless an earlier product needed
// it.
void CudaGridPrinter::publish_operands(const Gemm& n) {
  const auto is_published = [&](const View* operand) {
    const auto tile = shared_.find(operand->buffer.get());
    return tile == shared_.end() || out_.is_published(tile->second.memory);
  };
  const std::vector<const View*> read = operands(n);
  if (std::all_of(read.begin(), read.end(), is_published)) return;
  out_.publish("tg::fence_async_shared();", team_.count > 1 ? team_.barrier : team_barrier_);
}

// At once: what threads wrote is made visible, and the product is awaited.
void CudaGridPrinter::gemm_wgmma(const Gemm& n, const FragmentTile& c, const Loc& at) {
  if (n.a.buffer->space == Space::shared || n.b.buffer->space == Space::shared) publish_operands(n);
  out_.code();
  touch_operands(n);
  load_metadata(n);
  const passes::GemmPlan plan = passes::plan_gemm(n, team_.threads, target_);
  const bool one_by_one = passes::needs_promotion(n, plan);
  // What another way to the branch left moves to the registers of the product before the fence.
  if (in_branch_ && !n.overwrite) out_.line(fmt::format("tg::pin({});", c.name));
  for (int i = 0; i < (one_by_one ? passes::accumulators(n, plan) : 1); ++i) {
    out_.line("tg::wgmma_fence();");
    const Flight flight = wgmma(n, plan, c, at, one_by_one ? i : -1);
    out_.line("tg::wgmma_commit();");
    out_.line("tg::wgmma_wait<0>();");
    land(flight);
  }
}

// Registers, or slots that the copy engine has filled.
bool CudaGridPrinter::reads_rings(const Gemm& n) const {
  const auto is_ready = [&](const View& operand) {
    return operand.buffer->space == Space::fragment || is_message(*operand.buffer) ||
           roles_->ring_of(plan_.consumers.in_ring(operand.buffer.get())) >= 0;
  };
  const std::vector<const View*> read = operands(n);
  return std::all_of(read.begin(), read.end(), [&](const View* operand) { return is_ready(*operand); });
}

void CudaGridPrinter::event(const schedule::Gemm& product, const schedule::Event& e) {
  const auto& gemm = *as<Gemm>(e.stmt);
  const FragmentTile& sum = fragments_.at(gemm.c.buffer.get());
  const passes::GemmPlan plan = passes::plan_gemm(gemm, team_.threads, target_);
  // Another warp group has made what is in a message.
  if (!is_message(*gemm.a.buffer)) notes_.of_gemm(gemm, plan, e.stmt->at);
  if (sum.layout != plan.accumulator) {  // all at once, when all parts of the operand are there
    if (product.last == 16) (*this)(gemm, e.stmt);
    return;
  }
  if (!reads_rings(gemm)) publish_operands(gemm);
  out_.code();
  touch_operands(gemm);
  part_ = {product.first, product.last};
  const Flight flight = wgmma(gemm, plan, sum, e.stmt->at, product.only);
  part_ = {};
  if (product.last == 16) flights_.push_back(flight);
}

void CudaGridPrinter::event(const schedule::GemmFence& n, const schedule::Event& e) {
  // Not from a ring, whose slot threads read by an event of its own.
  if (const auto& gemm = *as<Gemm>(e.stmt);
      gemm.metadata && roles_->ring_of(plan_.consumers.in_ring(gemm.metadata->buffer.get())) < 0)
    read_metadata(gemm);
  if (n.pins) sync_line(fmt::format("tg::pin({});", fragments_.at(as<Gemm>(e.stmt)->c.buffer.get()).name));
  sync_line("tg::wgmma_fence();");
}
void CudaGridPrinter::event(const schedule::GemmCommit&, const schedule::Event&) {
  sync_line("tg::wgmma_commit();");
}

void CudaGridPrinter::event(const schedule::GemmWait& n, const schedule::Event&) {
  sync_line(fmt::format("tg::wgmma_wait<{}>();", n.pending));
  while (static_cast<int>(flights_.size()) > n.pending) {
    const Flight flight = flights_.front();
    flights_.pop_front();
    const bool goes_on = std::any_of(flights_.begin(), flights_.end(),
                                     [&](const Flight& f) { return f.registers == flight.registers; });
    if (!goes_on) land(flight);
  }
}

}  // namespace tegula::codegen
