// A call checked, and its values.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tables.hpp"

namespace bundle {

struct Failure {
  tegula_status status;
  std::string text;
};

struct Value {
  std::int64_t integer = 0;
  double real = 0;
  bool invalid = false;
};

inline bool is_floating(int type) { return type >= tegula_e4m3; }
inline std::int64_t bytes_of(int type) {
  constexpr int bytes[] = {1, 1, 2, 4, 8, 1, 4, 1, 1, 2, 2, 4, 8};
  return bytes[type];
}

struct View {
  char* data = nullptr;
  std::vector<std::int64_t> shape, strides;
  int type = 0;

  std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t n : shape) product *= n;
    return product;
  }
  bool contiguous() const {
    std::int64_t expected = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (shape[d] != 1 && strides[d] != expected && elements() > 0) return false;
      expected *= shape[d];
    }
    return true;
  }
};

struct Call {
  const Kernel& kernel;
  std::vector<Value> values;
  std::vector<View> tensors;  // workspaces without memory
  std::int32_t device = tegula_host;

  [[noreturn]] void refuse(const std::string& text) const {
    throw Failure{tegula_wrong_call, std::string("kernel '") + kernel.name + "'" + text};
  }
};

inline std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  const std::int64_t q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

inline std::int64_t divided(Op op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case Op::div:
      return a / b;
    case Op::mod:
      return a % b;
    case Op::floordiv:
      return floor_div(a, b);
    case Op::floormod:
      return a - floor_div(a, b) * b;
    default:
      return -floor_div(-a, b);
  }
}

template <class T>
bool compared(Op op, T a, T b) {
  switch (op) {
    case Op::eq:
      return a == b;
    case Op::ne:
      return a != b;
    case Op::lt:
      return a < b;
    case Op::le:
      return a <= b;
    case Op::gt:
      return a > b;
    default:
      return a >= b;
  }
}

inline Value of_reals(Op op, double a, double b) {
  switch (op) {
    case Op::add:
      return {0, a + b};
    case Op::sub:
      return {0, a - b};
    case Op::mul:
      return {0, a * b};
    case Op::div:
      return {0, a / b};
    case Op::min:
      return {0, std::fmin(a, b)};
    case Op::max:
      return {0, std::fmax(a, b)};
    case Op::neg:
      return {0, -a};
    default:
      return {0, std::fabs(a)};
  }
}

inline Value of_integers(Op op, std::int64_t a, std::int64_t b) {
  Value result;
  bool overflow = false;
  switch (op) {
    case Op::add:
      overflow = __builtin_add_overflow(a, b, &result.integer);
      break;
    case Op::sub:
      overflow = __builtin_sub_overflow(a, b, &result.integer);
      break;
    case Op::mul:
      overflow = __builtin_mul_overflow(a, b, &result.integer);
      break;
    case Op::min:
      result.integer = a < b ? a : b;
      break;
    case Op::max:
      result.integer = a > b ? a : b;
      break;
    case Op::neg:
      result.integer = -a;
      break;
    case Op::abs:
      result.integer = a < 0 ? -a : a;
      break;
    default:
      overflow = b == 0 || (b == -1 && a == INT64_MIN);
      if (!overflow) result.integer = divided(op, a, b);
  }
  result.invalid = overflow;
  return result;
}

// What does not fit its type is invalid.
inline Value fitted(Value v, int type) {
  if (type == tegula_f32) v.real = static_cast<float>(v.real);
  if (type == tegula_i32) v.invalid |= v.integer != static_cast<std::int32_t>(v.integer);
  if (type == tegula_u32) v.integer = static_cast<std::uint32_t>(v.integer);
  return v;
}

inline Value applied(const Step& step, const std::vector<std::pair<Value, int>>& args) {
  const auto& [a, type] = args[0];
  const Value b = args.size() > 1 ? args[1].first : Value();
  const bool real = is_floating(type);
  Value result;
  switch (step.op) {
    case Op::eq:
    case Op::ne:
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge:
      result.integer = real ? compared(step.op, a.real, b.real) : compared(step.op, a.integer, b.integer);
      break;
    case Op::logical_and:
      result.integer = a.integer && b.integer;
      break;
    case Op::logical_or:
      result.integer = a.integer || b.integer;
      break;
    case Op::logical_not:
      result.integer = !a.integer;
      break;
    case Op::isnan:
      result.integer = std::isnan(a.real);
      break;
    case Op::select:
      return a.invalid ? a : a.integer ? b : args[2].first;
    case Op::cast:
      result = is_floating(step.type) ? Value{0, real ? a.real : static_cast<double>(a.integer)}
                                      : Value{real ? static_cast<std::int64_t>(a.real) : a.integer, 0};
      break;
    default:
      result = real ? of_reals(step.op, a.real, b.real) : of_integers(step.op, a.integer, b.integer);
  }
  result.invalid |= a.invalid || b.invalid;
  return fitted(result, step.type);
}

