// What of Signature is worked out once for a kernel.
#include <fmt/format.h>

#include "ir/visit.hpp"
#include "runtime/call/binding.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

using ir::VariableKind;

bool is_dim(const ir::Expr& e) { return e->op == ir::Op::variable && e->variable->kind == VariableKind::dim; }

bool is_reshaped(const ir::View& view) {
  const std::vector<ir::Expr>& own = view.buffer->shape;
  if (view.shape.size() != own.size()) return true;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!ir::equal(view.shape[i], own[i])) return true;
  }
  return false;
}

bool may_alias(const ir::Kernel& kernel, const ir::Buffer* a, const ir::Buffer* b) {
  for (const auto& [first, second] : kernel.may_alias) {
    if ((first.get() == a && second.get() == b) || (first.get() == b && second.get() == a)) return true;
  }
  return false;
}

}  // namespace

Signature::Signature(ir::KernelPtr kernel, DeviceKind device) : kernel_(std::move(kernel)), device_(device) {
  for (const ir::Parameter& parameter : kernel_->parameters) {
    if (parameter.tensor) buffers_.push_back(parameter.tensor);
  }
  parameter_tensors_ = buffers_.size();
  buffers_.insert(buffers_.end(), kernel_->workspaces.begin(), kernel_->workspaces.end());
  collect_variables();
  plan_extents();
  for (const ir::Requirement& requirement : kernel_->requirements) {
    requirements_.push_back({HostExpr(requirement.condition, *this), &requirement});
  }
  plan_reshapes();
  plan_pairs();
}

void Signature::collect_variables() {
  for (const ir::Dim& dim : kernel_->dims) variables_.push_back(dim.variable);
  for (const ir::Parameter& parameter : kernel_->parameters) {
    if (parameter.scalar) variables_.push_back(parameter.scalar);
  }
  const auto add_processors = [this](const ir::VariablePtr& variable) {
    if (variable->kind == VariableKind::processors && position_of(variable.get()) < 0) {
      variables_.push_back(variable);
    }
  };
  const auto add_all = [&](const ir::Expr& e) {
    if (e != nullptr) ir::for_each_variable(e, add_processors);
  };
  for (const ir::BufferPtr& buffer : buffers_) {
    for (const ir::Expr& extent : buffer->shape) add_all(extent);
  }
  for (const ir::Requirement& requirement : kernel_->requirements) add_all(requirement.condition);
  for (const ir::Grid& grid : kernel_->grids) {
    for (const ir::Expr& extent : grid.extents) add_all(extent);
    add_all(grid.hints.cost);
    add_all(grid.hints.together);
  }
  ir::for_each_stmt(*kernel_, [&](const ir::Stmt& stmt) { ir::for_each_expr(stmt, add_all); });
}

Signature::Extent Signature::plan_extent(const ir::Expr& extent, int tensor, int dim) {
  if (ir::is_constant(extent)) return {ExtentKind::constant, ir::constant_value(extent), -1, {}};
  const bool is_parameter = static_cast<std::size_t>(tensor) < parameter_tensors_;
  if (!is_dim(extent) || !is_parameter) return {ExtentKind::computed, 0, -1, HostExpr(extent, *this)};
  const int position = position_of(extent->variable.get());
  internal_assert(position >= 0, "a dim is not declared in the kernel", extent->at);
  Source& source = sources_[static_cast<std::size_t>(position)];
  if (source.tensor >= 0) return {ExtentKind::repeats, 0, position, {}};
  source = {tensor, dim};
  return {ExtentKind::solves, 0, position, {}};
}

void Signature::plan_extents() {
  sources_.resize(kernel_->dims.size());
  for (std::size_t t = 0; t < buffers_.size(); ++t) {
    extents_.emplace_back();
    for (int d = 0; d < buffers_[t]->rank(); ++d) {
      extents_.back().push_back(
          plan_extent(buffers_[t]->shape[static_cast<std::size_t>(d)], static_cast<int>(t), d));
    }
  }
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].tensor >= 0) continue;
    const ir::Variable& dim = *variables_[i];
    throw ProgramError(fmt::format("no argument determines the dim '{0}' of kernel '{1}': an extent must be "
                                   "'{0}' alone in one tensor; otherwise make it a scalar",
                                   dim.name, kernel_->name),
                       dim.at);
  }
}

void Signature::plan_reshape(const ir::View& view, const Loc& at) {
  const int tensor = position_of(view.buffer.get());
  if (tensor < 0 || !is_reshaped(view)) return;
  Reshape reshape{tensor, {}, at};
  for (const ir::Expr& extent : view.shape) {
    ir::for_each_variable(extent, [&](const ir::VariablePtr& variable) {
      if (position_of(variable.get()) >= 0) return;
      throw ProgramError(fmt::format("the shape to which '{}' is reshaped reads '{}', which is not known at "
                                     "the call; use constants, dims and scalars",
                                     view.buffer->name, variable->name),
                         at);
    });
    reshape.shape.emplace_back(extent, *this);
  }
  reshapes_.push_back(std::move(reshape));
}

void Signature::plan_reshapes() {
  ir::for_each_stmt(*kernel_, [this](const ir::Stmt& stmt) {
    ir::for_each_view(stmt, [&](const ir::View& view) { plan_reshape(view, stmt->at); });
  });
}

void Signature::plan_pairs() {
  for (std::size_t a = 0; a < parameter_tensors_; ++a) {
    for (std::size_t b = a + 1; b < parameter_tensors_; ++b) {
      const bool written = buffers_[a]->is_writable() || buffers_[b]->is_writable();
      if (written && !may_alias(*kernel_, buffers_[a].get(), buffers_[b].get())) {
        pairs_.push_back({static_cast<int>(a), static_cast<int>(b)});
      }
    }
  }
}

}  // namespace tegula
