// Every way in which threads, hints, products and loads fall back has a note with the user's line and the
// remedy; the same program, mended as the remedy says, has none.
#include "codegen/cuda/testing/notes.hpp"

#include <gtest/gtest.h>

namespace tegula::codegen {
namespace notes_test {

using namespace lang;
using namespace notes;
using lang::Tensor;
using passes::NoteKind;

// ---- room, threads, hints

lang::Kernel with_hints(const GridOptions& options) { return plain({.grid = options}); }

// A block of one warp group has 192 registers of sums a thread, and 32 of what waits for the end of the loop.
lang::Kernel two_sums(int threads) {
  return kernel("two_sums", [&] {
    Dim M("M"), K("K");
    Tensor A = input("A", {M, K}, bf16), B = input("B", {K, 192}, bf16), C = output("C", {M, 192}, f32),
           D = output("D", {M, 32}, f32);
    Expr scale = scalar("scale", f32);
    grid(ceildiv(M, 128), {.threads = threads}, [&](Index y) {
      Fragment sum({128, 192}, f32, 0), ramp({128, 32}, f32);
      parallel(ramp, [&](Index i, Index j) { ramp(i, j) = scale * f32(i + j); });
      pipelined(ceildiv(K, 64), [&](Index i) {
        Shared a({128, 64}, bf16), b({64, 192}, bf16);
        lang::copy(A.at(y * 128, i * 64), a);
        lang::copy(B.at(i * 64, 0), b);
        lang::gemm(a, b, sum);
      });
      lang::copy(sum, C.at(y * 128, 0));
      lang::copy(ramp, D.at(y * 128, 0));
    });
  });
}

// Sums of rows, which several threads hold, are added to what a tensor has.
lang::Kernel added_to_rows(bool in_one_loop) {
  return kernel("added_to_rows", [&] {
    Dim M("M");
    Tensor x = input("x", {M, 64}, bf16), out = inout("out", {M}, f32);
    grid(ceildiv(M, 32), [&](Index block) {
      Fragment sum = reduce_sum(load(x.at(block * 32), {32, 64}, f32)),
               before = load(out.at(block * 32), {32});
      parallel(sum, [&](Index i) {
        Expr row = block * 32 + i;
        out(row) = sum(i) + (in_one_loop ? Expr(out(row)) : Expr(before(i)));
      });
    });
  });
}

lang::Kernel with_gemm_options(const GemmOptions& options, int n = 128) {
  const Product p{.n = n};
  return with_step(
      [=](const Tensor& a, const Tensor& b, const Expr& row, const Expr& column, const Expr& k,
          Fragment& sum) {
        Shared x({p.m, p.k}, bf16), y({p.k, p.n}, bf16);
        lang::copy(a.at(row, k), x);
        lang::copy(b.at(k, column), y);
        lang::gemm(x, y, sum, options);
      },
      p);
}

// ---- products

// Operand A is columns of a tile from there on.
lang::Kernel part(int first) {
  return with_step([=](const Tensor& a, const Tensor& b, const Expr& row, const Expr& column, const Expr& k,
                       Fragment& sum) {
    Shared y({64, 128}, bf16);
    lang::copy(b.at(k, column), y);
    Shared x({128, 128}, bf16);
    lang::copy(a.at(row, k), x);
    lang::gemm(x.slice(all, range(first, first + 64)), y, sum);
  });
}

// Operand A is a tile with rows as long as its own, or twice as long.
lang::Kernel reshaped(bool whole_rows) {
  return with_step([=](const Tensor& a, const Tensor& b, const Expr& row, const Expr& column, const Expr& k,
                       Fragment& sum) {
    Shared y({64, 128}, bf16);
    lang::copy(b.at(k, column), y);
    Shared x = whole_rows ? Shared({2, 64, 64}, bf16) : Shared({64, 128}, bf16);
    lang::copy(a.at(row, k), x.reshape({128, 64}));
    lang::gemm(x.reshape({128, 64}), y, sum);
  });
}

// Each of two warp groups has 40 columns of B.
lang::Kernel narrow(int threads) { return plain({.m = 64, .n = 80, .grid = {.threads = threads}}); }

// ---- loads

// A tile of another type than its tensor.
lang::Kernel converting(DType tile) {
  return kernel("converting", [=] {
    Dim M("M"), K("K");
    Tensor A = input("A", {M, K}, f16), B = input("B", {K, 128}, tile), C = output("C", {M, 128}, f32);
    grid(ceildiv(M, 128), [&](Index y) {
      Fragment sum({128, 128}, f32, 0);
      pipelined(ceildiv(K, 64), [&](Index i) {
        Shared x({128, 64}, tile), w({64, 128}, tile);
        lang::copy(A.at(y * 128, i * 64), x);
        lang::copy(B.at(i * 64, 0), w);
        lang::gemm(x, w, sum);
      });
      lang::copy(sum, C.at(y * 128, 0));
    });
  });
}

// Rows of A after `limit` do not count.
lang::Kernel limited(bool clips) {
  return kernel("limited", [=] {
    Dim M("M"), K("K");
    Tensor A = input("A", {M, K}, bf16), B = input("B", {K, 128}, bf16), C = output("C", {M, 128}, f32);
    Expr limit = scalar("limit", i32);
    grid(ceildiv(M, 128), [&](Index y) {
      Fragment sum({128, 128}, f32, 0);
      pipelined(ceildiv(K, 64), [&](Index i) {
        Shared x({128, 64}, bf16), w({64, 128}, bf16);
        if (clips)
          lang::copy(A.slice(range(0, limit), all).at(y * 128, i * 64), x);
        else
          lang::copy(A.at(y * 128, i * 64), x);
        lang::copy(B.at(i * 64, 0), w);
        lang::gemm(x, w, sum);
      });
      lang::copy(sum, C.at(y * 128, 0));
    });
  });
}

// Rows of A by number: in pieces where they begin at multiples of 16 bytes.
lang::Kernel gathered(bool pieces) {
  return kernel("gathered", [=] {
    Dim M("M"), K("K");
    Tensor A = pieces ? input("A", {M, 4, 64}, bf16) : input("A", {M, 256}, bf16);
    Tensor B = input("B", {K, 256}, bf16), R = input("R", {128}, i32), C = output("C", {128, 256}, f32);
    grid(1, [&](Index) {
      Fragment sum({128, 256}, f32, 0);
      pipelined(ceildiv(K, 64), [&](Index i) {
        Shared w({64, 256}, bf16);
        lang::copy(B.at(i * 64, 0), w);
        Shared x({128, 64}, bf16);
        const auto row = [&](Index r) -> Expr { return R(r); };
        if (pieces)
          gather(A.slice(all, i), row, x);
        else
          gather(A.slice(all, range(i * 64 + 4, i * 64 + 68)), row, x);
        lang::gemm(x, w, sum);
      });
      lang::copy(sum, C);
    });
  });
}

// Operand A computed from a tensor of 8 bits, whose indices are kept inside it, or not.
lang::Kernel converted(bool limits) {
  return with_step([=](const Tensor& a, const Tensor& b, const Expr& row, const Expr& column, const Expr& k,
                       Fragment& sum) {
    Shared x({128, 64}, bf16), y({64, 128}, bf16);
    const Expr last = a.extent(1) - 1;
    parallel(128, 64, [&](Index i, Index j) {
      const Expr at = k + j;
      x(i, j) = bf16(limits ? select(at <= last, f32(a(row + i, min(at, last))) * 2, 0.0f)
                            : f32(a(row + i, at)) * 2);
    });
    lang::copy(b.at(k, column), y);
    lang::gemm(x, y, sum);
  });
}

// A fragment read in another order than it is held in, or in its own.
lang::Kernel transposed(bool own) {
  return kernel("transposed", [=] {
    Tensor X = input("X", {64, 64}, f32), Y = output("Y", {64, 64}, f32);
    grid(1, [&](Index) {
      Fragment x = load(X, {64, 64}), y({64, 64}, f32);
      parallel(y, [&](Index i, Index j) { y(i, j) = own ? x(i, j) : x(j, i); });
      lang::copy(y, Y);
    });
  });
}

// Operand A from registers, of 64 or of 128 rows on two warp groups.
lang::Kernel from_registers(int rows) {
  const Product p{.m = rows, .grid = {.threads = 256}};
  return with_step(
      [=](const Tensor& a, const Tensor& b, const Expr& row, const Expr& column, const Expr& k,
          Fragment& sum) {
        Shared y({64, 128}, bf16);
        lang::copy(b.at(k, column), y);
        Fragment x = load(a.at(row, k), {rows, 64});
        lang::gemm(x, y, sum);
      },
      p);
}

// Sums at rows of a list, into a tensor with so many columns.
lang::Kernel scattered(int columns) {
  return kernel("scattered", [=] {
    Tensor A = input("A", {64, 64}, bf16), B = input("B", {64, 64}, bf16), rows = input("rows", {64}, i32),
           C = inout("C", {1000, columns}, bf16);
    grid(1, {.threads = 128}, [&](Index) {
      Fragment sum({64, 64}, f32, 0);
      pipelined(1, [&](Index) {
        Shared x({64, 64}, bf16), y({64, 64}, bf16);
        lang::copy(A.at(0, 0), x);
        lang::copy(B.at(0, 0), y);
        lang::gemm(x, y, sum);
      });
      parallel(sum, [&](Index i, Index j) { C(rows(i), j) = sum(i, j); });
    });
  });
}

const std::vector<NoteCase> note_cases{
    {"stages", NoteKind::stages, ".stages = 9 became", [] { return plain({.loop = {.stages = 9}}); }, usual},
    {"one_warp_group", NoteKind::one_warp_group, "224 registers", [] { return two_sums(128); },
     [] { return two_sums(256); }},
    {"rows", NoteKind::mma_sync, "100 rows", [] { return plain({.m = 100}); }, usual},
    {"threads", NoteKind::mma_sync, "192 threads", [] { return with_hints({.threads = 192}); }, usual},
    {"depth", NoteKind::mma_sync, "not a multiple of 16", [] { return plain({.k = 24}); }, usual},
    {"columns", NoteKind::mma_sync, "not a multiple of eight each",
     [] { return plain({.m = 64, .n = 72, .grid = {.threads = 256}}); },
     [] { return plain({.m = 64, .n = 128, .grid = {.threads = 256}}); }},
    {"part", NoteKind::mma_sync, "column 8 of the tile", [] { return part(8); }, [] { return part(16); }},
    {"reshaped", NoteKind::mma_sync, "do not follow each other", [] { return reshaped(false); },
     [] { return reshaped(true); }},
    {"few_columns", NoteKind::mma_sync, "40 columns", [] { return narrow(256); }, [] { return narrow(128); }},
    {"f32", NoteKind::multiply_add, "do not multiply f32", [] { return plain({.type = f32, .k = 32}); },
     usual},
    {"odd_columns", NoteKind::multiply_add, "multiple of eight", [] { return plain({.n = 36}); }, usual},
    {"types", NoteKind::by_threads, "f16 of the tensor become bf16", [] { return converting(bf16); },
     [] { return converting(f16); }},
    {"limits", NoteKind::by_threads, "limit of the window", [] { return limited(true); },
     [] { return limited(false); }},
    {"gather", NoteKind::by_elements, "multiple of 8", [] { return gathered(false); },
     [] { return gathered(true); }},
    {"limited_index", NoteKind::by_elements, "limits its last index", [] { return converted(true); },
     [] { return converted(false); }},
    {"scatter", NoteKind::by_elements, "rows of `C` are not known", [] { return scattered(99); },
     [] { return scattered(96); }},
    {"order", NoteKind::through_shared_memory, "fragment `", [] { return transposed(false); },
     [] { return transposed(true); }},
    {"replicas", NoteKind::through_shared_memory, "reads memory that it writes",
     [] { return added_to_rows(true); }, [] { return added_to_rows(false); }},
    {"moved", NoteKind::through_shared_memory, "operand A is needed by 2 parts",
     [] { return from_registers(64); }, [] { return from_registers(128); }},
    {"cluster", NoteKind::hint, ".cluster is not followed", [] { return with_hints({.cluster = 2}); }, usual},
    {"persistent", NoteKind::hint, ".persistent",
     [] { return plain({.type = f32, .k = 32, .grid = {.persistent = true}}); },
     [] { return with_hints({.persistent = true}); }},
    {"blocks", NoteKind::hint, ".blocks_per_processor = 4 became",
     [] { return with_hints({.blocks_per_processor = 4}); }, usual},
    {"swap", NoteKind::hint, ".swap", [] { return with_gemm_options({.swap = true}, 96); },
     [] { return with_gemm_options({.swap = true}); }},
    {"from_registers", NoteKind::hint, ".from_registers",
     [] { return with_gemm_options({.from_registers = true}); }, usual},
};

class Notes : public ::testing::TestWithParam<NoteCase> {};

TEST_P(Notes, AreMadeWithTheLineOfTheProgramAndGoneWithTheRemedy) { expect_note(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Programs, Notes, ::testing::ValuesIn(note_cases),
                         [](const auto& info) { return info.param.name; });

}  // namespace notes_test
}  // namespace tegula::codegen
