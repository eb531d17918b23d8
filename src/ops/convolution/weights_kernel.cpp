#include "ops/convolution/pixels.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// The sum over pixels of their features, times what each tap of them meets: a block for each tap.
struct WeightsProgram : ConvPixels {
  Dim features{"features"}, of_weight{"of_weight"};
  Expr row_of_group = c.merged == 1 ? Expr(of_weight) : of_weight * c.merged;
  Expr taps_d = extent_of_taps("taps_d", c.taps_d), taps_h = extent_of_taps("taps_h", c.taps_h),
       taps_w = extent_of_taps("taps_w", c.taps_w);
  Expr to_depth = to_extent("to_depth"), to_height = to_extent("to_height"), to_width = to_extent("to_width");
  Tensor dout = c.windows ? input("dout", {batch, to_depth, to_height, to_width, features}, c.type)
                          : input("dout", {Dim("to_pixels"), features}, c.type);
  Tensor dweight = output("dweight", {features, taps_d, taps_h, taps_w, of_weight}, c.out);
  Expr own_features = c.grouped ? features / groups : Expr(features), taps = taps_d * taps_h * taps_w;

  using ConvPixels::ConvPixels;
  Expr to_extent(const char* name) const { return c.windows ? Expr(Dim(name)) : number(name); }

  // sum += a split of the steps over pixels. Tiles are [pixels, features] and [pixels, channels].
  template <class Bring>
  void multiply(Fragment& sum, const Expr& steps, const Expr& split, Bring bring) const {
    pipelined(range(steps * split / c.splits, steps * (split + 1) / c.splits), {.stages = 4},
              [&](Index step) {
                Shared own({c.pixels(), c.k}, c.compute), met({c.pixels(), c.n}, c.compute);
                bring(step, own, met);
                gemm(own.T(), met, sum);
              });
  }

  void sum_windows(Fragment& sum, const Tap& tap, const Expr& group, const Expr& row, const Expr& column,
                   const Expr& split) const {
    Expr across = ceildiv(to_width, c.w), down = ceildiv(to_height, c.h);
    const bool joins = c.images > 1;
    Expr planes = joins ? ceildiv(batch, c.images) : batch * to_depth;
    multiply(sum, planes * down * across, split, [&](const Expr& step, Shared& own, Shared& met) {
      Expr plane = step / (across * down), h = step / across % down * c.h, w = step % across * c.w;
      const Pixel first{joins ? plane * c.images : plane / to_depth,
                        joins ? Expr(Operand(0)) : plane % to_depth, h, w};
      const bool is_whole = c.merged > 1 && c.grouped;
      const Tensor given = is_whole ? dout : of_group(dout, group);
      Expr begin = is_whole ? first_of_group(dout, group, c.k) + row : row;
      if (joins)
        copy(given.slice(all, 0).at(first.image, h, w, begin), own.reshape({c.images, c.h, c.w, c.k}));
      else
        copy(given.slice(first.image, first.d).at(h, w, begin), own.reshape({c.h, c.w, c.k}));
      window(met, first, tap, group, column);
    });
  }

  void sum_rows(Fragment& sum, const Tap& tap, const Expr& group, const Expr& row, const Expr& column,
                const Expr& split) const {
    const int count = c.h * c.w;
    Expr of_image = to_depth * to_height * to_width;
    multiply(sum, ceildiv(batch * of_image, count), split, [&](const Expr& step, Shared& own, Shared& met) {
      const auto pixel = [&](const Index& i) {
        Expr p = step * count + i;
        return Pixel{p / of_image, p / (to_width * to_height) % to_depth, p / to_width % to_height,
                     p % to_width};
      };
      copy(of_group(dout, group).at(step * count, row), own);
      rows(met, pixel, batch, tap, group, column);
    });
  }

  // Features of a group, and the channels that they see, of a tap of a result [features, taps, channels].
  Tensor place(const Tensor& result, const Tap& tap, const Expr& group) const {
    if (!c.grouped) return result.slice(all, tap.d, tap.h, tap.w);
    return result.slice(range(group * own_features, (group + 1) * own_features), tap.d, tap.h, tap.w);
  }

  void run() const {
    std::optional<Tensor> partials;
    if (c.splits > 1 || c.merged > 1)
      partials.emplace(workspace("parts", {c.splits, features, taps_d, taps_h, taps_w, row_of_group}, f32));
    grid(ceildiv(row_of_group, c.n), ceildiv(own_features, c.k), taps * groups * c.splits,
         [&](Index x, Index y, Index z) {
           Expr split = z % c.splits, number = z / c.splits % taps,
                group = c.grouped ? z / c.splits / taps : Expr(Operand(0));
           const Tap tap{number / taps_w / taps_h, number / taps_w % taps_h, number % taps_w};
           Fragment sum({c.k, c.n}, f32, 0);
           if (c.windows)
             sum_windows(sum, tap, group, y * c.k, x * c.n, split);
           else
             sum_rows(sum, tap, group, y * c.k, x * c.n, split);
           const Tensor result = partials ? partials->slice(split) : dweight;
           copy(sum, place(result, tap, group).at(y * c.k, x * c.n));
         });
    if (partials && c.merged > 1)
      add_up_groups(*partials);
    else if (partials)
      add_up(*partials);
  }

  // Of groups that were multiplied as one, each feature has those of its own.
  void add_up_groups(const Tensor& partials) const {
    constexpr int elements = 256;
    Expr count = features * taps * of_weight, own = own_features / c.merged;
    Tensor rows = partials.reshape({c.splits, features * taps * row_of_group}),
           total = dweight.reshape({count});
    grid(ceildiv(count, elements), [&](Index block) {
      parallel(elements, [&](Index i) {
        Expr place = block * elements + i, last = min(place, count - 1), row = last / of_weight;
        Expr group = row / taps / own % c.merged,
             at = row * row_of_group + group * of_weight + last % of_weight;
        std::optional<Expr> sum;
        for (int split = 0; split < c.splits; ++split) {
          Expr added = rows(split, at);
          sum.emplace(sum ? *sum + added : added);
        }
        when(place < count, [&] { total(place) = *sum; });
      });
    });
  }

  void add_up(const Tensor& partials) const {
    constexpr int elements = 1024;
    Expr count = features * taps * of_weight;
    Tensor rows = partials.reshape({c.splits, count}), total = dweight.reshape({count});
    grid(ceildiv(count, elements), [&](Index block) {
      Fragment sum({elements}, f32, 0);
      for (int split = 0; split < c.splits; ++split) {
        Fragment added = load(rows.slice(split).at(block * elements), {elements});
        parallel(sum, [&](Index i) { sum(i) += added(i); });
      }
      copy(sum, total.at(block * elements));
    });
  }
};

}  // namespace

Kernel conv_weights_program(const ConvKernel& c) {
  return kernel(instance_name("convolution", c), [&] { WeightsProgram(c).run(); });
}

}  // namespace tegula::ops
