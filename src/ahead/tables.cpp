#include "ahead/tables.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/visit.hpp"
#include "runtime/machine/cpu_features.hpp"
#include "tegula/error.hpp"

namespace tegula::ahead {

namespace {

constexpr ir::Op computed_ops[] = {
    ir::Op::constant,    ir::Op::variable,   ir::Op::add,         ir::Op::sub,      ir::Op::mul,
    ir::Op::div,         ir::Op::mod,        ir::Op::floordiv,    ir::Op::floormod, ir::Op::ceildiv,
    ir::Op::min,         ir::Op::max,        ir::Op::neg,         ir::Op::abs,      ir::Op::eq,
    ir::Op::ne,          ir::Op::lt,         ir::Op::le,          ir::Op::gt,       ir::Op::ge,
    ir::Op::logical_and, ir::Op::logical_or, ir::Op::logical_not, ir::Op::isnan,    ir::Op::select,
    ir::Op::cast};

int code_of(DType type) { return static_cast<int>(type.code); }

const char* text_of(bool value) { return value ? "true" : "false"; }

// Prints definitions of arrays as they are needed; what is returned names them.
class Printer {
 public:
  Printer(const BundledKernel& kernel, std::string name)
      : kernel_(kernel), signature_(kernel.signature), name_(std::move(name)) {}

  std::string print() {
    const ir::Kernel& ir = signature_.kernel();
    std::string fields =
        fmt::format("{}, {}, {}, {}, {}, {}", c_literal(ir.name), buffers(), signature_.parameter_tensors(),
                    signature_.buffers().size(), dims(), ir.dims.size());
    fields += fmt::format(", {}, {}, {}", scalars_, signature_.variables().size(), scalar_types());
    fields += ", " + counted(requirements()) + ", " + counted(reshapes()) + ", " + counted(pairs()) + ", " +
              counted(grids());
    fields += ", " + cpu() + ", {" + cuda(kernel_.cuda) + ", " + cuda(kernel_.cuda_by_threads) + "}";
    return text_ + fmt::format("const Kernel {} = {{{}, {}}};\n", name_, fields, kernel_.architecture);
  }

 private:
  using Items = std::vector<std::string>;
  struct Array {
    std::string name;
    std::size_t count;
  };

  // `nullptr` stands for an empty one.
  Array array(const char* type, const Items& items) {
    if (items.empty()) return {"nullptr", 0};
    const std::string name = fmt::format("{}_{}", name_, count_++);
    text_ += fmt::format("const {} {}[] = {{{}}};\n", type, name, fmt::join(items, ", "));
    return {name, items.size()};
  }
  static std::string counted(const Array& array) { return fmt::format("{}, {}", array.name, array.count); }

  void add_steps(const ir::Expr& e, Items& steps) {
    for (const ir::Expr& arg : e->args) add_steps(arg, steps);
    if (std::ranges::find(computed_ops, e->op) == std::end(computed_ops))
      throw ArgumentError(
          fmt::format("build: kernel '{}' uses {} at {} in an extent or a requirement, which bundles cannot "
                      "compute; compute it in advance and pass it as a scalar",
                      signature_.kernel().name, ir::name_of(e->op), short_location(e->at)));
    const int position = e->op == ir::Op::variable ? signature_.position_of(e->variable.get()) : -1;
    const auto at =
        static_cast<std::size_t>(std::ranges::find(computed_ops, e->op) - std::begin(computed_ops));
    steps.push_back(fmt::format(
        "{{Op({}), {}, {}, {}, {}}}", at, code_of(e->held()), position,
        e->op == ir::Op::constant && !e->type.is_floating() ? fmt::format("{}ll", e->integer) : "0",
        e->op == ir::Op::constant && e->type.is_floating() ? fmt::format("{:.17g}", e->real) : "0"));
  }
  std::string expr(const ir::Expr& e) {
    Items steps;
    add_steps(e, steps);
    return "{" + counted(array("Step", steps)) + "}";
  }