inline int arity(Op op) {
  if (op == Op::select) return 3;
  return op == Op::neg || op == Op::abs || op == Op::logical_not || op == Op::isnan || op == Op::cast ? 1 : 2;
}

inline Value evaluate(const Expr& e, const std::vector<Value>& values) {
  std::vector<std::pair<Value, int>> stack;
  for (std::int32_t i = 0; i < e.count; ++i) {
    const Step& step = e.steps[i];
    if (step.op == Op::constant) {
      stack.push_back({{step.integer, step.real}, step.type});
    } else if (step.op == Op::variable) {
      stack.push_back({values[static_cast<std::size_t>(step.slot)], step.type});
    } else {
      const std::vector<std::pair<Value, int>> args(stack.end() - arity(step.op), stack.end());
      stack.resize(stack.size() - args.size());
      stack.push_back({applied(step, args), step.type});
    }
  }
  return stack.back().first;
}

inline View checked(const Call& call, const Buffer& buffer, const tegula_tensor* tensor) {
  const std::string where = std::string(", argument '") + buffer.name + "': ";
  if (!tensor) call.refuse(where + "no tensor is given");
  if (tensor->type != buffer.type) call.refuse(where + "the tensor has another element type");
  if (tensor->rank != buffer.rank)
    call.refuse(where + "rank " + std::to_string(buffer.rank) + " is needed, " +
                std::to_string(tensor->rank) + " given");
  View view{static_cast<char*>(tensor->data),
            {},
            std::vector<std::int64_t>(static_cast<std::size_t>(tensor->rank)),
            buffer.type};
  for (std::int32_t d = 0; d < tensor->rank; ++d) {
    if (tensor->shape[d] < 0 || tensor->shape[d] > INT32_MAX)
      call.refuse(where + "an extent is outside of 0 to 2^31 - 1");
    view.shape.push_back(tensor->shape[d]);
  }
  std::int64_t stride = 1;
  for (std::size_t d = view.shape.size(); d-- > 0; stride *= view.shape[d])
    view.strides[d] = tensor->strides ? tensor->strides[d] : stride;
  if (view.elements() > 0 && !view.data) call.refuse(where + "the tensor has no memory");
  return view;
}

inline void solve(Call& call) {
  const Kernel& k = call.kernel;
  for (int pass = 0; pass < 2; ++pass) {  // dims first
    for (std::int32_t t = 0; t < k.parameters; ++t) {
      for (std::int32_t d = 0; d < k.buffers[t].rank; ++d) {
        const Extent& extent = k.buffers[t].extents[d];
        const std::int64_t given =
            call.tensors[static_cast<std::size_t>(t)].shape[static_cast<std::size_t>(d)];
        if (extent.solves && pass == 0) call.values[static_cast<std::size_t>(extent.slot)].integer = given;
        if (extent.solves || pass == 0) continue;
        const Value expected = evaluate(extent.value, call.values);
        if (expected.invalid || expected.integer != given)
          call.refuse(std::string(", argument '") + k.buffers[t].name + "': dimension " + std::to_string(d) +
                      " must have extent " + (expected.invalid ? "?" : std::to_string(expected.integer)) +
                      ", but " + std::to_string(given) + " is given");
      }
    }
  }
}

inline void check_rules(const Call& call) {
  const Kernel& k = call.kernel;
  for (std::int32_t i = 0; i < k.dim_count; ++i) {
    const std::int64_t value = call.values[static_cast<std::size_t>(i)].integer;
    if (value % k.dims[i].multiple != 0)
      call.refuse(std::string(": the dim ") + k.dims[i].name + " is " + std::to_string(value) +
                  ", which must be a multiple of " + std::to_string(k.dims[i].multiple));
  }
  for (std::int32_t i = 0; i < k.requirement_count; ++i) {
    const Value value = evaluate(k.requirements[i].condition, call.values);
    if (value.invalid || value.integer == 0) call.refuse(std::string(" requires: ") + k.requirements[i].text);
  }
}

// Bytes between which all elements are.
inline std::pair<const char*, const char*> range_of(const View& v) {
  std::int64_t low = 0, high = v.elements() > 0 ? 1 : 0;
  for (std::size_t d = 0; d < v.shape.size() && high > 0; ++d)
    (v.strides[d] < 0 ? low : high) += (v.shape[d] - 1) * v.strides[d];
  return {v.data + low * bytes_of(v.type), v.data + high * bytes_of(v.type)};
}

