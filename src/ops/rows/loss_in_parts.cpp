#include "ops/rows/loss_in_parts.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "ops/rows/loss_labels.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr float lowest = std::numeric_limits<float>::lowest(), none = -std::numeric_limits<float>::infinity();

struct Parts {
  const LossInParts& c;
  Dim rows{"rows"};
  Tensor logits = input("logits", {rows, c.classes}, c.type), labels = input("labels", {rows}, i32);
  Tensor losses = output("loss", {rows}, f32), all_lse = output("lse", {rows}, f32);
  Expr ignored = scalar("ignore_index", i64);
  Expr smoothing = c.smooths ? scalar("label_smoothing", f32) : Expr(f32(0));
  int count = (c.classes + c.columns - 1) / c.columns;
  Tensor largest = workspace("largest", {rows, count}, f32), sums = workspace("sums", {rows, count}, f32);
  Tensor plain = c.smooths ? workspace("plain", {rows, count}, f32) : sums;

  // Of a part of -inf, no difference is NaN: its sum is 0.
  void find() const {
    grid(count, rows, [&](Index part, Index row) {
      const Expr first = part * c.columns;
      Fragment x = load(logits.slice(row).at(first), {c.columns}, f32);
      if (c.smooths) plain(row, part) = reduce_sum(x).scalar();
      if (c.classes % c.columns != 0)
        parallel(x, [&](Index j) { x(j) = select(first + j < c.classes, x(j), none); });
      const Var most = max(reduce_max(x).scalar(), lowest);
      largest(row, part) = most;
      sums(row, part) = reduce_sum(map(x, [&](Index j) { return exp2((x(j) - most) * log2e); })).scalar();
    });
  }

  // A row is shared by lanes of a warp.
  void add() const {
    constexpr int elements = 1024, most_rows = 32;
    const int wanted = std::clamp(elements / count, 1, most_rows),
              own_rows = static_cast<int>(std::bit_floor(static_cast<unsigned>(wanted)));
    grid(ceildiv(rows, own_rows), [&](Index block) {
      const Expr row = block * own_rows;
      const TileLabels own(own_rows, c.classes, labels, row, ignored);
      const auto parts = [&](const Tensor& of) { return load(of.at(row), {own_rows, count}); };
      Fragment each = parts(largest), sum = parts(sums), most = reduce_max(each);
      parallel(sum, [&](Index i, Index j) { sum(i, j) *= exp2((each(i, j) - most(i)) * log2e); });
      Fragment lse = reduce_sum(sum);
      parallel(lse, [&](Index i) { lse(i) = log(lse(i)) + most(i); });
      copy(lse, all_lse.at(row));
      Fragment at_label = own.logits(logits, row, c.classes);
      Fragment loss = map(lse, [&](Index i) { return lse(i) - at_label(i); });
      if (c.smooths) {
        Fragment all = reduce_sum(parts(plain));
        parallel(loss, [&](Index i) {
          Expr mean = all(i) * (1.f / static_cast<float>(c.classes));
          loss(i) = loss(i) * (1.f - smoothing) + (lse(i) - mean) * smoothing;
        });
      }
      parallel(loss, [&](Index i) { loss(i) = select(own.factors(i) == 0, 0.f, loss(i)); });
      copy(loss, losses.at(row));
    });
  }
};

}  // namespace

Kernel loss_in_parts(const LossInParts& c) {
  return kernel(instance_name("cross_entropy_in_parts", c), [&] {
    const Parts parts{c};
    parts.find();
    parts.add();
  });
}

}  // namespace tegula::ops
