#include "ops/convolution/kernel.hpp"

#include "ops/convolution/pixels.hpp"
#include "ops/pieces/rows.hpp"
#include "ops/products/epilogue.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

using Tap = ConvPixels::Tap;
using Pixel = ConvPixels::Pixel;

// A product for every tap: the pixels that it meets, times its weights.
struct Program : ConvPixels {
  static constexpr int piece = 16;
  Dim wide_to{c.phases_of_to() ? "wide_to" : "columns"};
  Expr columns = c.phases_of_to() ? wide_to / stride : Expr(wide_to);  // channels of `to`
  Expr to_depth = c.phases_of_to() ? number("to_depth") : Expr(Dim("to_depth"));
  Dim features{"features"}, of_weight{"of_weight"};
  Expr taps_d = extent_of_taps("taps_d", c.taps_d), taps_h = extent_of_taps("taps_h", c.taps_h),
       taps_w = extent_of_taps("taps_w", c.taps_w);
  Tensor given_weight = input("weight", {features, taps_d, taps_h, taps_w, of_weight}, c.type);
  Tensor weight = c.merged > 1 ? merged_weights() : c.pad_from ? padded_weights() : given_weight;
  Tensor bias = c.bias ? input("bias", {columns}, *c.bias) : from;
  Tensor to = output("to", extents_of_to(), c.type);
  // Where tiles are stored, by pixels that begin at multiples of 16 bytes.
  Expr padded = ceildiv(columns * c.type.bytes(), piece) * (piece / c.type.bytes());
  Tensor stored =
      c.pad_to ? workspace("stored", {batch, to_depth, to.extent(2), to.extent(3), padded}, c.type) : to;
  Expr to_height = to.extent(c.phases_of_to() ? 1 : 2),
       to_width = to.extent(3);  // of a phase, if it has some
  // The number of channels that a group sums over, and the number that it produces.
  Expr inner = c.grouped ? channels / groups : Expr(channels),
       made = c.grouped ? columns / groups : Expr(columns);

  using ConvPixels::ConvPixels;

  // Of each tap, rows that begin at multiples of 16 bytes.
  Tensor padded_weights() const {
    constexpr int taps_at_once = 8, columns_at_once = 64;
    const int unit = c.pass == ConvPass::forward ? c.k : piece / c.type.bytes();
    Expr padded_row = ceildiv(of_weight, unit) * unit, across = ceildiv(padded_row, columns_at_once);
    Tensor copied = workspace("padded_weights", {features, taps_d, taps_h, taps_w, padded_row}, c.type);
    grid(across * ceildiv(taps_w, taps_at_once), taps_d * taps_h, features, [&](Index x, Index y, Index f) {
      Expr tap = x / across * taps_at_once, column = x % across * columns_at_once;
      Fragment tile = load(given_weight.slice(f, y / taps_h, y % taps_h).at(tap, column),
                           {taps_at_once, columns_at_once});
      copy(tile, copied.slice(f, y / taps_h, y % taps_h).at(tap, column));
    });
    return copied;
  }

  // Of the groups that are multiplied as one, [columns, taps, channels that are summed]: zeros where a column
  // does not see the channel, and up to whole steps along k.
  Tensor merged_weights() const {
    constexpr int rows_at_once = 8, columns_at_once = 64;
    Expr own = given_channels / groups / c.merged, result = columns / groups / c.merged;
    Expr row_of_group = ceildiv(own * c.merged, c.k) * c.k, taps_of_plane = taps_h * taps_w;
    Tensor copied = workspace("merged_weights", {columns, taps_d, taps_h, taps_w, row_of_group}, c.type);
    grid(ceildiv(row_of_group, columns_at_once), taps_d * taps_of_plane, ceildiv(columns, rows_at_once),
         [&](Index x, Index tap, Index y) {
           Expr d = tap / taps_of_plane, p = tap / taps_w % taps_h, q = tap % taps_w;
           parallel(rows_at_once, columns_at_once, [&](Index i, Index k) {
             Expr row = min(y * rows_at_once + i, columns - 1), column = x * columns_at_once + k;
             Expr group = row / result, place = column - group % c.merged * own;
             Expr sees = place >= 0 && place < own, channel = select(sees, place, 0);
             Expr value = c.pass == ConvPass::forward
                              ? given_weight(row, d, p, q, channel)
                              : given_weight(group * own + channel, d, p, q, row % result);
             when(column < row_of_group, [&] { copied(row, d, p, q, column) = select(sees, value, 0); });
           });
         });
    return copied;
  }

