#include "runtime/execution/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "codegen/cuda_program.hpp"
#include "runtime/execution/cpu_executor.hpp"
#include "runtime/execution/executable.hpp"
#include "runtime/machine/thread_pool.hpp"

namespace tegula {

namespace {

constexpr int engine_bytes = 16;  // to which addresses and strides must be aligned

// Why the copy engine, or threads in pieces of so many bytes, cannot take the tensor; empty if they can.
std::string reason_of_strides(const TensorRef& tensor, int bytes) {
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % static_cast<std::uintptr_t>(bytes) != 0)
    return fmt::format("does not begin at a multiple of {} bytes", bytes);
  bool side_by_side = false, ragged = false;
  for (int d = 0; d < tensor.rank(); ++d) {
    const std::int64_t stride = tensor.stride(d);
    if (tensor.size(d) == 1) continue;
    if (stride == 1 && !side_by_side)
      side_by_side = true;
    else
      ragged |= stride < 0 || stride * tensor.dtype.bytes() % bytes != 0;
  }
  if (ragged) return fmt::format("has strides that are not multiples of {} bytes", bytes);
  return side_by_side || nelements(tensor) <= 1 ? "" : "has no contiguous dimension";
}

// The tensors that the program wants to be in a certain way.
std::vector<passes::Note> notes_on_strides(const Signature& signature, const codegen::CudaProgram& program,
                                           const std::map<std::string, Tensor>& tensors) {
  std::vector<passes::Note> notes;
  const auto check = [&](int position, int bytes) {
    const ir::Buffer& buffer = *signature.buffers()[static_cast<std::size_t>(position)];
    const auto given = tensors.find(buffer.name);
    const std::string why = given == tensors.end() ? "" : reason_of_strides(given->second.ref(), bytes);
    if (why.empty()) return;
    add(notes,
        {passes::NoteKind::strides, buffer.at,
         fmt::format("`{}` {}, so threads load all tiles", buffer.name, why), "pass a contiguous copy"});
  };
  for (const auto& map : program.maps) check(map.tensor, engine_bytes);
  for (const auto& [position, bytes] : program.aligned) check(position, bytes);
  return notes;
}

void explain_on_gpu(Explanation& result, const Signature& signature, passes::CudaTarget target,
                    const std::map<std::string, Tensor>& tensors) {
  codegen::CudaProgram program = codegen::print_cuda(signature, target);
  const auto strides = notes_on_strides(signature, program, tensors);
  if (!strides.empty()) {
    target.copy_engine = false;
    program = codegen::print_cuda(signature, target);
  }
  for (const auto& grid : program.kernels)
    result.ways.push_back(fmt::format("{}: {} threads, {} bytes of shared memory; {}", grid.function,
                                      grid.threads, grid.shared_bytes, grid.way));
  result.notes = passes::format(strides);
  for (const std::string& note : passes::format(program.notes)) result.notes.push_back(note);
}

// The values of dims that are the extents of tensors.
std::vector<std::optional<ir::Value>> known_dims(const Signature& signature,
                                                 const std::map<std::string, Tensor>& tensors) {
  std::vector<std::optional<ir::Value>> values(signature.variables().size());
  for (const ir::BufferPtr& buffer : signature.buffers()) {
    const auto given = tensors.find(buffer->name);
    if (given == tensors.end() || given->second.rank() != buffer->rank()) continue;
    for (int d = 0; d < buffer->rank(); ++d) {
      const ir::Expr& extent = buffer->shape[static_cast<std::size_t>(d)];
      if (extent->op != ir::Op::variable) continue;
      const int position = signature.position_of(extent->variable.get());
      if (position >= 0)
        values[static_cast<std::size_t>(position)] = ir::integer_value(extent->type, given->second.size(d));
    }
  }
  return values;
}

// The blocks of a grid, if the shapes of the tensors tell.
std::optional<std::int64_t> blocks_of(const ir::Grid& grid, const Signature& signature,
                                      std::span<const std::optional<ir::Value>> known) {
  std::vector<ir::Value> values;
  for (const auto& value : known) values.push_back(value.value_or(ir::Value{}));
  std::int64_t blocks = 1;
  bool is_known = true;
  for (const ir::Expr& extent : grid.extents) {
    ir::for_each_variable(extent, [&](const ir::VariablePtr& variable) {
      const int position = signature.position_of(variable.get());
      is_known = is_known && position >= 0 && known[static_cast<std::size_t>(position)];
    });
    if (is_known) blocks *= HostExpr(extent, signature)(values).integer;
  }
  return is_known ? std::optional(blocks) : std::nullopt;
}

// Says so where no grid of a call has work for all threads.
std::vector<passes::Note> notes_on_blocks(const Signature& signature,
                                          const std::map<std::string, Tensor>& tensors) {
  const auto known = known_dims(signature, tensors);
  std::int64_t most = 0;
  for (const ir::Grid& grid : signature.kernel().grids) {
    const auto blocks = blocks_of(grid, signature, known);
    if (!blocks || *blocks >= thread_pool().size()) return {};
    most = std::max(most, *blocks);
  }
  if (most == 0) return {};
  return {{passes::NoteKind::few_blocks, signature.kernel().grids.front().at,
           fmt::format("{} block{} for {} threads", most, most == 1 ? "" : "s", thread_pool().size()),
           "more rows in one call give the others work"}};
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
    if (tensors.empty()) return result;
    for (const std::string& note : passes::format(notes_on_blocks(signature, tensors)))
      result.notes.push_back(note);
  } else {
    const bool hopper = target == Target::cuda() || target == Target::emulated_sm90();
    explain_on_gpu(result, signature, {hopper ? 90 : 80}, tensors);
  }
  return result;
}

Explanation explain(const lang::Kernel& kernel, Target target) { return explain_call(kernel, target, {}); }

}  // namespace tegula