  // The first parameter that has a dim alone as an extent gives it its value.
  std::string extent(const ir::Expr& e, bool is_parameter, std::vector<bool>& solved) {
    const bool is_dim = e->op == ir::Op::variable && e->variable->kind == ir::VariableKind::dim;
    const auto position = is_dim ? static_cast<std::size_t>(signature_.position_of(e->variable.get())) : 0;
    const bool solves = is_dim && is_parameter && !solved[position];
    if (solves) solved[position] = true;
    return fmt::format("{{{}, {}, {}}}", text_of(solves), position, expr(e));
  }

  std::string buffers() {
    std::vector<bool> solved(signature_.kernel().dims.size(), false);
    Items items;
    for (const ir::BufferPtr& buffer : signature_.buffers()) {
      const bool is_parameter = items.size() < signature_.parameter_tensors();
      Items extents;
      for (const ir::Expr& e : buffer->shape) extents.push_back(extent(e, is_parameter, solved));
      const int role = !is_parameter                      ? 3
                       : buffer->role == ir::Role::inout  ? 2
                       : buffer->role == ir::Role::output ? 1
                                                          : 0;
      items.push_back(fmt::format("{{{}, {}, Role({}), {}, {}, {}}}", c_literal(buffer->name),
                                  code_of(buffer->type), role, text_of(buffer->zero), buffer->rank(),
                                  array("Extent", extents).name));
    }
    return array("Buffer", items).name;
  }
  std::string dims() {
    Items items;
    for (const ir::Dim& dim : signature_.kernel().dims)
      items.push_back(
          fmt::format("{{{}, {}}}", c_literal(dim.variable->name), std::max<std::int64_t>(dim.multiple, 1)));
    return array("Dim", items).name;
  }
  std::string scalar_types() {
    Items items;
    for (const ir::Parameter& parameter : signature_.kernel().parameters) {
      if (parameter.scalar) items.push_back(std::to_string(code_of(parameter.scalar->type)));
    }
    return array("std::uint8_t", items).name;
  }
  Array requirements() {
    Items items;
    for (const ir::Requirement& own : signature_.kernel().requirements)
      items.push_back(fmt::format("{{{}, {}}}", expr(own.condition), c_literal(own.message)));
    return array("Requirement", items);
  }

  Array reshapes() {
    Items items;
    ir::for_each_stmt(signature_.kernel(), [&](const ir::Stmt& stmt) {
      ir::for_each_view(stmt, [&](const ir::View& view) {
        const int position = signature_.position_of(view.buffer.get());
        const auto& own = view.buffer->shape;
        if (position < 0 || ir::equal(view.shape, own)) return;
        Items shape;
        for (const ir::Expr& e : view.shape) shape.push_back(expr(e));
        items.push_back(fmt::format("{{{}, {}, {}}}", position, shape.size(), array("Expr", shape).name));
      });
    });
    return array("Reshape", items);
  }

  bool may_alias(const ir::BufferPtr& a, const ir::BufferPtr& b) const {
    return std::ranges::any_of(signature_.kernel().may_alias, [&](const auto& pair) {
      return (pair.first == a && pair.second == b) || (pair.first == b && pair.second == a);
    });
  }
  Array pairs() {
    Items items;
    for (std::size_t b = 0; b < signature_.parameter_tensors(); ++b) {
      for (std::size_t a = 0; a < b; ++a) {
        const auto &first = signature_.buffers()[a], &second = signature_.buffers()[b];
        if ((first->is_writable() || second->is_writable()) && !may_alias(first, second))
          items.push_back(fmt::format("{{{}, {}}}", a, b));
      }
    }
    return array("Pair", items);
  }

  Array grids() {
    Items items;
    for (const ir::Grid& grid : signature_.kernel().grids) {
      Items extents;
      for (const ir::Expr& e : grid.extents) extents.push_back(expr(e));
      const std::int64_t strip = grid.hints.order == ir::GridOrder::column    ? INT32_MAX
                                 : grid.hints.order == ir::GridOrder::grouped ? grid.hints.group
                                                                              : 0;
      items.push_back(fmt::format("{{{{{}}}, {}, {}}}", fmt::join(extents, ", "), extents.size(), strip));
    }
    return array("Grid", items);
  }