  // Those of a group's features, [features, channels], from a row and a column on.
  Window weights_at(const Tap& tap, const Expr& group, const Expr& row, const Expr& column) const {
    if (c.merged > 1) return weight.slice(all, tap.d, tap.h, tap.w).at(group * made + row, column);
    if (!c.grouped) return weight.slice(all, tap.d, tap.h, tap.w).at(row, column);
    const bool back = c.pass == ConvPass::input_gradient;
    const int unit = back ? c.k : c.n;
    Expr own = features / groups;
    if (back ? c.whole : c.full)
      return weight.slice(all, tap.d, tap.h, tap.w).at(group * (own / unit) * unit + row, column);
    return weight.slice(range(group * own, (group + 1) * own), tap.d, tap.h, tap.w).at(row, column);
  }

  Extents extents_of_to() const {
    if (c.phases_of_to()) return phases("to", wide_to);
    return {batch, to_depth, Dim("to_height"), Dim("to_width"), wide_to};
  }

  // The taps of a dimension: all of them, or every step-th from `first` on.
  struct Taps {
    Expr count;
    std::optional<Expr> first, step;
    Expr operator()(const Expr& number) const { return first ? *first + number * *step : number; }
  };
  // For a gradient with phases, the taps that lead from the place to a pixel of the result.
  Taps taps_of(const Expr& place, const Expr& taps, const Expr& padding, const Expr& step) const {
    if (!c.phases_of_to()) return {taps, {}, {}};
    Expr first = floormod(place + padding, step);
    return {ceildiv(taps - first, step), first, step};
  }

  // sum += all taps that `at` meets; `bring` fills a tile of pixels [pixels, channels] from a channel on.
  template <class Bring>
  void multiply(Fragment& sum, const Pixel& at, const Expr& group, const Expr& column, Bring bring) const {
    const Taps of_d = taps_of(at.d, taps_d, padding_d, stride),
               of_h = taps_of(at.h, taps_h, padding_h, stride_h),
               of_w = taps_of(at.w, taps_w, padding_w, stride);
    Expr steps = ceildiv(c.pad_from ? given_channels : inner, c.k);
    const bool back = c.pass == ConvPass::input_gradient && c.merged == 1;
    pipelined(of_d.count * of_h.count * of_w.count * steps, {.stages = 4}, [&](Index step) {
      Expr number = step / steps, channel = step % steps * c.k;
      const Tap tap{of_d(number / of_w.count / of_h.count), of_h(number / of_w.count % of_h.count),
                    of_w(number % of_w.count)};
      Shared pixels({c.pixels(), c.k}, c.compute), weights({back ? c.k : c.n, back ? c.n : c.k}, c.compute);
      bring(tap, channel, pixels);
      copy(weights_at(tap, group, back ? channel : column, back ? column : channel), weights);
      if (back)
        gemm(pixels, weights, sum);
      else
        gemm(pixels, weights.T(), sum);
    });
    if (c.bias) add_along(sum, 1, load(bias.at(c.grouped ? group * made + column : column), {c.n}, f32));
  }

  // The third index of a grid contains the group as its last digit.
  Expr group_of(const Expr& z) const { return c.grouped ? z % groups : Expr(Operand(0)); }
  Expr rest_of(const Expr& z) const { return c.grouped ? z / groups : z; }

  // The first pixel of a tile of an image, or of one of its phases.
  Pixel first_of(const Expr& plane, const Expr& row, const Expr& column) const {
    if (!c.phases_of_to() && c.images > 1) return {plane * c.images, Operand(0), row, column};
    if (!c.phases_of_to()) return {plane / to_depth, plane % to_depth, row, column};
    Expr phases = stride_h * stride, phase = plane % phases, image = plane / phases;
    Expr first = c.images > 1 ? image * c.images : image / to_depth,
         d = c.images > 1 ? Expr(Operand(0)) : image % to_depth;
    return {first, d, row * stride_h + phase / stride, column * stride + phase % stride};
  }
  void store(const Fragment& sum, const Pixel& first, const Expr& group, const Expr& column) const {
    if (c.phases_of_to()) return store_phase(sum, first, group, column);
    const Tensor result = c.full ? stored : of_group(stored, group);
    Expr begin = c.full ? first_of_group(stored, group, c.n) + column : column;
    if (c.images > 1)
      copy(sum.reshape({c.images, c.h, c.w, c.n}),
           result.slice(all, 0).at(first.image, first.h, first.w, begin));
    else
      copy(sum.reshape({c.h, c.w, c.n}), result.slice(first.image, first.d).at(first.h, first.w, begin));
  }
  void store_phase(const Fragment& sum, const Pixel& first, const Expr& group, const Expr& column) const {
    Expr begin = first.w % stride * columns + group * made;
    const Range own = range(begin, begin + made);
    if (c.images > 1)
      return copy(sum.reshape({c.images, c.h, c.w, c.n}),
                  to.slice(all, all, first.h % stride_h, all, own)
                      .at(first.image, first.h / stride_h, first.w / stride, column));
    Expr plane = first.image * to_depth + first.d;
    copy(sum.reshape({c.h, c.w, c.n}),
         to.slice(plane, all, first.h % stride_h, all, own).at(first.h / stride_h, first.w / stride, column));
  }

