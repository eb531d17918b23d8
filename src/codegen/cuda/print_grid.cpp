// The text of a grid as a whole, and of one whose threads all do the same.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "codegen/cuda/sync_rules.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/lower.hpp"
#include "passes/cuda/moved_elements.hpp"
#include "passes/cuda/ring_depths.hpp"
#include "passes/cuda/written_tensors.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// Where the program says nothing, the assembler weighs registers against blocks that share a processor.
std::string launch_bounds(const GridHints& hints, int threads, int ctas, int blocks) {
  const std::string bounds = hints.blocks_per_processor > 0 ? fmt::format("({}, {})", threads, blocks)
                                                            : fmt::format("({})", threads / ctas);
  return ctas > 1 ? fmt::format("{} __cluster_dims__({}, 1, 1)", bounds, ctas) : bounds;
}

}  // namespace

CudaGridPrinter::CudaGridPrinter(const Signature& signature, const passes::CudaPlan& plan, int number,
                                 CudaProgram& program)
    : RowPrinter(signature, plan, number, program) {
  for_each_stmt(plan.kernel, [&](const Stmt& s) { any_products_ |= as<Gemm>(s) != nullptr; });
  copies_rows_ = copies_rows(planned_);
  for (const Dim& dim : signature.kernel().dims) facts_.add_multiple(dim.variable, dim.multiple);
  for (const char* name : {"tg", "thread", "lane", "warp", "group", "shared_memory", "r", "call", "Call",
                           "threadIdx", "blockIdx", "printf", "first", "f", "cta", "own_memory", "meetings"})
    names_.unique(name);
  const auto& buffers = signature.buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) memory_of_[buffers[i].get()] = static_cast<int>(i);
  if (runs_beside(number)) leave_ = "{ tg::end_behind_last_grid(); return; }";
  for (const auto& [a, b] : signature.kernel().may_alias) {
    const int from = memory_of_.at(b.get()), to = memory_of_.at(a.get());
    for (auto& [buffer, number] : memory_of_) number = number == from ? to : number;
  }
}

void CudaGridPrinter::prologue() {
  out_.code();
  int place = 0;
  for (const BufferPtr& buffer : signature_.buffers()) {
    const std::string name = names_.unique(buffer->name), type = element_type(buffer->type);
    tensors_[buffer.get()] = name;
    out_.line(definition(name, fmt::format("{0}* const {1} = ({0}*)call.tensor[{2}];", type, name,
                                           signature_.position_of(buffer.get()))));
    for (int d = 0; d < buffer->rank(); ++d)
      out_.define("int64_t", fmt::format("{}_s{}", name, d), fmt::format("call.stride[{}]", place++));
  }
  const auto& variables = signature_.variables();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const std::string_view type = scalar_type(variables[i]->type);
    const std::string word = fmt::format("call.value[{}]", i);
    const std::string text = variables[i]->type == f32   ? fmt::format("__int_as_float(int({}))", word)
                             : variables[i]->type == f64 ? fmt::format("__longlong_as_double({})", word)
                                                         : fmt::format("{}({})", type, word);
    out_.define(type, name_variable(variables[i]), text);
  }
  if (ctas_ > 1)
    begin_spread_block();
  else
    out_.line("const int thread = threadIdx.x;");
  begin_timeline();
}

std::string CudaGridPrinter::print() {
  const Grid& grid = planned_;
  team_.threads = grid.hints.threads;
  layouts_ = plan_.layouts;
  multiplied_plainly_ = passes::plain_operands(grid.body);
  moved_ = passes::moved_elements(grid.body);
  for (const BufferPtr& tensor : passes::written_tensors(grid, signature_.kernel())) {
    for (const auto& [buffer, memory] : memory_of_) {
      if (memory == memory_of_.at(tensor.get())) written_.insert(buffer);
    }
  }
  notes_.of_hints(grid, plan_, target_);
  return plan_.roles ? print_roles(grid) : print_without_roles(grid);
}

std::string CudaGridPrinter::print_without_roles(const Grid& grid) {
  ctas_ = grid.hints.cluster;
  if (ctas_ > 1) not_spread_ = plan_.not_spread, own_memory_ = "own_memory", team_barrier_ = cluster_barrier;
  notes_.add(passes::NoteKind::no_roles, plan_.no_roles, grid.at);
  for (const passes::Note& own : plan_.copy_rings.notes) passes::add(program_.notes, own);
  prologue();
  between_grids();
  order_.decode(grid, ctas_ > 1 ? fmt::format("blockIdx.x / {}", ctas_) : "blockIdx.x");
  declare_copy_rings();
  body(grid.body);
  end_of_block();
  program_.kernels.push_back({.function = plan_.function,
                              .threads = team_.threads / ctas_,
                              .shared_bytes = static_cast<std::size_t>(memory_.peak()),
                              .ctas = ctas_,
                              .waits = has_waits(),
                              .way = way_of(grid.body, team_.threads, plan_, target_) +
                                     (ctas_ > 1 ? fmt::format("; a block is {} CTAs", ctas_) : ""),
                              .shared = memory_.history()});
  blocks_ = passes::blocks_without_roles(grid, target_);
  while (blocks_ > 1 && memory_.peak() > passes::shared_bytes_of(blocks_)) --blocks_;
  notes_.of_blocks(grid, blocks_);
  return without_unused(fmt::format(
      "extern \"C\" __global__ void __launch_bounds__{} {}(const __grid_constant__ Call call) {{  // {}\n"
      "  extern __shared__ __align__(1024) unsigned char shared_memory[];\n{}}}\n",
      launch_bounds(grid.hints, team_.threads, ctas_, blocks_), plan_.function, location_in_folder(grid.at),
      begun_together(text_of(place_sync_checked(out_.finish(), team_barrier_), 1))));
}

std::int64_t CudaGridPrinter::missing_shared_bytes(const Grid& grid) const {
  const std::int64_t missing = memory_.peak() - passes::shared_bytes_of(blocks_);
  if (missing <= 0) return 0;
  if (ahead_bytes_ > 0) return missing;
  throw ProgramError(
      fmt::format("the shared tiles of a block take {} bytes at once, a block has {}: use smaller tiles or a "
                  "smaller type{}",
                  memory_.peak(), passes::shared_bytes_of(1), memory_.at_peak()),
      grid.at);
}

}  // namespace tegula::codegen
