// 2-D convolution (NHWC) as a product: for every tap of the filter the input pixels of a tile of outputs are
// looked up as rows, those of the padding as row −1, which reads as zeros; or they are a window of the input,
// elements outside of which read as zeros. With stride 2 the window is one of the input given as [N, H / 2,
// 2, W / 2, 2 C].
#include "tests/programs/gemm/products.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

struct Convolution {
  int taps = 3, stride = 1, dilation = 1, padding = 1;

  template <class E>
  E outputs(const E& inputs) const {
    return (inputs + 2 * padding - dilation * (taps - 1) - 1) / stride + 1;
  }
};

Kernel convolution_by_rows(const Convolution& c, const GemmTile& t) {
  return kernel("convolution_rows", [&] {
    Dim N("N"), H("H"), W("W"), C("C"), F("F"), OH("OH"), OW("OW");
    C.multiple_of(8), F.multiple_of(8);
    Tensor X = input("X", {N, H, W, C}, f16), filters = input("filters", {c.taps, c.taps, C, F}, f16);
    Tensor Y = output("Y", {N, OH, OW, F}, f16);
    require(OH == c.outputs<Expr>(H) && OW == c.outputs<Expr>(W), "the output has its extents");
    Expr pixels = N * OH * OW, steps = ceildiv(C, t.k);
    Tensor x = X.reshape({N * H * W, C}), y = Y.reshape({pixels, F});
    grid(ceildiv(F, t.n), ceildiv(pixels, t.m), {.order = Order::grouped(8)}, [&](Index bx, Index by) {
      Fragment acc({t.m, t.n}, f32, 0);
      pipelined(c.taps * c.taps * steps, {.stages = 4}, [&](Index step) {
        Expr tap = step / steps, c0 = step % steps * t.k, th = tap / c.taps, tw = tap % c.taps;
        Shared a({t.m, t.k}, f16), b({t.k, t.n}, f16);
        const auto row = [&](Index i) {
          Expr m = by * t.m + i, n = m / (OH * OW);
          Expr h = m / OW % OH * c.stride + th * c.dilation - c.padding;
          Expr w = m % OW * c.stride + tw * c.dilation - c.padding;
          return select(m < pixels && h >= 0 && h < H && w >= 0 && w < W, (n * H + h) * W + w, -1);
        };
        gather(x.slice(all, range(c0, c0 + t.k)), row, a);
        copy(filters.slice(th, tw).at(c0, bx * t.n), b);
        gemm(a, b, acc);
      });
      copy(acc, y.at(by * t.m, bx * t.n));
    });
  });
}

struct WindowTile {
  int h, w, n, k;
};
// A tile of rank 2 is filled as one of rank 3: a box of the copy engine that is an operand as well.
Kernel convolution_by_windows(const Convolution& c, const WindowTile& t) {
  return kernel("convolution_windows", [&] {
    require(c.stride == 1 || (c.stride == 2 && c.dilation == 1),
            "a window has neighbours, or every other pixel");
    const bool halved = c.stride == 2;
    Dim N("N"), H(halved ? "H2" : "H"), W(halved ? "W2" : "W"), C("C"), F("F"), OH("OH"), OW("OW");
    C.multiple_of(halved ? t.k : 8), F.multiple_of(8);
    Tensor X = halved ? input("X", {N, H, 2, W, C * 2}, f16) : input("X", {N, H, W, C}, f16);
    Tensor filters = input("filters", {c.taps, c.taps, C, F}, f16), Y = output("Y", {N, OH, OW, F}, f16);
    Expr steps = ceildiv(C, t.k), across = ceildiv(OW, t.w);
    grid(ceildiv(F, t.n), across * ceildiv(OH, t.h), N, [&](Index bx, Index by, Index n) {
      Expr h0 = by / across * t.h, w0 = by % across * t.w;
      Fragment acc({t.h * t.w, t.n}, f32, 0);
      pipelined(c.taps * c.taps * steps, {.stages = 4}, [&](Index step) {
        Expr tap = step / steps, c0 = step % steps * t.k;
        Expr dh = tap / c.taps * c.dilation - c.padding, dw = tap % c.taps * c.dilation - c.padding;
        Shared a({t.h * t.w, t.k}, f16), b({t.k, t.n}, f16);
        Shared pixels = a.reshape({t.h, t.w, t.k});
        if (halved)
          copy(X.slice(n, all, floormod(dh, 2))
                   .at(h0 + floordiv(dh, 2), w0 + floordiv(dw, 2), floormod(dw, 2) * C + c0),
               pixels);
        else
          copy(X.slice(n).at(h0 + dh, w0 + dw, c0), pixels);
        copy(filters.slice(tap / c.taps, tap % c.taps).at(c0, bx * t.n), b);
        gemm(a, b, acc);
      });
      copy(acc.reshape({t.h, t.w, t.n}), Y.slice(n).at(h0, w0, bx * t.n));
    });
  });
}

Prepared convolution_call(const Convolution& c, bool windows) {
  const int N = 1, H = 10, W = 12, C = 64, F = 40;
  const Data x = normal({N, H, W, C}, f16, 1), filters = normal({c.taps, c.taps, C, F}, f16, 2);
  const Numbers X(x), weight(filters);
  Numbers Y({N, c.outputs(H), c.outputs(W), F});
  each(c.outputs(H), c.outputs(W), F, [&](int i, int j, int f) {
    each(c.taps, c.taps, [&](int a, int b) {
      const int h = i * c.stride + a * c.dilation - c.padding, w = j * c.stride + b * c.dilation - c.padding;
      if (h < 0 || h >= H || w < 0 || w >= W) return;
      Y(0, i, j, f) += sum_of(C, [&](int k) { return X(0, h, w, k) * weight(a, b, k, f); });
    });
  });
  const Data given = windows && c.stride == 2 ? x.reshape({N, H / 2, 2, W / 2, 2 * C}) : x;
  const Wanted wanted{Y, f16, 2e-3};
  return windows ? Prepared{convolution_by_windows(c, {8, 8, 32, 32}), {given, filters, wanted}}
                 : Prepared{convolution_by_rows(c, {64, 32, 64}), {given, filters, wanted}};
}

}  // namespace

Program convolution() {
  return {"gemm",
          "convolution",
          "2-D convolution of 3 x 3 taps",
          {{"rows_stride_2", [] { return convolution_call({.stride = 2}, false); }},
           {"windows_dilation_2", [] { return convolution_call({.dilation = 2, .padding = 2}, true); }},
           {"windows_stride_2", [] { return convolution_call({.stride = 2}, true); }}},
          {{"rows, 128 x 128 x 64",
            [] {
              return convolution_by_rows({}, {128, 128, 64});
            }},
           {"windows of 8 x 16, 128 x 64",
            [] {
              return convolution_by_windows({}, {8, 16, 128, 64});
            }},
           {"windows of 8 x 16, stride 2, 128 x 64", [] {
              return convolution_by_windows({.stride = 2}, {8, 16, 128, 64});
            }}}};
}

}  // namespace programs