  void by_windows() const {
    Expr across = ceildiv(to_width, c.w), images = c.images > 1 ? ceildiv(batch, c.images) : batch * to_depth;
    Expr planes = c.phases_of_to() ? images * stride_h * stride : images;
    grid(ceildiv(made, c.n), across * ceildiv(to_height, c.h), c.grouped ? planes * groups : planes,
         [&](Index x, Index tile, Index z) {
           Expr group = group_of(z);
           const Pixel first = first_of(rest_of(z), tile / across * c.h, tile % across * c.w);
           Fragment sum({c.pixels(), c.n}, f32, 0);
           multiply(sum, first, group, x * c.n, [&](const Tap& tap, const Expr& channel, Shared& pixels) {
             window(pixels, first, tap, group, channel);
           });
           store(sum, first, group, x * c.n);
         });
  }

  void by_rows() const {
    const int count = c.h * c.w;
    Expr of_image = to_depth * to_height * to_width, pixels = batch * of_image;
    Tensor result = stored.reshape({pixels, c.pad_to ? padded : columns});
    grid(ceildiv(made, c.n), ceildiv(pixels, count), groups, {.order = Order::grouped(8)},
         [&](Index x, Index tile, Index z) {
           Expr group = c.grouped ? Expr(z) : Expr(Operand(0));
           const auto pixel = [&](const Expr& i) {
             Expr p = tile * count + i;
             return Pixel{p / of_image, p / (to_width * to_height) % to_depth, p / to_width % to_height,
                          p % to_width};
           };
           Fragment sum({count, c.n}, f32, 0);
           multiply(sum, pixel(Operand(0)), group, x * c.n,
                    [&](const Tap& tap, const Expr& channel, Shared& own) {
                      rows(own, pixel, batch, tap, group, channel);
                    });
           copy(sum, of_group(result, group).at(tile * count, x * c.n));
         });
  }

  void write_pixels() const {
    constexpr int rows = 32, tile = 128;
    Expr pixels = batch * to_depth * to_height * to_width;
    Tensor from_rows = stored.reshape({pixels, padded}), result = to.reshape({pixels, columns});
    grid(ceildiv(columns, tile), ceildiv(pixels, rows), [&](Index x, Index y) {
      Fragment own = load(from_rows.at(y * rows, x * tile), {rows, tile});
      copy(own, result.at(y * rows, x * tile));
    });
  }
};

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

Kernel convolution_program(const ConvKernel& c) {
  return kernel(instance_name("convolution", c), [&] {
    const Program own{c};
    c.windows ? own.by_windows() : own.by_rows();
    if (c.pad_to) own.write_pixels();
  });
}

Kernel conv_weights_program(const ConvKernel& c) {
  return kernel(instance_name("convolution", c), [&] { WeightsProgram(c).run(); });
}

Kernel column_sums_program(const ColumnSumsKernel& c) {
  return kernel(instance_name("column_sums", c), [&] {
    constexpr int columns = 128, rows = 32, steps = 8;
    Dim m("m"), n("n");
    Tensor own = input("rows", {m, n}, c.type), sums = output("sums", {n}, f32);
    Tensor partials = workspace("parts", {ceildiv(m, rows * steps), n}, f32);
    grid(ceildiv(n, columns), partials.extent(0), [&](Index x, Index y) {
      Fragment sum({columns}, f32, 0);
      serial(steps, [&](Index step) {
        Fragment tile = load(own.at((y * steps + step) * rows, x * columns), {rows, columns}, f32);
        reduce_sum(tile, sum, 0);
      });
      copy(sum, partials.slice(y).at(x * columns));
    });
    add_partials(partials, sums);
  });
}

}  // namespace tegula::ops
