#include "ir/print.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "ir/testing/nodes.hpp"

namespace tegula::ir {
namespace {

using namespace testing;

std::string without_comments(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.find("//"), line.size()));
    line.resize(line.find_last_not_of(' ') + 1);
    result += line + "\n";
  }
  return result;
}

const auto x = named("x"), y = named("y");
const Expr X = variable(x), Y = variable(y);

TEST(PrintExpr, ParenthesesAreThoseOfCpp) {
  const auto unary = [](Op op, const Expr& e) { return make(op, e->held(), {e}); };
  const auto op = [](Op o, const Expr& a, const Expr& b) { return binary(o, a, b); };
  const std::pair<Expr, const char*> table[] = {
      {X + Y * 2, "x + y * 2"},
      {(X + Y) * 2, "(x + y) * 2"},
      {X - (Y - 1), "x - (y - 1)"},
      {(X - Y) - 1, "x - y - 1"},
      {X / (Y * 2), "x / (y * 2)"},
      {X * (Y / 2), "x * (y / 2)"},
      {X * Y / 2, "x * y / 2"},
      {X % (Y + 1), "x % (y + 1)"},
      {unary(Op::neg, X + Y), "-(x + y)"},
      {unary(Op::neg, int32(-1)), "-(-1)"},
      {X + (-1), "x + -1"},
      {op(Op::eq, op(Op::bit_and, X, Y), int32(0)), "(x & y) == 0"},
      {op(Op::bit_and, X, op(Op::eq, Y, Y)), "x & y == y"},
      {op(Op::shr, X + Y, int32(3)), "x + y >> 3"},
      {op(Op::logical_or, op(Op::logical_and, lt(X, Y), le(Y, X)), ge(X, Y)), "x < y && y <= x || x >= y"},
      {op(Op::logical_and, lt(X, Y), op(Op::logical_or, lt(Y, X), lt(X, X))), "x < y && (y < x || x < x)"},
      {unary(Op::logical_not, lt(X, Y)), "!(x < y)"},
      {op(Op::max, X, Y + 1), "max(x, y + 1)"},
      {select(lt(X, Y), X, Y), "select(x < y, x, y)"},
      {make(Op::cast, bf16, {X}), "bf16(x)"},
      {make(Op::bitcast, u32, {X}), "bitcast(x, u32)"},
      {constant(f32, 0.1), "0.1"},
      {constant(f32, 2), "2.0"},
      {constant(f32, -std::numeric_limits<double>::infinity()), "-inf"},
      {constant(f64, 1e300), "1e+300"},
      {constant(u32, 7), "7u"},
      {constant(i64, 7), "7L"},
      {truth(true), "true"},
  };
  for (const auto& [e, text] : table) EXPECT_EQ(print(e), text);
}

TEST(PrintExpr, VariablesOfOneNameAreToldApart) {
  EXPECT_EQ(print(X + variable(named("x"))), "x + x_2");
  EXPECT_EQ(print(variable(named(""))), "v");
}

TEST(PrintView, ShowsWhatIsSeen) {
  const Expr n = variable(named("N", VariableKind::dim));
  const BufferPtr k = tensor("K", f16, {n, int32(4), int32(64)});
  const View all = whole(k);
  EXPECT_EQ(print(all), "K");
  EXPECT_EQ(print(window(all, X, 64)), "K[x : x + 64, :, :]");
  EXPECT_EQ(print(indexed(all, Y)), "K[y, :, :]");
  EXPECT_EQ(print(transposed(whole(tile("s", Space::shared, f16, {4, 8})))), "s.T()");
  View slice = all;
  slice.dims[0] = {X, X, Y, 0};
  slice.extents[0] = Y - X;
  EXPECT_EQ(print(slice), "K[x : y, :, :]");
  slice.dims[0].offset = X + 8;
  slice.extents[0] = int32(16);
  EXPECT_EQ(print(slice), "K[x + 8 : x + 8 + 16 in x : y, :, :]");
  View rotated = all;
  rotated.dims[0].axis = 1;
  rotated.dims[1].axis = 2;
  rotated.dims[2].axis = 0;
  rotated.extents = {int32(64), n, int32(4)};
  EXPECT_EQ(print(rotated), "K.permute(2, 0, 1)");
  View reshaped = whole(tile("s", Space::shared, f16, {4, 8}));
  reshaped.shape = reshaped.extents = extents({2, 2, 8});
  reshaped.dims = {
      {int32(0), nullptr, nullptr, 0}, {int32(1), nullptr, nullptr, -1}, {int32(2), nullptr, nullptr, 1}};
  reshaped.extents = extents({2, 4});
  EXPECT_EQ(print(reshaped), "s.reshape(2, 2, 8)[:, 1, 2 : 6]");
}

