#include "tegula/ops/conv2d.hpp"

#include "ops/pieces/plan.hpp"
#include "ops/schema/functions.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct Instance {
  DType type = f32, compute = f32;
  std::optional<DType> bias = {};
  bool windows = false;              // tiles are windows of the input; else rows that are looked up
  bool whole_pieces = false;         // pixels begin at multiples of 16 bytes of an image
  int h = 8, w = 8, n = 64, k = 64;  // pixels, features and channels of a tile
  auto fields() const {
    return std::tuple(type, labelled("tiles", compute), labelled("bias", bias), labelled("windows", windows),
                      labelled("pieces", whole_pieces), joined("p", h, w), joined("t", n, k));
  }
};

// A product for every tap: the pixels that the tap meets, times its weights.
struct Program {
  const Instance& c;
  Dim channels{"channels"}, features{"features"}, taps_h{"taps_h"}, taps_w{"taps_w"};
  Expr batch = extent("batch"), height = extent("height"), width = extent("width");
  Expr stride = scalar("stride", i32), padding = scalar("padding", i32), dilation = scalar("dilation", i32);
  Expr out_height = scalar("out_height", i32), out_width = scalar("out_width", i32);
  // Rows that are looked up are those of all images.
  Tensor x = c.windows ? input("x", {batch, height, width, channels}, c.type)
                       : input("x", {Dim("pixels"), channels}, c.type);
  Tensor weight = input("weight", {features, taps_h, taps_w, channels}, c.type);
  Tensor bias = c.bias ? input("bias", {features}, *c.bias) : x;
  Tensor out = output("out", {batch, out_height, out_width, features}, c.type);

  Expr extent(const char* name) const { return c.windows ? Expr(Dim(name)) : scalar(name, i32); }

  struct Step {
    Expr channel, row, column;  // of x, of the output's first pixel
  };

  // sum += all taps; `bring` fills a tile of pixels [pixels, channels].
  template <class Bring>
  void multiply(Fragment& sum, const Expr& feature, Bring bring) const {
    Expr steps = ceildiv(channels, c.k);
    pipelined(taps_h * taps_w * steps, {.stages = 4}, [&](Index step) {
      Expr tap = step / steps, channel = step % steps * c.k;
      Shared pixels({c.h * c.w, c.k}, c.compute), weights({c.n, c.k}, c.compute);
      bring(Step{channel, tap / taps_w * dilation - padding, tap % taps_w * dilation - padding}, pixels);
      copy(weight.slice(all, tap / taps_w, tap % taps_w).at(feature, channel), weights);
      gemm(pixels, weights.T(), sum);
    });
    if (!c.bias) return;
    Fragment added({c.n}, f32);
    copy(bias.at(feature), added);
    parallel(sum, [&](Index i, Index j) { sum(i, j) += added(j); });
  }

  // With stride 1 the pixels of a tap are a window of the input, outside of which it reads as zeros.
  void by_windows() const {
    Expr across = ceildiv(out_width, c.w);
    grid(ceildiv(features, c.n), across * ceildiv(out_height, c.h), batch, [&](Index f, Index tile, Index z) {
      Expr row = tile / across * c.h, column = tile % across * c.w;
      Fragment sum({c.h * c.w, c.n}, f32, 0);
      multiply(sum, f * c.n, [&](const Step& s, Shared& pixels) {
        copy(x.slice(z).at(row + s.row, column + s.column, s.channel), pixels.reshape({c.h, c.w, c.k}));
      });
      copy(sum.reshape({c.h, c.w, c.n}), out.slice(z).at(row, column, f * c.n));
    });
  }

  // Otherwise they are looked up; row −1 reads as zeros.
  void by_rows() const {
    const int rows = c.h * c.w;
    Expr pixels = batch * out_height * out_width;
    Tensor result = out.reshape({pixels, features});
    grid(ceildiv(features, c.n), ceildiv(pixels, rows), {.order = Order::grouped(8)},
         [&](Index f, Index tile) {
           Fragment sum({rows, c.n}, f32, 0);
           multiply(sum, f * c.n, [&](const Step& s, Shared& own) {
             const auto row = [&](Index i) {
               Expr p = tile * rows + i, h = p / out_width % out_height * stride + s.row,
                    w = p % out_width * stride + s.column;
               Expr inside = p < pixels && h >= 0 && h < height && w >= 0 && w < width;
               return select(inside, (p / (out_height * out_width) * height + h) * width + w, -1);
             };
             gather(x.slice(all, range(s.channel, s.channel + c.k)), row, own);
           });
           copy(sum, result.at(tile * rows, f * c.n));
         });
  }
};

