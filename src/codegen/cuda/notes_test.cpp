// Every way in which a grid falls back has a note with the user's line and the remedy; the same program,
// mended as the remedy says, has none; and shipped kernels have none but those of the list.
#include <gtest/gtest.h>

#include "codegen/cuda_program.hpp"
#include "passes/note.hpp"
#include "runtime/testing/test_environment.hpp"
#include "tegula/lang.hpp"

namespace tegula::codegen {
namespace {

using namespace lang;
using lang::Tensor;
using passes::NoteKind;

// What the programs of the table differ in: C [M, N] = A [M, K] · B [K, N], tile by tile.
struct Product {
  DType type = bf16;
  int m = 128, n = 128, k = 64;
  GridOptions grid = {};
  PipelineOptions loop = {};
};

// `step` declares and fills tiles and multiplies them.
using Step = std::function<void(const Tensor& a, const Tensor& b, const Expr& row, const Expr& column,
                                const Expr& k, Fragment& sum)>;
using Loop = std::function<void(const Expr& steps, const std::function<void(Expr)>& step)>;

void multiply(const Product& p, const Tensor& a, const Tensor& b, const Expr& row, const Expr& column,
              const Expr& k, Fragment& sum) {
  Shared x({p.m, p.k}, p.type), y({p.k, p.n}, p.type);
  lang::copy(a.at(row, k), x);
  lang::copy(b.at(k, column), y);
  lang::gemm(x, y, sum);
}

lang::Kernel product(const Product& p, const Loop& loop, const Step& step) {
  return kernel("product", [&] {
    Dim M("M"), N("N"), K("K");
    Tensor A = input("A", {M, K}, p.type), B = input("B", {K, N}, p.type), C = output("C", {M, N}, f32);
    grid(ceildiv(N, p.n), ceildiv(M, p.m), p.grid, [&](Index x, Index y) {
      Expr row = y * p.m, column = x * p.n;
      Fragment sum({p.m, p.n}, f32, 0);
      loop(ceildiv(K, p.k), [&](const Expr& i) { step(A, B, row, column, i * p.k, sum); });
      lang::copy(sum, C.at(row, column));
    });
  });
}

Loop pipelined_loop(PipelineOptions options = {}) {
  return [=](const Expr& steps, const std::function<void(Expr)>& step) {
    pipelined(steps, options, [&](Index i) { step(i); });
  };
}

Step step_of(const Product& p) {
  return [p](const Tensor& a, const Tensor& b, const Expr& row, const Expr& column, const Expr& k,
             Fragment& sum) { multiply(p, a, b, row, column, k, sum); };
}

lang::Kernel plain(const Product& p) { return product(p, pipelined_loop(p.loop), step_of(p)); }
lang::Kernel in_loop(const Loop& loop) { return product({}, loop, step_of({})); }
lang::Kernel with_step(const Step& step, const Product& p = {}) {
  return product(p, pipelined_loop(p.loop), step);
}

struct NoteCase {
  std::string name;
  NoteKind kind;
  std::string piece;  // of the text
  std::function<lang::Kernel()> program, mended;
};

const std::function<lang::Kernel()> usual = [] { return plain({}); };

// ---- no roles

// A step that depends on a number, or on the sums so far.
lang::Kernel decided(bool computed) {
  return with_step([=](const Tensor& a, const Tensor& b, const Expr& row, const Expr& column, const Expr& k,
                       Fragment& sum) {
    Shared sums({128}, f32);
    Fragment rows = reduce_sum(sum, 1);
    lang::copy(rows, sums);
    when(computed ? sums(0) < 100 : k < 640, [&] {
      Shared x({128, 64}, bf16), y({64, 128}, bf16);
      lang::copy(a.at(row, k), x);
      lang::copy(b.at(k, column), y);
      lang::gemm(x, y, sum);
    });
  });
}

lang::Kernel with_while(bool pipeline) {
  return in_loop([=](const Expr& steps, const std::function<void(Expr)>& step) {
    Var outer = 0;
    loop_while([&] { return outer < 2; },
               [&] {
                 if (pipeline)
                   pipelined(steps, [&](Index i) { step(i); });
                 else
                   step(Expr(outer));
                 outer = outer + 1;
               });
  });
}

// In front of the step's loads, or between one of them and its use.
lang::Kernel with_break(bool first) {
  return with_step([=](const Tensor& a, const Tensor& b, const Expr& row, const Expr& column, const Expr& k,
                       Fragment& sum) {
    Shared x({128, 64}, bf16), y({64, 128}, bf16);
    if (first) break_if(k == 320);
    lang::copy(a.at(row, k), x);
    if (!first) break_if(k == 320);
    lang::copy(b.at(k, column), y);
    lang::gemm(x, y, sum);
  });
}

lang::Kernel serially(bool pipeline) {
  return in_loop([=](const Expr& steps, const std::function<void(Expr)>& step) {
    if (pipeline) return pipelined(steps, [&](Index i) { step(i); });
    serial(steps, [&](Index i) { step(i); });
  });
}

lang::Kernel once(bool pipeline) {
  return in_loop([=](const Expr&, const std::function<void(Expr)>& step) {
    if (pipeline) return pipelined(1, [&](Index i) { step(i); });
    step(Expr(Operand(0)));
  });
}

// Both operands by threads, of fragments.
lang::Kernel made(bool one) {
  return with_step([=](const Tensor& a, const Tensor& b, const Expr& row, const Expr& column, const Expr& k,
                       Fragment& sum) {
    Shared x({128, 64}, bf16), y({64, 128}, bf16);
    Fragment u = load(a.at(row, k), {128, 64}), v = load(b.at(k, column), {64, 128});
    parallel(u, [&](Index i, Index j) { u(i, j) = u(i, j) * 2; });
    lang::copy(u, x);
    if (one)
      lang::copy(b.at(k, column), y);
    else
      lang::copy(v, y);
    lang::gemm(x, y, sum);
  });
}

// An assertion, or an exit, at each step or in front of all loads.
lang::Kernel leaving(bool exits, bool in_front) {
  const auto leave = [=](const Expr& holds) {
    if (exits)
      exit_if(!holds);
    else
      assert_that(holds, "a limit");
  };
  return kernel("leaving", [=] {
    Dim M("M");
    Tensor A = input("A", {M, 64}, bf16), B = input("B", {64, 128}, bf16), C = output("C", {M, 128}, f32);
    Expr limit = scalar("limit", i32);
    grid(ceildiv(M, 128), [&](Index y) {
      Fragment sum({128, 128}, f32, 0);
      if (in_front) leave(limit > 0);
      pipelined(4, [&](Index i) {
        if (!in_front) leave(limit > i);
        Shared x({128, 64}, bf16), w({64, 128}, bf16);
        lang::copy(A.at(y * 128, 0), x);
        lang::copy(B, w);
        lang::gemm(x, w, sum);
      });
      lang::copy(sum, C.at(y * 128, 0));
    });
  });
}

// What is loaded depends on what is computed.
lang::Kernel chasing(bool own) {
  return kernel("chasing", [=] {
    Dim M("M");
    Tensor A = input("A", {M, 64}, bf16), B = input("B", {64, 128}, bf16), I = input("I", {64}, i32),
           C = output("C", {128, 128}, f32);
    grid(1, [&](Index) {
      Fragment sum({128, 128}, f32, 0);
      pipelined(4, [&](Index i) {
        Shared x({128, 64}, bf16), w({64, 128}, bf16);
        Expr row = own ? Expr(I(i)) : Expr(i32(reduce_sum(reduce_sum(sum)).scalar()));
        lang::copy(A.at(row, 0), x);
        if (own) {
          lang::copy(B, w);
        } else {
          lang::copy(B.at(row, 0), w);
        }
        lang::gemm(x, w, sum);
      });
      lang::copy(sum, C);
    });
  });
}

// Sums of columns, tile by tile.
lang::Kernel sums(DType type, int rows = 64) {
  return kernel("sums", [=] {
    Dim M("M");
    Tensor A = input("A", {M, 128}, type), C = output("C", {128}, f32);
    grid(1, {.threads = 256}, [&](Index) {
      Fragment sum({128}, f32, 0);
      pipelined(ceildiv(M, rows), {.stages = rows > 128 ? 0 : 3}, [&](Index i) {
        Shared x({rows, 128}, f32);
        lang::copy(A.at(i * rows, 0), x);
        parallel(sum, [&](Index j) { sum(j) = sum(j) + x(0, j) + x(rows - 1, j); });
      });
      lang::copy(sum, C);
    });
  });
}

// Sums of rows by numbers that a step copies, or reads where it needs them.
lang::Kernel looked_up(bool directly) {
  return kernel("looked_up", [=] {
    Dim M("M"), N("N");
    Tensor A = input("A", {M, 64}, f32), numbers = input("numbers", {N}, i32), C = output("C", {64}, f32);
    grid(1, [&](Index) {
      Fragment sum({64}, f32, 0);
      pipelined(ceildiv(N, 8), [&](Index i) {
        Shared x({8, 64}, f32);
        if (directly) {
          gather(
              A, [&](Index r) -> Expr { return numbers(i * 8 + r); }, x);
        } else {
          Shared own({8}, i32);
          lang::copy(numbers.at(i * 8), own);
          gather(A, own, x);
        }
        parallel(sum, [&](Index j) { sum(j) = sum(j) + x(0, j) + x(7, j); });
      });
      lang::copy(sum, C);
    });
  });
}

// Sums of rows whose number is checked in each step, or in front of the loop.
lang::Kernel checked(bool in_front) {
  return kernel("checked", [=] {
    Dim M("M");
    Tensor A = input("A", {M, 64}, f32), C = output("C", {64}, f32);
    Expr limit = scalar("limit", i32);
    grid(1, [&](Index) {
      Fragment sum({64}, f32, 0);
      if (in_front) assert_that(limit > 0, "a limit");
      pipelined(ceildiv(M, 8), [&](Index i) {
        if (!in_front) assert_that(limit > i, "a limit");
        Shared x({8, 64}, f32);
        lang::copy(A.at(i * 8, 0), x);
        parallel(sum, [&](Index j) { sum(j) = sum(j) + x(0, j) + x(7, j); });
      });
      lang::copy(sum, C);
    });
  });
}

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

// Rows of A behind `limit` do not count.
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

const std::vector<NoteCase> note_cases{
    {"branch", NoteKind::no_roles, "depends on what is computed", [] { return decided(true); },
     [] { return decided(false); }},
    {"while", NoteKind::no_roles, "not pipelined", [] { return with_while(false); },
     [] { return with_while(true); }},
    {"break", NoteKind::no_roles, "between the load of a tile and its last use",
     [] { return with_break(false); }, [] { return with_break(true); }},
    {"serial", NoteKind::no_roles, "not pipelined", [] { return serially(false); },
     [] { return serially(true); }},
    {"no_loop", NoteKind::no_roles, "stands in no loop", [] { return once(false); },
     [] { return once(true); }},
    {"both_made", NoteKind::no_roles, "made from fragments", [] { return made(false); },
     [] { return made(true); }},
    {"assertion", NoteKind::no_roles, "assertion", [] { return leaving(false, false); },
     [] { return leaving(false, true); }},
    {"exit", NoteKind::no_roles, "`exit_if`", [] { return leaving(true, false); },
     [] { return leaving(true, true); }},
    {"converted_stages", NoteKind::stages, ".stages = 3 became 1", [] { return sums(f16); },
     [] { return sums(f32); }},
    {"converted_ahead", NoteKind::by_threads, "f16 of the tensor become f32", [] { return sums(f16); },
     [] { return sums(f32); }},
    {"large_stages", NoteKind::stages, "two stages became 1", [] { return sums(f32, 300); },
     [] { return sums(f32, 64); }},
    {"numbers_of_the_step", NoteKind::by_threads, "depends on what is computed",
     [] { return looked_up(false); }, [] { return looked_up(true); }},
    {"left_in_a_step", NoteKind::by_threads, "an assertion may end the block", [] { return checked(false); },
     [] { return checked(true); }},
    {"depends", NoteKind::no_roles, "depends on what is computed", [] { return chasing(false); },
     [] { return chasing(true); }},
    {"stages", NoteKind::stages, ".stages = 9 became", [] { return plain({.loop = {.stages = 9}}); }, usual},
    {"one_warp_group", NoteKind::one_warp_group, "224 registers", [] { return two_sums(128); },
     [] { return two_sums(256); }},
    {"rows", NoteKind::mma_sync, "100 rows", [] { return plain({.m = 100}); }, usual},
    {"threads", NoteKind::mma_sync, "192 threads", [] { return with_hints({.threads = 192}); }, usual},
    {"depth", NoteKind::mma_sync, "no multiple of 16", [] { return plain({.k = 24}); }, usual},
    {"columns", NoteKind::mma_sync, "no multiple of eight each",
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
    {"order", NoteKind::through_shared_memory, "fragment `", [] { return transposed(false); },
     [] { return transposed(true); }},
    {"moved", NoteKind::through_shared_memory, "operand A is needed by 2 parts",
     [] { return from_registers(64); }, [] { return from_registers(128); }},
    {"cluster", NoteKind::hint, ".cluster = 2", [] { return with_hints({.cluster = 2}); }, usual},
    {"pack", NoteKind::hint, ".pack = 2", [] { return with_hints({.pack = 2}); }, usual},
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

std::vector<passes::Note> notes_of(const lang::Kernel& kernel) {
  return print_cuda(Signature(kernel.ir()), {90}).notes;
}

class Notes : public ::testing::TestWithParam<NoteCase> {};

TEST_P(Notes, AreMadeWithTheLineOfTheProgramAndGoneWithTheRemedy) {
  const NoteCase& c = GetParam();
  bool found = false;
  for (const passes::Note& note : notes_of(c.program())) {
    const std::string line = passes::format(note);
    EXPECT_EQ(line.substr(0, 15), "notes_test.cpp:") << line;
    EXPECT_GT(note.at.line(), 0u);
    EXPECT_FALSE(note.remedy.empty()) << line;
    found |= note.kind == c.kind && note.text.find(c.piece) != std::string::npos;
  }
  EXPECT_TRUE(found);
  for (const passes::Note& note : notes_of(c.mended())) ADD_FAILURE() << passes::format(note);
}

INSTANTIATE_TEST_SUITE_P(Programs, Notes, ::testing::ValuesIn(note_cases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tegula::codegen
