// What is formed before a wait for products stays before it.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

// One number of the last chain of sums that are formed first: the others, and what the result is multiplied
// by, may come behind the wait. Adding them up for the sake of this takes a hundredth of a step's
// instructions. Products of 8 bits are over in half of the time: behind them little may come late, so that
// all chains and factors are held (4 to 7 % of the time of attention).
void CudaGridPrinter::hold(const Stmt& s, int sixteenths) {
  if (const auto* loop = as<For>(s)) {
    const FragmentTile& result = fragments_.at(as<Store>(loop->body.back())->to.view.buffer.get());
    return sync_line(fmt::format("tg::hold(tg::total<{}>({}));",
                                 result.layout.register_count() * sixteenths / 16, result.name));
  }
  if (!multiplies_bytes())
    return sync_line(fmt::format("tg::hold({}[{}]);", partial_->name, partial_->chains - 1));
  std::string text = fmt::format("tg::total<{}>({})", partial_->chains, partial_->name);
  for (const FragmentTile& f : factors_)
    text += fmt::format(" + tg::total<{}>({})", f.layout.register_count(), f.name);
  sync_line(fmt::format("tg::hold({});", text));
}

// Whether fragments of 8 bits are multiplied.
bool CudaGridPrinter::multiplies_bytes() const {
  bool found = false;
  for_each_stmt(grid_->body, [&](const Stmt& s) {
    const auto* gemm = as<Gemm>(s);
    found |= gemm && gemm->a.buffer->space == Space::fragment && gemm->a.buffer->type.bits() == 8;
  });
  return found;
}

// Fragments of exponentials, which are not negative.
void CudaGridPrinter::note_factors(const Stmt& s) {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel) return;
  for_each_stmt(loop->body, [&](const Stmt& inner) {
    const auto* store = as<Store>(inner);
    if (!store || store->to.view.buffer->space != Space::fragment) return;
    const Buffer* buffer = store->to.view.buffer.get();
    const auto found = fragments_.find(buffer);
    if (found == fragments_.end()) return;
    std::erase_if(factors_, [&](const FragmentTile& f) { return f.name == found->second.name; });
    if ((store->value->op == Op::exp2 || store->value->op == Op::exp) && buffer->type == f32)
      factors_.push_back(found->second);
  });
}

}  // namespace tegula::codegen