// It is unknown whether two views with gaps overlap.
inline void check_memory(const Call& call) {
  for (std::int32_t i = 0; i < call.kernel.pair_count; ++i) {
    const Pair& pair = call.kernel.pairs[i];
    const View &a = call.tensors[static_cast<std::size_t>(pair.a)],
               &b = call.tensors[static_cast<std::size_t>(pair.b)];
    const auto [a_begin, a_end] = range_of(a);
    const auto [b_begin, b_end] = range_of(b);
    if (a.contiguous() && b.contiguous() && a_begin < b_end && b_begin < a_end)
      call.refuse(std::string(": arguments '") + call.kernel.buffers[pair.a].name + "' and '" +
                  call.kernel.buffers[pair.b].name + "' share memory, and one of them is written");
  }
}

inline void shape_workspaces(Call& call) {
  const Kernel& k = call.kernel;
  for (std::int32_t t = k.parameters; t < k.buffer_count; ++t) {
    View view{nullptr,
              {},
              std::vector<std::int64_t>(static_cast<std::size_t>(k.buffers[t].rank)),
              k.buffers[t].type};
    for (std::int32_t d = 0; d < k.buffers[t].rank; ++d) {
      const Value extent = evaluate(k.buffers[t].extents[d].value, call.values);
      if (extent.invalid || extent.integer < 0 || extent.integer > INT32_MAX)
        call.refuse(std::string(", workspace '") + k.buffers[t].name + "': an extent cannot be computed");
      view.shape.push_back(extent.integer);
    }
    std::int64_t stride = 1;
    for (std::size_t d = view.shape.size(); d-- > 0; stride *= view.shape[d]) view.strides[d] = stride;
    call.tensors.push_back(std::move(view));
  }
}

inline void check_reshapes(const Call& call) {
  for (std::int32_t i = 0; i < call.kernel.reshape_count; ++i) {
    const Reshape& r = call.kernel.reshapes[i];
    const View& view = call.tensors[static_cast<std::size_t>(r.buffer)];
    std::int64_t product = 1;
    for (std::int32_t d = 0; d < r.rank; ++d) product *= evaluate(r.shape[d], call.values).integer;
    if (!view.contiguous() || product != view.elements())
      call.refuse(std::string(", argument '") + call.kernel.buffers[r.buffer].name +
                  "': it is viewed in another shape, and must be contiguous and have as many elements");
  }
}

inline Call bound(const Kernel& kernel, const tegula_tensor* const* tensors, const Scalar* scalars) {
  Call call{kernel, std::vector<Value>(static_cast<std::size_t>(kernel.value_count)), {}};
  for (std::int32_t t = 0; t < kernel.parameters; ++t) {
    call.tensors.push_back(checked(call, kernel.buffers[t], tensors[t]));
    if (t == 0) call.device = tensors[t]->device;
    if (tensors[t]->device != call.device) call.refuse(": the tensors are on several devices");
  }
  for (std::int32_t s = 0; s < kernel.scalar_count; ++s)
    call.values[static_cast<std::size_t>(kernel.dim_count + s)] = {scalars[s].integer, scalars[s].real};
  return call;
}

// With the number of processors known.
inline void finish(Call& call, std::int64_t processors) {
  const Kernel& k = call.kernel;
  for (std::int32_t v = k.dim_count + k.scalar_count; v < k.value_count; ++v)
    call.values[static_cast<std::size_t>(v)].integer = processors;
  solve(call);
  check_rules(call);
  check_memory(call);
  shape_workspaces(call);
  check_reshapes(call);
}

// The values as words of printed code.
inline std::vector<std::int64_t> words_of(const Call& call) {
  std::vector<std::int64_t> words;
  for (const Value& value : call.values) words.push_back(value.integer);
  for (std::int32_t s = 0; s < call.kernel.scalar_count; ++s) {
    const auto at = static_cast<std::size_t>(call.kernel.dim_count + s);
    const int type = call.kernel.scalar_types[s];
    if (type == tegula_f64) std::memcpy(&words[at], &call.values[at].real, 8);
    if (type != tegula_f32) continue;
    const auto narrow = static_cast<float>(call.values[at].real);
    std::int32_t bits;
    std::memcpy(&bits, &narrow, 4);
    words[at] = bits;
  }
  return words;
}

inline std::int64_t extent_of(const Call& call, const Grid& grid, int d) {
  if (d >= grid.rank) return 1;
  const Value value = evaluate(grid.extents[d], call.values);
  return value.invalid || value.integer < 0 ? 0 : value.integer;
}

}  // namespace bundle
