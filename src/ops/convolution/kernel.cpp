#include "ops/convolution/kernel.hpp"

#include "ops/convolution/pixels.hpp"
#include "ops/pieces/rows.hpp"
#include "ops/products/epilogue.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

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
  // With `only`, of groups that are multiplied as one, those of that one's channels.
  template <class Bring>
  void multiply(Fragment& sum, const Pixel& at, const Expr& group, const Expr& column,
                const std::optional<Expr>& only, Bring bring) const {
    const Taps of_d = taps_of(at.d, taps_d, padding_d, stride),
               of_h = taps_of(at.h, taps_h, padding_h, stride_h),
               of_w = taps_of(at.w, taps_w, padding_w, stride);
    Expr steps = ceildiv(c.pad_from ? given_channels : inner, c.k);
    const bool back = c.pass == ConvPass::input_gradient && c.merged == 1;
    Expr count = of_d.count * of_h.count * of_w.count * steps;
    const auto add = [&](Index step) {
      Expr number = step / steps, channel = step % steps * c.k;
      const Tap tap{of_d(number / of_w.count / of_h.count), of_h(number / of_w.count % of_h.count),
                    of_w(number % of_w.count)};
      Shared pixels({c.pixels(), c.k}, c.compute), weights({back ? c.k : c.n, back ? c.n : c.k}, c.compute);
      bring(tap, channel, pixels);
      if (only) keep_channels(pixels, channel, *only);
      copy(weights_at(tap, group, back ? channel : column, back ? column : channel), weights);
      if (back)
        gemm(pixels, weights, sum);
      else
        gemm(pixels, weights.T(), sum);
    };
    if (only)
      serial(count, add);
    else
      pipelined(count, {.stages = 4}, add);
    if (c.bias) add_along(sum, 1, load(bias.at(c.grouped ? group * made + column : column), {c.n}, f32));
  }

  // Zeros in place of other groups' channels.
  void keep_channels(Shared& pixels, const Expr& first, const Expr& only) const {
    Expr own = inner / c.merged;
    parallel(pixels,
             [&](Index i, Index k) { pixels(i, k) = select((first + k) / own == only, pixels(i, k), 0); });
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

  // The grid of tiles, and one of them.
  Expr across = ceildiv(to_width, c.w), of_image = to_depth * to_height * to_width;
  Expr columns_of_tiles = ceildiv(made, c.n),
       pixels_of_tiles = c.windows ? across * ceildiv(to_height, c.h) : ceildiv(batch * of_image, c.pixels());
  Expr images = c.images == 1 ? batch * to_depth : ceildiv(batch, c.images);
  Expr planes = c.phases_of_to() ? images * stride_h * stride : images;
  Expr planes_of_tiles = !c.windows ? groups : c.grouped ? planes * groups : planes;
  struct Place {
    Expr column, tile, plane;
  };

  Pixel first_of_window(const Place& p) const {
    return first_of(rest_of(p.plane), p.tile / across * c.h, p.tile % across * c.w);
  }
  Expr group_at(const Place& p) const { return c.windows || !c.grouped ? group_of(p.plane) : p.plane; }
  void sum_up(Fragment& sum, const Place& p, const std::optional<Expr>& only = {}) const {
    Expr group = group_at(p), column = p.column * c.n;
    if (c.windows) {
      const Pixel first = first_of_window(p);
      return multiply(sum, first, group, column, only, [&](const Tap& tap, const Expr& channel, Shared& own) {
        window(own, first, tap, group, channel);
      });
    }
    const auto pixel = [&](const Expr& i) {
      Expr n = p.tile * c.pixels() + i;
      return Pixel{n / of_image, n / (to_width * to_height) % to_depth, n / to_width % to_height,
                   n % to_width};
    };
    multiply(sum, pixel(Operand(0)), group, column, only,
             [&](const Tap& tap, const Expr& channel, Shared& own) {
               rows(own, pixel, batch, tap, group, channel);
             });
  }
  void store_at(const Fragment& sum, const Place& p) const {
    if (c.windows) return store(sum, first_of_window(p), group_at(p), p.column * c.n);
    Tensor result = stored.reshape({batch * of_image, c.pad_to ? padded : columns});
    copy(sum, of_group(result, group_at(p)).at(p.tile * c.pixels(), p.column * c.n));
  }

  void multiply_tiles() const {
    std::optional<Tensor> doubts;
    if (c.merged > 1) doubts = workspace("doubts", {tiles, c.pixels()}, boolean);
    const auto body = [&](Index x, Index tile, Index z) {
      const Place place{x, tile, z};
      Fragment sum({c.pixels(), c.n}, f32, 0);
      sum_up(sum, place);
      if (doubts) doubt(*doubts, sum, place);
      store_at(sum, place);
    };
    if (c.windows)
      grid(columns_of_tiles, pixels_of_tiles, planes_of_tiles, body);
    else
      grid(columns_of_tiles, pixels_of_tiles, planes_of_tiles, {.order = Order::grouped(8)}, body);
    if (doubts) multiply_again(*doubts);
  }

  // A channel that is infinite, or NaN, makes NaN of the zeros of other groups that are multiplied with it.
  // Tiles with such results are summed again, group by group: of other results this gives the same bits.
  Expr tiles = columns_of_tiles * pixels_of_tiles * planes_of_tiles;
  void doubt(const Tensor& doubts, const Fragment& sum, const Place& p) const {
    Fragment total = reduce_sum(sum);
    Expr number = (p.plane * pixels_of_tiles + p.tile) * columns_of_tiles + p.column;
    copy(map(
             total, [&](Index i) { return isnan(total(i)); }, boolean),
         doubts.slice(number).at(0));
  }
  void multiply_again(const Tensor& doubts) const {
    constexpr int together = 64;
    grid(ceildiv(tiles, together), [&](Index block) {
      Shared doubtful({together}, boolean);
      Fragment pixels = load(doubts.at(block * together, 0), {together, c.pixels()});
      Fragment any = reduce_any(pixels);
      copy(any, doubtful);
      when(reduce_any(any).scalar(), [&] {
        serial(together, [&](Index i) {
          Expr number = block * together + i, plane = number / columns_of_tiles / pixels_of_tiles;
          when(doubtful(i), [&] {
            sum_by_groups({number % columns_of_tiles, number / columns_of_tiles % pixels_of_tiles, plane});
          });
        });
      });
    });
  }
  void sum_by_groups(const Place& p) const {
    Fragment all({c.pixels(), c.n}, f32, 0);
    serial(c.merged, [&](Index only) {
      Fragment sum({c.pixels(), c.n}, f32, 0);
      sum_up(sum, p, only);
      parallel(all, [&](Index i, Index j) {
        all(i, j) = select((p.column * c.n + j) / (made / c.merged) == only, sum(i, j), all(i, j));
      });
    });
    store_at(all, p);
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

}  // namespace

Kernel convolution_program(const ConvKernel& c) {
  return kernel(instance_name("convolution", c), [&] {
    const Program own{c};
    own.multiply_tiles();
    if (c.pad_to) own.write_pixels();
  });
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
