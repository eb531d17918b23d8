#include "fuzz/edit.hpp"

#include <algorithm>
#include <set>

#include "ir/visit.hpp"

namespace tegula::fuzz {
namespace {

using namespace ir;

Expr resized(const Expr& e, std::int64_t from, std::int64_t to) {
  return e != nullptr && is_constant(e, from) ? constant(e->type, to, e->at) : e;
}

BufferPtr resized(const BufferPtr& buffer, std::int64_t from, std::int64_t to, Contracts& contracts) {
  Buffer result = *buffer;
  for (Expr& e : result.shape) e = resized(e, from, to);
  auto made = std::make_shared<const Buffer>(std::move(result));
  contracts.buffers[made.get()] = contracts.buffers.at(buffer.get());
  return made;
}

Given resized(const Given& given, std::int64_t from, std::int64_t to) {
  if (!given.is_tensor) return given;
  Tensor window = given.tensor;
  for (int d = 0; d < window.rank(); ++d) {
    if (window.shape()[static_cast<std::size_t>(d)] == from) window = window.slice(d, 0, to);
  }
  Given result = given;
  result.layout = 0;
  result.base = Tensor::zeros(window.shape(), window.dtype());
  copy_elements(window, result.base);
  result.tensor = result.base;
  return result;
}

}  // namespace

Program with_extent(const Program& program, std::int64_t from, std::int64_t to) {
  Program result = program;
  Kernel kernel = *program.kernel;
  BufferRenaming renaming;
  const auto resize = [&](BufferPtr& buffer) {
    if (buffer == nullptr) return;
    const BufferPtr made = resized(buffer, from, to, result.contracts);
    renaming[buffer] = made;
    buffer = made;
  };
  for (Parameter& p : kernel.parameters) resize(p.tensor);
  for (BufferPtr& w : kernel.workspaces) resize(w);
  for_each_stmt(kernel, [&](const Stmt& stmt) {
    const auto* declare = as<Declare>(stmt);
    if (declare) renaming[declare->tile] = resized(declare->tile, from, to, result.contracts);
  });
  for (Grid& grid : kernel.grids) {
    for (Expr& e : grid.extents) e = resized(e, from, to);
    grid.body = map_exprs(rename_buffers(grid.body, renaming), [&](const Expr& e) {
      return rewrite(e, [&](const Expr& node) { return resized(node, from, to); });
    });
  }
  for (Given& given : result.arguments) given = resized(given, from, to);
  result.kernel = std::make_shared<const Kernel>(std::move(kernel));
  return result;
}

std::vector<std::int64_t> extents_of(const Program& program) {
  std::set<std::int64_t, std::greater<>> found;
  const auto note = [&](const Expr& e) {
    if (is_constant(e) && !e->type.is_floating() && e->integer > 1) found.insert(e->integer);
  };
  for_each_stmt(*program.kernel, [&](const Stmt& stmt) {
    if (const auto* n = as<Declare>(stmt)) std::for_each(n->tile->shape.begin(), n->tile->shape.end(), note);
    if (const auto* n = as<For>(stmt)) std::for_each(n->end.begin(), n->end.end(), note);
  });
  for (const Given& given : program.arguments) {
    if (!given.is_tensor) continue;
    for (const std::int64_t e : given.tensor.shape()) {
      if (e > 1) found.insert(e);
    }
  }
  return {found.begin(), found.end()};
}

Program with_kernel(const Program& program, Kernel kernel) {
  Program result = program;
  result.kernel = std::make_shared<const Kernel>(std::move(kernel));
  return result;
}

}  // namespace tegula::fuzz