  // The declaration of a function of the CPU's text, and its addresses for each instruction set.
  std::string of_isas(const char* type, const std::string& function) {
    Items names;
    for (const Isa isa : all_isas) {
      names.push_back(function_for(function, isa_name(isa)));
      text_ += fmt::format("extern \"C\" {} {};\n", type, names.back());
    }
    return fmt::format("{{{}}}", fmt::join(names, ", "));
  }
  static std::string report_text(const codegen::CpuProgram::Report& report) {
    return c_literal(fmt::format("{} ({})", report.text, short_location(report.at)));
  }
  std::string cpu() {
    if (!kernel_.cpu) return "{nullptr, nullptr, nullptr, nullptr}";
    Items grids, apply, assertions, prints;
    for (auto& block : kernel_.cpu->blocks)
      grids.push_back(fmt::format("{{{}, {}, {}}}", of_isas("TegulaBlock", block.function),
                                  block.scratch_bytes, block.record_bytes));
    for (auto& ordered : kernel_.cpu->ordered)
      apply.push_back("{" + of_isas("TegulaApply", ordered.function) + "}");
    for (auto& own : kernel_.cpu->assertions) assertions.push_back(report_text(own));
    for (auto& own : kernel_.cpu->prints) prints.push_back(report_text(own));
    const Array a = array("CpuGrid", grids), b = array("CpuApply", apply);
    const Array c = array("char* const", assertions), d = array("char* const", prints);
    return fmt::format("{{{}, {}, {}, {}}}", a.name, b.name, c.name, d.name);
  }

  std::string cuda(const std::optional<CudaCode>& code) {
    if (!code) return "{nullptr, nullptr, nullptr, 0, nullptr, 0, nullptr, 0}";
    Items grids, maps, aligned, assertions;
    for (auto& own : code->program.kernels)
      grids.push_back(fmt::format("{{{}, {}, {}, {}, {}, {}, {}}}", c_literal(own.function), own.threads,
                                  own.ctas, own.shared_bytes, text_of(own.is_persistent),
                                  text_of(own.is_even), text_of(own.waits)));
    for (auto& map : code->program.maps) {
      Items box;
      for (const int n : map.box) box.push_back(std::to_string(n));
      maps.push_back(fmt::format("{{{}, {}, {}, {}, {}}}", map.tensor, array("std::int32_t", box).name,
                                 map.columns, text_of(map.is_swizzled), text_of(map.is_rest)));
    }
    for (const auto& [tensor, bytes] : code->program.aligned)
      aligned.push_back(fmt::format("{{{}, {}}}", tensor, bytes));
    for (auto& own : code->program.assertions)
      assertions.push_back(c_literal(fmt::format("{} ({})", own.message, short_location(own.at))));
    text_ += fmt::format("extern \"C\" const unsigned char {}[];\n", code->symbol);
    const Array a = array("CudaGrid", grids), b = array("CudaMap", maps), c = array("CudaAligned", aligned);
    return fmt::format("{{{}, {}, {}, {}, {}}}", code->symbol, a.name, counted(b), counted(c),
                       counted(array("char* const", assertions)));
  }

  const BundledKernel& kernel_;
  const Signature& signature_;
  std::string name_, text_;
  std::size_t scalars_ = static_cast<std::size_t>(std::ranges::count_if(
      signature_.kernel().parameters, [](auto& parameter) { return parameter.scalar != nullptr; }));
  int count_ = 0;
};

}  // namespace

std::string tables(const BundledKernel& kernel, const std::string& name) {
  return Printer(kernel, name).print();
}

std::string function_for(const std::string& function, std::string_view isa) {
  return fmt::format("{}_{}", function, isa);
}

std::string c_literal(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return result + "\"";
}

}  // namespace tegula::ahead
