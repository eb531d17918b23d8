// Programs whose notes are tested: products that differ in one thing, beside what mends them. The places of
// notes are in files whose names begin with `notes`, as this one's.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "codegen/cuda_program.hpp"
#include "passes/note.hpp"
#include "tegula/lang.hpp"

namespace tegula::codegen::notes {

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

inline void multiply(const Product& p, const Tensor& a, const Tensor& b, const Expr& row, const Expr& column,
                     const Expr& k, Fragment& sum) {
  Shared x({p.m, p.k}, p.type), y({p.k, p.n}, p.type);
  lang::copy(a.at(row, k), x);
  lang::copy(b.at(k, column), y);
  lang::gemm(x, y, sum);
}

inline lang::Kernel product(const Product& p, const Loop& loop, const Step& step) {
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

inline Loop pipelined_loop(PipelineOptions options = {}) {
  return [=](const Expr& steps, const std::function<void(Expr)>& step) {
    pipelined(steps, options, [&](Index i) { step(i); });
  };
}

inline Step step_of(const Product& p) {
  return [p](const Tensor& a, const Tensor& b, const Expr& row, const Expr& column, const Expr& k,
             Fragment& sum) { multiply(p, a, b, row, column, k, sum); };
}

inline lang::Kernel plain(const Product& p) { return product(p, pipelined_loop(p.loop), step_of(p)); }
inline lang::Kernel in_loop(const Loop& loop) { return product({}, loop, step_of({})); }
inline lang::Kernel with_step(const Step& step, const Product& p = {}) {
  return product(p, pipelined_loop(p.loop), step);
}

struct NoteCase {
  std::string name;
  NoteKind kind;
  std::string piece;  // of the text
  std::function<lang::Kernel()> program, mended;
};

inline const std::function<lang::Kernel()> usual = [] { return plain({}); };

inline std::vector<passes::Note> notes_of(const lang::Kernel& kernel) {
  return print_cuda(Signature(kernel.ir()), {90}).notes;
}

// Each note has the user's line and a remedy, one is the case's, and the mended program has none.
inline void expect_note(const NoteCase& c) {
  bool found = false;
  for (const passes::Note& note : notes_of(c.program())) {
    const std::string line = passes::format(note);
    EXPECT_EQ(line.substr(0, 5), "notes") << line;
    EXPECT_GT(note.at.line(), 0u);
    EXPECT_FALSE(note.remedy.empty()) << line;
    found |= note.kind == c.kind && note.text.find(c.piece) != std::string::npos;
  }
  EXPECT_TRUE(found);
  for (const passes::Note& note : notes_of(c.mended())) ADD_FAILURE() << passes::format(note);
}

}  // namespace tegula::codegen::notes