// Reads in the order of the program, with something between the read and its use.
TEST(PrintBody, ReadsAreWrittenInPlaceUnlessSomethingIsWrittenInBetween) {
  const BufferPtr a = tensor("a", f32, {int32(8)}, Role::inout), b = tensor("b", i32, {int32(8)});
  const VariablePtr v = named("v", VariableKind::let, f32), w = named("w", VariableKind::let);
  const Stmt index = st(Load{w, element(b, {X})}), read = st(Load{v, element(a, {variable(w)})});
  const Stmt use = st(Store{element(a, {X}), variable(v) + variable(v)});
  const Stmt use_once = st(Store{element(a, {X}), variable(v) * 2});
  const Stmt other = st(Store{element(a, {Y}), constant(f32, 1)});
  const auto text = [](const Body& body) { return without_comments(print(body)); };
  EXPECT_EQ(text({index, read, use_once}), "a[x] = a[b[x]] * 2.0\n");
  EXPECT_EQ(text({index, read, use}), "v = a[b[x]]\na[x] = v + v\n");
  EXPECT_EQ(text({index, read, other, use_once}), "v = a[b[x]]\na[y] = 1.0\na[x] = v * 2.0\n");
  EXPECT_EQ(text({index, other, read, use_once}), "a[y] = 1.0\na[x] = a[b[x]] * 2.0\n");
  const Stmt inner = st(If{lt(X, Y), {use_once}, {}});
  EXPECT_EQ(text({read, inner}), "v = a[w]\nwhen x < y {\n  a[x] = v * 2.0\n}\n");

  If rows{lt(X, Y), {other}, {}};
  rows.of_rows = {lt(X, Y), lt(Y, X)};
  EXPECT_EQ(text({st(rows)}), "when_rows x < y, y < x {\n  a[y] = 1.0\n}\n");
  rows.together = X;
  EXPECT_EQ(text({st(rows)}), "when_rows x < y, y < x, together = x {\n  a[y] = 1.0\n}\n");

  const VariablePtr n = named("n", VariableKind::mutable_), m = named("m", VariableKind::let);
  const Stmt first = st(DeclareVar{n, int32(0)}), now = st(Let{m, variable(n)});
  const Stmt step = st(Assign{n, variable(m) + 1}), keep = st(Assign{n, int32(3)});
  EXPECT_EQ(text({first, now, step}), "var n: i32 = 0\nn = n + 1\n");
  EXPECT_EQ(text({first, now, keep, step}), "var n: i32 = 0\nm = n\nn = 3\nn = m + 1\n");
}

TEST(PrintBody, LinesOfTheProgramStandInOneColumn) {
  const BufferPtr a = tensor("a", f32, {int32(8)}, Role::inout);
  const Loc one = Loc::current();
  const Loc two = Loc::current();
  const Expr value = constant(f32, 1);
  const Body body = {st(Store{element(a, {X}), value}, one), st(Store{element(a, {Y}), value}, one),
                     st(Store{element(a, {X + Y}), value}, two)};
  const std::string first = short_location(one), second = short_location(two);
  EXPECT_EQ(print(body), "a[x] = 1.0      // " + first + "\na[y] = 1.0\na[x + y] = 1.0  // " + second + "\n");
}

