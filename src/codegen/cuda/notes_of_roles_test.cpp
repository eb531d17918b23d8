// Every way in which a grid gets no roles, or its producer does less than it could, has a note with the
// user's line and the remedy; the same program, mended as the remedy says, has none.
#include <gtest/gtest.h>

#include "codegen/cuda/testing/notes.hpp"

namespace tegula::codegen {
namespace notes_of_roles_test {

using namespace lang;
using namespace notes;
using lang::Tensor;
using passes::NoteKind;

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

// Two products of one sum, of which the second may exchange its operands.
lang::Kernel added_twice(bool swap) {
  return with_step([=](const Tensor& a, const Tensor& b, const Expr& row, const Expr& column, const Expr& k,
                       Fragment& sum) {
    Shared x({128, 64}, bf16), y({64, 128}, bf16);
    lang::copy(a.at(row, k), x);
    lang::copy(b.at(k, column), y);
    lang::gemm(x, y, sum);
    lang::gemm(x, y, sum, {.swap = swap});
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

const std::vector<NoteCase> note_cases{
    {"branch", NoteKind::no_roles, "depends on what is computed", [] { return decided(true); },
     [] { return decided(false); }},
    {"while", NoteKind::no_roles, "not pipelined", [] { return with_while(false); },
     [] { return with_while(true); }},
    {"break", NoteKind::no_roles, "between the load of a tile and its last use",
     [] { return with_break(false); }, [] { return with_break(true); }},
    {"serial", NoteKind::no_roles, "not pipelined", [] { return serially(false); },
     [] { return serially(true); }},
    {"no_loop", NoteKind::no_roles, "is in no loop", [] { return once(false); }, [] { return once(true); }},
    {"both_made", NoteKind::no_roles, "computed from fragments", [] { return made(false); },
     [] { return made(true); }},
    {"assertion", NoteKind::no_roles, "assertion", [] { return leaving(false, false); },
     [] { return leaving(false, true); }},
    {"exit", NoteKind::no_roles, "`exit_if`", [] { return leaving(true, false); },
     [] { return leaving(true, true); }},
    {"layouts", NoteKind::no_roles, "in different layouts", [] { return added_twice(true); },
     [] { return added_twice(false); }},
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
};

class NotesOfRoles : public ::testing::TestWithParam<NoteCase> {};

TEST_P(NotesOfRoles, AreMadeWithTheLineOfTheProgramAndGoneWithTheRemedy) { expect_note(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Programs, NotesOfRoles, ::testing::ValuesIn(note_cases),
                         [](const auto& info) { return info.param.name; });

}  // namespace notes_of_roles_test
}  // namespace tegula::codegen
