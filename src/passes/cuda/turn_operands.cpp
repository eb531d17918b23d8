#include "passes/cuda/turn_operands.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/lower.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool is_candidate(const Buffer& tile) {
  return tile.space == Space::shared && tile.rank() == 2 && tile.type.bits() == 8;
}

class Turning {
 public:
  Turning(const Grid& grid, const CudaTarget& target) : grid_(grid), target_(target) {
    for_each_stmt(grid.body, [&](const Stmt& s) { sort(s); });
    for (const Buffer* tile : others_) turned_.erase(tile);
    keep_those_that_help();
  }

  Body body() const {
    if (turned_.empty()) return grid_.body;
    return map_body(grid_.body, [&](const Stmt& s) -> Body {
      if (const auto* n = as<Declare>(s); n && turned_.contains(n->tile.get()))
        return {statement(Declare{turned_.at(n->tile.get())}, s->at)};
      if (const auto* n = as<Copy>(s)) {
        Copy own = *n;
        own.to = turned(n->to);
        return {statement(std::move(own), s->at)};
      }
      if (const auto* n = as<Gemm>(s)) return {statement(turned(*n), s->at)};
      return {s};
    });
  }

 private:
  // What the statement does to tiles: brings or multiplies them as wholes, or something else.
  void sort(const Stmt& s) {
    if (const auto* n = as<Declare>(s)) {
      if (!is_candidate(*n->tile)) return;
      Buffer own = *n->tile;
      std::swap(own.shape[0], own.shape[1]);
      turned_.emplace(n->tile.get(), std::make_shared<const Buffer>(std::move(own)));
      return;
    }
    const auto* copy = as<Copy>(s);
    const auto* gemm = as<Gemm>(s);
    for (const Region& r : effects(s).regions) {
      const View& view = *r.view;
      const bool brought = copy && &view.buffer == &copy->to.buffer && is_whole(view) && !copy->from.is_tile();
      const bool read = gemm && !gemm->metadata &&
                        ((view.buffer == gemm->a.buffer && is_turned_a(*gemm)) ||
                         (view.buffer == gemm->b.buffer && is_whole(gemm->b)));
      if (is_candidate(*view.buffer) && !brought && !read) others_.insert(view.buffer.get());
    }
  }

  static bool is_turned_a(const Gemm& n) {
    const View& a = n.a;
    return is_candidate(*a.buffer) && a.rank() == 2 && is_whole(exchanged(a));
  }

  // Its transpose.
  static View exchanged(View view) {
    for (ViewDim& dim : view.dims)
      if (dim.axis >= 0) dim.axis = 1 - dim.axis;
    std::swap(view.extents[0], view.extents[1]);
    return view;
  }

  // The same elements of the tile of the other order.
  View turned(const View& view) const {
    const auto own = turned_.find(view.buffer.get());
    if (own == turned_.end()) return view;
    View result = view;
    result.buffer = own->second;
    std::swap(result.shape[0], result.shape[1]);
    std::swap(result.dims[0], result.dims[1]);
    return result;
  }
  Gemm turned(const Gemm& n) const {
    Gemm own = n;
    own.a = turned(n.a), own.b = turned(n.b);
    return own;
  }

  // Tiles stay as they are unless all of their products become products of warp groups.
  void keep_those_that_help() {
    std::unordered_set<const Buffer*> read, useless;
    for (const auto& [gemm, threads] : team_products(grid_.body, grid_.hints.threads)) {
      const bool helps = plan_gemm(turned(*gemm), threads, target_).instruction == GemmInstruction::wgmma &&
                         plan_gemm(*gemm, threads, target_).instruction != GemmInstruction::wgmma;
      for (const View* operand : {&gemm->a, &gemm->b}) {
        read.insert(operand->buffer.get());
        if (!helps) useless.insert(operand->buffer.get());
      }
    }
    std::erase_if(turned_, [&](const auto& own) { return !read.contains(own.first) || useless.contains(own.first); });
  }

  const Grid& grid_;
  const CudaTarget& target_;
  std::unordered_map<const Buffer*, BufferPtr> turned_;
  std::unordered_set<const Buffer*> others_;
};

}  // namespace

Kernel turn_operands(const Kernel& kernel, const CudaTarget& target) {
  if (!target.has_wgmma()) return kernel;
  Kernel result = kernel;
  for (Grid& grid : result.grids) grid.body = Turning(grid, target).body();
  return result;
}

}  // namespace tegula::passes
