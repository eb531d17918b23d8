#include "interp/interpreter.hpp"

#include "interp/compare.hpp"
#include "runtime/machine/environment.hpp"

namespace tegula::interp {
namespace {

void write_back(const Memory& memory, const TensorRef& ref) {
  const std::int64_t bytes = ref.dtype.bytes();
  Shape index(ref.shape.size());
  std::int64_t to = 0, from = memory.origin;
  auto* data = static_cast<std::byte*>(ref.data);
  for (std::int64_t i = nelements(ref); i > 0; --i) {
    if (is_defined(memory.state[from])) {
      std::memcpy(data + to * bytes, memory.data + from * bytes, static_cast<std::size_t>(bytes));
    }
    for (std::size_t d = index.size(); d-- > 0;) {
      to += ref.strides[d];
      from += memory.strides[d];
      if (++index[d] < ref.shape[d]) break;
      to -= ref.strides[d] * ref.shape[d];
      from -= memory.strides[d] * ref.shape[d];
      index[d] = 0;
    }
  }
}

}  // namespace

Interpreter::Interpreter(const std::shared_ptr<const Signature>& signature)
    : program_(prepare(signature)), is_unordered_(unordered_buffers(*signature)) {}

void Interpreter::run(const Binding& binding) const {
  const std::int64_t orders = environment_integer(Variable::interpreter_orders, 1, 1000).value_or(3);
  RunOptions options;
  options.step_limit =
      environment_integer(Variable::interpreter_steps, 1, std::numeric_limits<std::int64_t>::max())
          .value_or(0);
  Machine first(program_, binding, options);
  first.run();
  options.silent = true;
  for (options.order = 1; options.order < static_cast<std::uint64_t>(orders); ++options.order) {
    Machine other(program_, binding, options);
    other.run();
    check_same(program_, is_unordered_, first, other);
  }
  for (std::size_t i = 0; i < program_.signature->buffers().size(); ++i) {
    const ir::Role role = program_.buffers[i].buffer->role;
    if (role == ir::Role::output || role == ir::Role::inout) write_back(first.memory(i), binding.tensors[i]);
  }
}

}  // namespace tegula::interp
