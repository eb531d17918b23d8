// Six more kernels, each beside its twin in programs.py: what the lessons leave out of the language.
#include <tegula/tegula.hpp>

using namespace tegula::lang;

// Parameters of every kind, promises and requirements, and a workspace.
Kernel sums() {
  return kernel("sums", [] {
    Dim B("B"), S("S");
    S.multiple_of(4);
    Tensor X = input("X", {B, S}, f16), ends = input("ends", {B + 1}, i32);
    Tensor rows = output("rows", {B}, f32, {.zero = true}), total = inout("total", {1}, f32);
    Tensor pieces = workspace("pieces", {B, ceildiv(S, 64)}, f32);
    Expr scale = scalar("scale", f32);
    require(scale > 0, "the scale must be positive");
    may_alias(rows, total);
    grid(ceildiv(S, 64), B, [&](Index piece, Index b) {
      Fragment x({1, 64}, f32);
      copy(X.at(b, piece * 64), x);
      copy(reduce_sum(x), pieces.slice(b).at(piece));
    });
    grid(B, [&](Index b) {
      Var sum = 0.0f;
      serial(pieces.extent(1), [&](Index piece) { sum += pieces(b, piece); });
      rows(b) = sum * scale;
    });
    grid(1, [&](Index) { serial(B, [&](Index b) { total(0) += rows(b) * f32(ends(b + 1) - ends(b)); }); });
  });
}

// Rows that a list chooses, multiplied by a matrix of 8-bit integers that is made floating in shared memory.
Kernel dequantised_rows(int rows, int n, int k) {
  return kernel("dequantised_rows", [&] {
    Dim M("M"), N("N"), K("K"), R("R");
    Tensor A = input("A", {R, K}, f16), list = input("list", {M}, i32), Q = input("Q", {N, K}, u8);
    Tensor S = input("S", {N}, f32), C = output("C", {M, N}, f16);
    grid(ceildiv(N, n), ceildiv(M, rows), {.threads = 128, .order = Order::column()},
         [&](Index bx, Index by) {
           Fragment sum({rows, n}, f32, 0), scales = load(S.at(bx * n), {n});
           pipelined(ceildiv(K, k), {.stages = 2}, [&](Index step) {
             Shared a({rows, k}, f16), q({n, k}, u8), b({n, k}, f16);
             gather(A.slice(all, range(step * k, min(step * k + k, K))),
                    list.slice(range(by * rows, by * rows + rows)), a);
             copy(Q.at(bx * n, step * k), q);
             parallel(b, [&](Index i, Index j) { b(i, j) = f32(q(i, j) - 8); });
             gemm(a, b.T(), sum, {.warps = Warps::rows});
           });
           parallel(sum, [&](Index i, Index j) { sum(i, j) = sum(i, j) * scales(j); });
           copy(sum.to(f16), C.at(by * rows, bx * n));
         });
  });
}

// Loops and branches of all kinds.
Kernel collatz(int most) {
  return kernel("collatz", [&] {
    Dim N("N");
    Tensor X = input("X", {N}, i32), Steps = output("Steps", {N}, i32), longest = inout("longest", {1}, i32);
    grid(ceildiv(N, 64), [&](Index block) {
      Shared steps({64}, i32);
      parallel(64, [&](Index i) {
        Var n = X(block * 64 + i), count = 0;
        loop_while([&] { return n > 1 && count < most; },
                   [&] {
                     when(n % 2 == 0, [&] { n /= 2; }).otherwise([&] { n = n * 3 + 1; });
                     count += 1;
                   });
        steps(i) = count;
      });
      Fragment all_steps({64}, i32);
      copy(steps, all_steps);
      Fragment top = reduce_max(all_steps);
      atomic_max(longest(0), top.scalar());
      each_group(2, Group::warp, [&](Index g) {
        Fragment part({32}, i32);
        copy(steps.slice(range(0, 32)), part);
        when(g == 0, [&] { copy(part, Steps.at(block * 64)); });
      });
      when(block * 64 + 32 < N, [&] {
        unrolled(2, [&](Index i) {
          serial(range(i * 16, i * 16 + 16), [&](Index j) { Steps(block * 64 + 32 + j) = steps(32 + j); });
        });
      });
    });
  });
}

