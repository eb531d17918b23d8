#include "runtime/explain.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda_program.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/cuda_passes.hpp"
#include "passes/cuda/specialize_roles.hpp"
#include "runtime/cpu_executor.hpp"
#include "runtime/executable.hpp"

namespace tegula {

namespace {

constexpr std::int64_t engine_bytes = 16;  // to which addresses and strides must be aligned

// Why the copy engine cannot take the tensor; empty if it can.
std::string reason_of_strides(const TensorRef& tensor) {
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % engine_bytes != 0)
    return fmt::format("does not begin at a multiple of {} bytes", engine_bytes);
  bool side_by_side = false, ragged = false;
  for (int d = 0; d < tensor.rank(); ++d) {
    const std::int64_t stride = tensor.stride(d);
    if (tensor.size(d) == 1) continue;
    if (stride == 1 && !side_by_side)
      side_by_side = true;
    else
      ragged |= stride < 0 || stride * tensor.dtype.bytes() % engine_bytes != 0;
  }
  if (ragged) return fmt::format("has strides that are no multiples of {} bytes", engine_bytes);
  return side_by_side || nelements(tensor) <= 1 ? "" : "has no elements side by side";
}

// The tensors that the program wants to lie in a certain way.
std::vector<passes::Note> notes_on_strides(const Signature& signature, const codegen::CudaProgram& program,
                                           const std::map<std::string, Tensor>& tensors) {
  std::vector<passes::Note> notes;
  const auto check = [&](int slot) {
    const ir::Buffer& buffer = *signature.buffers()[static_cast<std::size_t>(slot)];
    const auto given = tensors.find(buffer.name);
    const std::string why = given == tensors.end() ? "" : reason_of_strides(given->second.ref());
    if (why.empty()) return;
    add(notes, {passes::NoteKind::strides, buffer.at,
                fmt::format("`{}` {}, so threads bring all tiles", buffer.name, why), "pass a contiguous copy"});
  };
  for (const auto& map : program.maps) check(map.tensor);
  for (const int slot : program.aligned) check(slot);
  return notes;
}

std::string loads_of(const passes::Roles& roles) {
  if (roles.one_loader) return "one thread loads by the copy engine";
  const bool by_rows = std::all_of(roles.rings.begin(), roles.rings.end(), [](auto& ring) { return ring.by_rows; });
  if (by_rows) return "threads load rows in pieces of 16 bytes";
  return roles.copies.empty() ? "threads load" : "the copy engine and threads load";
}

std::string products_of(const ir::Body& body, int threads, const passes::CudaTarget& target) {
  constexpr const char* names[] = {"multiply-add", "mma.sync", "wgmma"};
  int counts[3] = {};
  ir::for_each_stmt(body, [&](const ir::Stmt& s) {
    const auto* gemm = ir::as<ir::Gemm>(s);
    if (gemm) ++counts[static_cast<int>(passes::plan_gemm(*gemm, threads, target).instruction)];
  });
  std::string text;
  for (int i = 2; i >= 0; --i) {
    if (counts[i] > 0) text += fmt::format("{}{} by {}", text.empty() ? "; products: " : ", ", counts[i], names[i]);
  }
  return text;
}

std::string slots_of(const passes::Roles& roles) {
  std::string text;
  for (const passes::RingPlan& ring : roles.rings) {
    text += text.empty() ? "; slots:" : ",";
    for (const ir::BufferPtr& tile : ring.tiles) text += " " + tile->name;
    text += fmt::format(" {}", ring.depth);
  }
  return text;
}

std::string way_of(const ir::Grid& grid, const codegen::CudaProgram::Kernel& printed,
                   const passes::CudaTarget& target) {
  const std::string size = fmt::format("{}: {} threads, {} bytes of shared memory", printed.function, printed.threads,
                                       printed.shared_bytes);
  const auto roles = passes::specialize_roles(grid, target);
  if (!roles) return size + "; no roles" + products_of(grid.body, grid.hints.threads, target);
  return fmt::format("{}; roles: {} warp groups compute, {}{}{}", size, roles->consumers / 128, loads_of(*roles),
                     products_of(grid.body, roles->consumers, target), slots_of(*roles));
}

void explain_on_gpu(Explanation& result, const Signature& signature, passes::CudaTarget target,
                    const std::map<std::string, Tensor>& tensors) {
  codegen::CudaProgram program = codegen::print_cuda(signature, target);
  const auto strides = notes_on_strides(signature, program, tensors);
  if (!strides.empty()) {
    target.copy_engine = false;
    program = codegen::print_cuda(signature, target);
  }
  const ir::Kernel lowered = passes::for_cuda(signature.kernel(), target);
  for (std::size_t i = 0; i < lowered.grids.size(); ++i)
    result.ways.push_back(way_of(lowered.grids[i], program.kernels[i], target));
  result.notes = passes::format(strides);
  for (const std::string& note : passes::format(program.notes)) result.notes.push_back(note);
}

}  // namespace

std::string Explanation::text() const {
  std::string result = fmt::format("{} ({})\n", kernel, target);
  for (const std::string& way : ways) result += "  " + way + "\n";
  for (const std::string& note : notes) result += "  " + note + "\n";
  return result;
}

Explanation explain_call(const lang::Kernel& kernel, Target target,
                         const std::map<std::string, Tensor>& tensors) {
  target = resolve(target);
  Explanation result{kernel.ir()->name, std::string(target.name()), {}, {}};
  const Signature signature(kernel.ir(), target.device());
  if (target == Target::interpreter()) {
    result.ways = {"the interpreter runs the program as it is written"};
  } else if (target == Target::cpu()) {
    result.ways = {"compiled C++, a block a thread"};
    result.notes = passes::format(cpu_notes(signature));
  } else {
    const bool hopper = target == Target::cuda() || target == Target::emulated_sm90();
    explain_on_gpu(result, signature, {hopper ? 90 : 80}, tensors);
  }
  return result;
}

Explanation explain(const lang::Kernel& kernel, Target target) { return explain_call(kernel, target, {}); }

}  // namespace tegula
