#include "analyze/count.hpp"

#include <algorithm>

#include "ir/visit.hpp"

namespace tegula::analyzed {

namespace {

constexpr double most_counted_blocks = 256;

class Counter {
 public:
  explicit Counter(Values values) : values_(std::move(values)) {}

  Work count(const ir::Body& body) {
    Work work;
    for (const ir::Stmt& stmt : body) std::visit([&](const auto& node) { add(work, node); }, stmt->node);
    return work;
  }
  Values& values() { return values_; }

 private:
  ir::Value value(const ir::Expr& e) const {
    return ir::evaluate(e, [&](const ir::VariablePtr& variable) {
      const auto found = values_.find(variable.get());
      return found == values_.end() ? ir::invalid_value(variable->type) : found->second;
    });
  }
  static double number(const ir::Value& v) {
    return v.type.is_floating() ? v.real : static_cast<double>(v.integer);
  }

  // What the special function units of a GPU compute; a logarithm and an exponential make a power.
  static double specials(const ir::Expr& e) {
    using ir::Op;
    switch (e->op) {
      case Op::exp:
      case Op::exp2:
      case Op::log:
      case Op::log2:
      case Op::sqrt:
      case Op::rsqrt:
      case Op::rcp:
      case Op::tanh:
      case Op::sin:
      case Op::cos:
      case Op::erf:
        return 1;
      case Op::div:
        return e->type.is_floating();
      case Op::pow:
        return 2;
      default:
        return 0;
    }
  }
  // Nodes that compute; index arithmetic of copies does not count.
  static void add_operations(Work& work, const ir::Expr& e) {
    if (const double special = specials(e); special > 0)
      work.flops["special"] += special;
    else if (e->op != ir::Op::constant && e->op != ir::Op::variable && e->op != ir::Op::cast)
      work.flops["other"] += e->type.is_floating();
    for (const ir::Expr& arg : e->args) add_operations(work, arg);
  }
  static std::string kind_of(const ir::Gemm& n) {
    switch (n.hints.precision) {
      case ir::Precision::tf32:
        return "tf32";
      case ir::Precision::tf32x3:
        return "tf32x3";
      case ir::Precision::ieee:
        break;
    }
    return std::string(n.a.buffer->type.name());
  }
  double elements(const ir::View& view) const {
    double product = 1;
    for (const ir::Expr& extent : view.extents) {
      const ir::Value own = value(extent);
      product *= own.invalid ? 1 : number(own);
    }
    return product;
  }
  static double bytes_of(const ir::View& view) { return view.is_tile() ? 0 : view.buffer->type.bytes(); }

  // The tile gives the extents.
  void add(Work& work, const ir::Copy& n) {
    const double count = elements(n.to.is_tile() ? n.to : n.from);
    work.copied_bytes += count * (bytes_of(n.from) + bytes_of(n.to));
  }
  void add(Work& work, const ir::Gather& n) { work.copied_bytes += elements(n.to) * bytes_of(n.from); }
  void add(Work& work, const ir::Gemm& n) {
    work.flops[kind_of(n)] += 2.0 * static_cast<double>(n.a.extent(0) * n.depth() * n.b.extent(1));
  }
  void add(Work& work, const ir::Reduce& n) { work.flops["other"] += elements(n.from); }
  void add(Work& work, const ir::Scan& n) { work.flops["other"] += elements(n.from); }
  void add(Work& work, const ir::Accumulate& n) {
    work.copied_bytes += elements(n.tile) * 2 * bytes_of(n.to);
    work.flops["other"] += elements(n.tile);
  }
  void add(Work& work, const ir::Load& n) { work.copied_bytes += bytes_of(n.from.view); }
  void add(Work& work, const ir::Store& n) {
    work.copied_bytes += bytes_of(n.to.view);
    add_operations(work, n.value);
  }
  void add(Work& work, const ir::Atomic& n) {
    work.copied_bytes += 2 * bytes_of(n.to.view);
    work.flops["other"] += 1;
    add_operations(work, n.value);
  }
  void add(Work& work, const ir::Let& n) {
    add_operations(work, n.value);
    values_[n.variable.get()] = value(n.value);
  }
  void add(Work& work, const ir::Assign& n) { add_operations(work, n.value); }
  // The middle of a loop stands for all its steps.
  void add(Work& work, const ir::For& n) {
    double steps = 1;
    for (std::size_t i = 0; i < n.index.size(); ++i) {
      const ir::Value begin = value(n.begin[i]), end = value(n.end[i]);
      const bool known = !begin.invalid && !end.invalid;
      work.is_estimated |= !known;
      const std::int64_t count = known ? std::max<std::int64_t>(0, end.integer - begin.integer) : 1;
      steps *= static_cast<double>(count);
      if (known) values_[n.index[i].get()] = ir::integer_value(n.index[i]->type, begin.integer + count / 2);
    }
    if (steps > 0) work.add(count(n.body), steps);
  }
  void add(Work& work, const ir::If& n) {
    const ir::Value condition = value(n.condition);
    work.is_estimated |= condition.invalid;
    work.add(count(condition.invalid || condition.truth() ? n.then : n.otherwise), 1);
  }
  void add(Work& work, const ir::While& n) {
    work.is_estimated = true;
    work.add(count(n.test), 1);
    work.add(count(n.body), 1);
  }
  template <class Other>
  void add(Work&, const Other&) {}

  Values values_;
};

}  // namespace

void Work::add(const Work& other, double times) {
  for (auto& [type, count] : other.flops) flops[type] += times * count;
  copied_bytes += times * other.copied_bytes;
  is_estimated |= other.is_estimated;
}

double blocks_of(const ir::Grid& grid, const Values& values) {
  double blocks = 1;
  for (const ir::Expr& extent : grid.extents) {
    const ir::Value own = ir::evaluate(extent, [&](const ir::VariablePtr& v) { return values.at(v.get()); });
    blocks *= own.invalid ? 0 : static_cast<double>(std::max<std::int64_t>(own.integer, 0));
  }
  return blocks;
}

Work work_of(const ir::Grid& grid, const Values& values) {
  const double blocks = blocks_of(grid, values), counted = std::min(blocks, most_counted_blocks);
  Work all;
  for (double i = 0; i < counted; ++i) {
    auto block = static_cast<std::int64_t>((i + 0.5) * blocks / counted);
    Counter counter(values);
    for (std::size_t d = 0; d < grid.index.size(); ++d) {
      const ir::Value extent =
          ir::evaluate(grid.extents[d], [&](const ir::VariablePtr& v) { return values.at(v.get()); });
      counter.values()[grid.index[d].get()] = ir::integer_value(grid.index[d]->type, block % extent.integer);
      block /= extent.integer;
    }
    all.add(counter.count(grid.body), blocks / counted);
  }
  return all;
}

}  // namespace tegula::analyzed