// Contributions in an order, bits and casts.
Kernel sparse_columns(int blocks, int size) {
  return kernel("sparse_columns", [&] {
    Dim M("M"), N("N");
    Tensor X = input("X", {M, N}, bf16), mask = input("mask", {M}, u32),
           Y = output("Y", {size, N}, f32, {.zero = true});
    grid(ceildiv(M, size), ceildiv(N, size), [&](Index row, Index column) {
      Fragment x = load(X.at(row * size, column * size), {size, size}, f32);
      parallel(x, [&](Index i, Index j) {
        Expr bits = mask(row * size + i), bit = u32(j % 32);
        x(i, j) = select((bits >> bit & 1) == 1 && popcount(bits) < blocks, abs(x(i, j)), -x(i, j) / 2);
      });
      accumulate(Y.at(0, column * size), x, {.order = row, .consecutive = true});
    });
  });
}

// Rows of a running maximum that change are scaled, the others are left alone; the first blocks are heavy.
Kernel rescaled(int rows, int width) {
  return kernel("rescaled", [&] {
    Dim M("M");
    Tensor X = input("X", {M, width}, f32), T = input("T", {M}, f32), Y = output("Y", {M, width}, f32);
    auto cost = [&](Index block) { return M - block; };
    grid(ceildiv(M, rows), {.order = Order::heavy_first(cost)}, [&](Index block) {
      Fragment x = load(X.at(block * rows, 0), {rows, width}), top = load(T.at(block * rows), {rows});
      Fragment changed({rows}, boolean), before = clone(top);
      reduce_absmax(x, top);
      parallel(changed, [&](Index i) { changed(i) = top(i) != before(i) || isnan(top(i)); });
      Expr first = reduce_any(changed.slice(range(0, rows / 2))).scalar(),
           second = reduce_any(changed.slice(range(rows / 2, rows))).scalar();
      when_rows({first, second}, {.together = 2}, [&] {
        parallel(x, [&](Index i, Index j) {
          x(i, j) = select(changed(i), fma(x(i, j), exp2(-top(i) * log2e), clamp(top(i), -1, 1)), x(i, j));
        });
      });
      copy(x, Y.at(block * rows, 0));
    });
  });
}

// Scans, places of extremes, random numbers, and a tile that is printed.
Kernel drawn(int rows, int width) {
  return kernel("drawn", [&] {
    Dim M("M");
    Tensor X = input("X", {M, width}, f32), Y = output("Y", {M, width}, f32),
           places = output("places", {M}, i32);
    grid(ceildiv(M, rows), [&](Index block) {
      Fragment x = load(X.at(block * rows, 0), {rows, width}), starts({rows, width}, boolean);
      parallel(starts, [&](Index i, Index j) { starts(i, j) = j == width / 2; });
      Fragment sums = scan_sum(x, starts), tops = scan_max(x, {.exclusive = true, .reverse = true});
      Fragment least = scan_min(x, {.dim = 0}), largest = reduce_argmax(x), smallest = reduce_argmin(x);
      parallel(x, [&](Index i, Index j) {
        RandomWords words = philox({u32(block * rows + i), u32(j), 0, 0}, {7, 1});
        Expr noise = uniform(words.x ^ mul_high(words.y, words.z));
        x(i, j) = select(noise < 0.5f, erf(sums(i, j)), pow(abs(least(i, j)), 2.5f) + max(tops(i, j), -9));
      });
      parallel(largest, [&](Index i) { largest(i) = largest(i) * 100 + smallest(i); });
      copy(x, Y.at(block * rows, 0));
      copy(largest, places.at(block * rows));
      when(block == 0, [&] { print("places", largest); });
    });
  });
}

TEGULA_KERNELS(sums(), dequantised_rows(64, 64, 32), collatz(1000), sparse_columns(12, 32), rescaled(64, 32),
               drawn(4, 64))
