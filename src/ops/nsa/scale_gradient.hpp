// The gradient of a factor of the scores of every selected block.
#pragma once
#include "ops/lists/union.hpp"
#include "ops/nsa/kernel.hpp"

namespace tegula::ops {

// Sums over the heads and keys of a block, for each token of a tile.
class ScaleGradient {
 public:
  ScaleGradient(const NsaKernel& kernel, UnionList& chosen)
      : f(kernel),
        chosen_(chosen),
        sums_(std::initializer_list<int>{f.queries * chosen.width(), f.queries}, f32) {
    clear(sums_);
  }

  // Adds the gradients of a step's scores, times the scores.
  void add(const BlockTile& tile, const lang::Fragment& scores, const lang::Fragment& gradients) {
    using namespace lang;
    Expr count = chosen_.count();
    Shared products({f.rows(), f.keys}, f32);
    parallel(products, [&](Index r, Index t) { products(r, t) = scores(r, t) * gradients(r, t); });
    const int blocks = f.tiles().gathers() ? f.keys / f.block : 1, width = f.keys / blocks;
    parallel(f.queries, blocks, [&](Index token, Index i) {
      Var sum = 0.f;
      serial(f.pack, [&](Index head) {
        serial(width, [&](Index t) { sum += products(token * f.pack + head, i * width + t); });
      });
      Expr place = tile.place(i * width);
      when(place < count, [&] { sums_(place, token) += sum; });
    });
  }

  // An entry that selects nothing, or what an earlier one of its token selects, does not contribute to the
  // result; of entries that count repeatedly, each has an equal share.
  void write(const TokenTile& tokens, const Selection& selection, const lang::Tensor& to,
             const lang::Expr& factor) {
    using namespace lang;
    parallel(f.queries, f.entries, [&](Index token, Index e) {
      Expr row = tokens.first + token, entry = token * chosen_.width() + e;
      when(row < tokens.count && e < selection.choice.extent(1), [&] {
        Var value = 0.f;
        Expr counts = f.repeats ? chosen_.selects(entry) : chosen_.selects(entry) && chosen_.is_first(entry);
        when(counts, [&] {
          Expr sum = sums_(chosen_.place(entry), token) * factor;
          value = f.repeats ? sum / f32(chosen_.times(chosen_.place(entry), token)) : sum;
        });
        to(row, e) = value;
      });
    });
  }

 private:
  const NsaKernel& f;
  UnionList& chosen_;
  lang::Shared sums_;
};

}  // namespace tegula::ops