Kernel program(const Instance& c) {
  return kernel(instance_name("conv2d", c), [&] {
    Program own{c};
    if (c.whole_pieces) own.channels.multiple_of(bytes_of_piece / c.type.bytes());
    c.windows ? own.by_windows() : own.by_rows();
  });
}

Instance plan(const Bound<Conv2d>& c) {
  Instance t{
      .type = c.type("x"), .compute = multiplied_type(c.type("x"), c.on_gpu()), .bias = c.type_if("bias")};
  t.windows = c->stride == 1;
  if (!c.on_gpu()) return t;
  t.whole_pieces = c.dim("channels") % (bytes_of_piece / t.type.bytes()) == 0;
  const bool is_16_bits = t.compute.bits() == 16, is_wide = c.dim("features") > 64;
  t.k = is_16_bits ? 64 : 32;
  if (is_16_bits) t.w = c.dim("out_width") > 8 ? 16 : 8, t.n = is_wide ? 128 : 64;
  return t;
}

void run(const Bound<Conv2d>& c, Launch& launch) {
  const Instance t = plan(c);
  launch(t, program, {{"x", t.windows ? c["x"] : c.rows("x", 3)}});
}

void formula(const Bound<Conv2d>& c, Exact& exact) {
  const auto x = exact.array("x"), weight = exact.array("weight"), out = exact.array("out");
  const double* bias = exact.data_if("bias");
  const std::int64_t height = c.dim("height"), width = c.dim("width"), channels = c.dim("channels");
  out.each([&](std::int64_t b, std::int64_t i, std::int64_t j, std::int64_t f) {
    double sum = bias ? bias[f] : 0;
    for (std::int64_t r = 0; r < c.dim("taps_h"); ++r)
      for (std::int64_t s = 0; s < c.dim("taps_w"); ++s) {
        const std::int64_t h = i * c->stride + r * c->dilation - c->padding,
                           w = j * c->stride + s * c->dilation - c->padding;
        if (h < 0 || h >= height || w < 0 || w >= width) continue;
        for (std::int64_t e = 0; e < channels; ++e) sum += x(b, h, w, e) * weight(f, r, s, e);
      }
    return sum;
  });
}

const OptionRule least_one = between(1, 1 << 16, "a number from 1 to 2^16", "give such a number");

}  // namespace

const OperatorSchema& conv2d_schema() {
  using Op = Conv2d;
  static const OperatorSchema table =
      Schema<Op>("conv2d", "convolution over two dimensions, channels last")
          .in(&Op::x, "x", "batch height width channels", floats, "images")
          .in(&Op::weight, "weight", "features taps_h taps_w channels", same_as("x"), "filters")
          .in(&Op::bias, "bias", "features", floats, "added to every pixel")
          .option(&Op::stride, "stride", "input pixels between neighbouring outputs", least_one)
          .option(&Op::padding, "padding", "zeros around the images",
                  between(0, 1 << 16, "a number from 0 to 2^16", "give such a number"))
          .option(&Op::dilation, "dilation", "input pixels between neighbouring taps", least_one)
          .let("out_height", "max((height+2*padding-dilation*(taps_h-1)-1+stride)/stride,0)")
          .let("out_width", "max((width+2*padding-dilation*(taps_w-1)-1+stride)/stride,0)")
          .out(&Op::out, "out", "batch out_height out_width features", same_as("x"), "the convolution")
          .require("weight", "taps_h >= 1", "a tap or more", "give filters that have elements")
          .require("weight", "taps_w >= 1", "a tap or more", "give filters that have elements")
          .source("LeCun et al. 1989, Backpropagation Applied to Handwritten Zip Code Recognition")
          .no_gradient("those of data and weights are convolutions that are not written yet")
          .flops("2*batch*out_height*out_width*features*taps_h*taps_w*channels")
          .examples(
              {{"padded", "batch=2 height=5 width=7 channels=20 features=9 taps_h=3 taps_w=3 padding=1"},
               {"dilated_f16",
                "batch=1 height=9 width=8 channels=16 features=40 taps_h=3 taps_w=2 dilation=2 f16 bias:f32"},
               {"strided_bf16",
                "batch=2 height=9 width=10 channels=24 features=16 taps_h=3 taps_w=3 stride=2 padding=1 "
                "bf16"}})
          .measured(
              {{"128x56x56x128",
                "batch=128 height=56 width=56 channels=128 features=128 taps_h=3 taps_w=3 padding=1 bf16"},
               {"stride_2",
                "batch=128 height=56 width=56 channels=128 features=256 taps_h=3 taps_w=3 padding=1 stride=2 "
                "bf16"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