Kernel sample() {
  const Expr N = variable(named("N", VariableKind::dim)), most = variable(named("most", VariableKind::dim));
  const auto scale = named("scale", VariableKind::scalar, f32);
  const BufferPtr K = tensor("K", bf16, {N, int32(4), int32(64)}), lists = tensor("lists", i32, {most}),
                  O = tensor("O", f32, {N, int32(64)}, Role::output),
                  sums = tensor("sums", f32, {int32(64)}, Role::workspace);
  const auto bx = named("bx"), h = named("h"), n = named("n"), i = named("i"), j = named("j"), r = named("r");
  const auto block = named("block", VariableKind::let), s = named("s", VariableKind::let, f32);
  const auto row = named("row", VariableKind::let);
  const BufferPtr Ks = tile("Ks", Space::shared, bf16, {64, 64}),
                  acc = tile("acc", Space::fragment, f32, {64, 64}),
                  m = tile("m", Space::fragment, f32, {64});
  const Expr inf = constant(f32, -std::numeric_limits<double>::infinity());
  const View head = indexed(transposed(whole(K)), variable(h));
  const Expr I = variable(i), J = variable(j), key0 = variable(block) * 64;
  const Body inside = {
      st(Declare{Ks}),
      st(Copy{window(head, key0, 64), whole(Ks), inf}),
      st(Gemm{whole(Ks), transposed(whole(Ks)), whole(acc), true, {}}),
      st(For{LoopKind::parallel,
             {i, j},
             extents({0, 0}),
             extents({64, 64}),
             0,
             {st(Load{s, element(acc, {I, J})}),
              st(Store{element(acc, {I, J}), select(lt(key0 + J, N), variable(s) * variable(scale), inf)})}}),
      st(Reduce{ReduceOp::max, whole(acc), 1, whole(m), false}),
  };
  const Body body = {
      st(Declare{acc}),
      st(Fill{whole(acc), constant(f32, 0)}),
      st(Declare{m}),
      st(For{LoopKind::pipelined,
             {n},
             {int32(0)},
             {most},
             2,
             {st(Load{block, element(lists, {variable(n)})}),
              st(If{ge(variable(block), int32(0)), inside, {st(Break{truth(true)})}})}}),
      st(Gather{head, whole(acc), r, {st(Load{row, element(lists, {variable(r)})})}, variable(row)}),
      st(Copy{whole(acc), window(whole(O), variable(bx) * 64, 64), nullptr}),
      st(Accumulate{AtomicOp::add, whole(sums), whole(m), variable(bx)}),
  };
  GridHints hints;
  hints.order = GridOrder::grouped;
  hints.group = 8;
  hints.persistent = true;
  Kernel kernel;
  kernel.name = "sparse";
  kernel.dims = {{N->variable, 8}, {most->variable, 1}};
  kernel.parameters = {{K, nullptr}, {lists, nullptr}, {nullptr, scale}, {O, nullptr}};
  kernel.workspaces = {sums};
  kernel.requirements = {{ge(most, int32(1)), "a list has a block", Loc::current()}};
  kernel.grids = {{{bx, h}, {make(Op::ceildiv, i32, {N, int32(64)}), int32(4)}, hints, body, Loc::current()}};
  kernel.at = Loc::current();
  return kernel;
}

TEST(PrintKernel, ReadsLikeTheProgram) {
  const std::string text = print(sample());
  EXPECT_EQ(text, print(sample()));
  EXPECT_NE(text.find("// print_test.cpp:"), std::string::npos);
  EXPECT_EQ(without_comments(text), R"(kernel sparse {
  dim N.multiple_of(8), most
  input K: bf16[N, 4, 64]
  input lists: i32[most]
  scalar scale: f32
  output O: f32[N, 64]
  workspace sums: f32[64]
  require(most >= 1, "a list has a block")

  grid bx in ceildiv(N, 64), h in 4, persistent, order = grouped(8) {
    fragment acc: f32[64, 64]
    fill(acc, 0.0)
    fragment m: f32[64]
    pipelined n in most, stages = 2 {
      block = lists[n]
      when block >= 0 {
        shared Ks: bf16[64, 64]
        copy(K[block * 64 : block * 64 + 64, h, :], Ks, fill = -inf)
        gemm(Ks, Ks.T(), acc, overwrite)
        parallel i in 64, j in 64 {
          acc[i, j] = select(block * 64 + j < N, acc[i, j] * scale, -inf)
        }
        reduce_max(acc, m, dim = 1)
      } otherwise {
        break_if(true)
      }
    }
    gather(K[:, h, :], acc, r -> lists[r])
    copy(acc, O[bx * 64 : bx * 64 + 64, :])
    accumulate(sums, m, order = bx)
  }
}
)");
}

}  // namespace
}  // namespace tegula::ir
