#include "ops/convolution/channels.hpp"

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

struct ByChannels {
  const ConvChannelsKernel& c;
  Dim batch{"batch"}, depth{"depth"}, height{"height"}, width{"width"}, channels{"channels"};
  Dim to_depth{"to_depth"}, to_height{"to_height"}, to_width{"to_width"}, columns{"columns"};
  Dim features{"features"}, of_weight{"of_weight"};
  Expr padding_d = scalar("padding_d", i32), padding_h = scalar("padding_h", i32),
       padding_w = scalar("padding_w", i32);
  Tensor from = input("from", {batch, depth, height, width, channels}, c.type);
  Tensor weight = input("weight", {features, c.taps_d, c.taps_h, c.taps_w, of_weight}, c.type);
  Tensor bias = c.bias ? input("bias", {columns}, *c.bias) : from;
  Tensor to = output("to", {batch, to_depth, to_height, to_width, columns}, c.type);
  const int taps = c.taps_h * c.taps_w;
  static constexpr int piece = 8;  // columns

  explicit ByChannels(const ConvChannelsKernel& instance) : c(instance) {
    if (!c.whole_pieces) return;
    const int piece = static_cast<int>(bytes_of_piece) / c.type.bytes();
    channels.multiple_of(piece), columns.multiple_of(piece);
  }

  // The first pixel along a dimension that a tile from `place` on looks at.
  Expr first_seen(const Expr& place, const Expr& padding, int taps_along, int step) const {
    if (!c.back()) return place * step - padding;
    return floordiv(place + padding - (taps_along - 1) * c.dilation, step);
  }

  // The weights in the order of sums, [taps_d, taps · own, columns]: neighbouring columns lie side by side.
  Tensor turned_weights() const {
    constexpr int columns_at_once = 64;
    const int rows = taps * c.own;
    Expr whole = ceildiv(columns, piece) * piece;
    Tensor turned = workspace("turned", {c.taps_d, rows, whole}, c.type);
    grid(ceildiv(whole, columns_at_once), rows, c.taps_d, [&](Index x, Index t, Index tap_d) {
      Expr p = t / c.own / c.taps_w, q = t / c.own % c.taps_w, number = t % c.own;
      parallel(columns_at_once, [&](Index k) {
        Expr place = x * columns_at_once + k, last = min(place, columns - 1);
        Expr value = c.back() ? weight(last / c.made * c.own + number, tap_d, p, q, last % c.made)
                              : weight(last, tap_d, p, q, number);
        when(place < whole, [&] { turned(tap_d, t, place) = value; });
      });
    });
    return turned;
  }

  // The channel of a tile that is read for a column: the number-th of its group.
  Expr channel(const Expr& k, int number) const {
    if (c.n <= c.made) return Expr(Operand(number));
    return c.own == 1 && c.made == 1 ? k : k / c.made * c.own + number;
  }

  // Where a pixel of the tile finds the one that a tap meets.
  struct Met {
    Expr place;
    std::optional<Expr> exists;
  };
  Met met(const Expr& i, const Expr& origin, const Expr& begin, int tap, int taps_along, int step) const {
    if (!c.back()) return {i * step + tap * c.dilation, {}};
    if (step == 1) return {i + (taps_along - 1 - tap) * c.dilation, {}};
    Expr place = begin + i - tap * c.dilation;
    return {floordiv(place, step) - origin, floormod(place, step) == 0};
  }

  static Expr existing(const Met& row, const Met& column, const Expr& read) {
    if (!row.exists && !column.exists) return read;
    if (!row.exists) return select(*column.exists, read, 0);
    return select(column.exists ? *row.exists && *column.exists : *row.exists, read, 0);
  }

  void run() const {
    const Tensor turned = turned_weights();
    Expr across = ceildiv(to_width, c.w);
    grid(ceildiv(columns, c.n), across * ceildiv(to_height, c.h), batch * to_depth,
         [&](Index x, Index tile, Index z) {
           Expr h = tile / across * c.h, w = tile % across * c.w, column = x * c.n;
           Fragment sum({c.h, c.w, c.n}, f32, 0);
           if (c.bias) {
             Fragment added = load(bias.at(column), {c.n}, f32);
             parallel(sum, [&](Index i, Index j, Index k) { sum(i, j, k) = added(k); });
           }
           if (c.taps_d == 1)
             add_plane(sum, turned, z, h, w, x, Operand(0));
           else
             serial(c.taps_d, [&](Index tap) { add_plane(sum, turned, z, h, w, x, tap); });
           copy(sum, to.slice(z / to_depth, z % to_depth).at(h, w, column));
         });
  }

  // The plane that a tap meets, −1 where there is none.
  Expr plane_of(const Expr& d, const Expr& tap) const {
    Expr seen = c.back() ? d + padding_d - tap * c.dilation : d * c.stride + tap * c.dilation - padding_d;
    if (!c.back() || c.stride == 1) return seen;
    return select(floormod(seen, c.stride) == 0, floordiv(seen, c.stride), -1);
  }

  void add_plane(Fragment& sum, const Tensor& turned, const Expr& z, const Expr& h, const Expr& w,
                 const Expr& x, const Expr& tap_d) const {
    Expr column = x * c.n;
    Shared pixels({c.seen_h(), c.seen_w(), c.read()}, c.type), weights({taps * c.own, c.n}, c.type);
    Expr first_h = first_seen(h, padding_h, c.taps_h, c.stride_h),
         first_w = first_seen(w, padding_w, c.taps_w, c.stride);
    Expr first = c.n > c.made ? x * c.read() : column / c.made * c.own;
    copy(from.slice(z / to_depth, plane_of(z % to_depth, tap_d)).at(first_h, first_w, first), pixels);
    copy(turned.slice(tap_d).at(0, column), weights);
    // Threads hold pixels of a column, whose taps below each other meet the same ones; what memory has is
    // read first, so that threads take whole pieces of channels.
    for (int q = 0; q < c.taps_w; ++q)
      parallel(sum, [&](Index i, Index j, Index k) {
        const Met of_row = met(j, first_w, w + padding_w, q, c.taps_w, c.stride);
        std::optional<Expr> added;
        for (int p = 0; p < c.taps_h; ++p) {
          const Met row = met(i, first_h, h + padding_h, p, c.taps_h, c.stride_h);
          for (int e = 0; e < c.own; ++e) {
            Expr pixel = pixels(row.place, of_row.place, channel(k, e));
            Expr read = existing(row, of_row, pixel);
            Expr product = read * weights((p * c.taps_w + q) * c.own + e, k);
            added.emplace(added ? *added + product : product + sum(i, j, k));
          }
        }
        sum(i, j, k) = *added;
      });
  }
};

}  // namespace

Kernel conv_channels_program(const ConvChannelsKernel& c) {
  return kernel(instance_name("convolution_by_channels", c), [&] { ByChannels(c).run(); });
}

}  // namespace tegula::ops
