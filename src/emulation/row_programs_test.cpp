// Programs over rows without products: loops that share a question, fragments that come ahead, registers that
// change their threads, each written in several ways, on both emulated GPUs beside the interpreter.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace row_programs_test {

using namespace lang;
using tegula::Tensor;

constexpr std::chrono::seconds most_time{60};

Tensor normal(const Shape& shape, DType type, int seed) {
  return Tensor::random_normal(shape, type, static_cast<std::uint64_t>(seed));
}

struct RowCase {
  std::string name;
  std::function<lang::Kernel()> program;
  std::vector<Tensor> inputs;
  Shape shape;
  std::vector<std::string> wanted = {}, unwanted = {};  // in the text for Hopper
};
void PrintTo(const RowCase& c, std::ostream* out) { *out << c.name; }

// ---- transforms of rows of n elements

enum class Spelling { reshaped, radix_four, slices, of_two_rows };

void butterflies(Fragment& x, int n, Spelling spelling) {
  const auto step = [](Fragment pairs, int blocks, int stride) {
    parallel(blocks, stride, [&](Index p, Index q) {
      Expr a = pairs(p, 0, q), b = pairs(p, 1, q);
      pairs(p, 0, q) = a + b;
      pairs(p, 1, q) = a - b;
    });
  };
  if (spelling == Spelling::radix_four) {
    for (int stride = 1; stride < n; stride *= 4) {
      Fragment fours = x.reshape({n / (4 * stride), 4, stride});
      parallel(n / (4 * stride), stride, [&](Index p, Index q) {
        Expr a = fours(p, 0, q), b = fours(p, 1, q), c = fours(p, 2, q), d = fours(p, 3, q);
        fours(p, 0, q) = (a + b) + (c + d);
        fours(p, 1, q) = (a - b) + (c - d);
        fours(p, 2, q) = (a + b) - (c + d);
        fours(p, 3, q) = (a - b) - (c - d);
      });
    }
    return;
  }
  const int rows = spelling == Spelling::of_two_rows ? 2 : 1;
  for (int stride = 1; stride < n; stride *= 2) {
    const int blocks = rows * n / (2 * stride);
    if (spelling == Spelling::slices && 2 * stride == n) {
      parallel(stride, [&](Index q) {
        Expr a = x(q), b = x(q + stride);
        x(q) = a + b;
        x(q + stride) = a - b;
      });
    } else {
      step(x.reshape({blocks, 2, stride}), blocks, stride);
    }
  }
}

lang::Kernel transform(int n, Spelling spelling) {
  return kernel("transform", [=] {
    Dim M("M");
    const int rows = spelling == Spelling::of_two_rows ? 2 : 1;
    lang::Tensor x = input("x", {M, n}, bf16), out = output("out", {M, n}, f32);
    grid(ceildiv(M, rows), {.threads = 64}, [&](Index block) {
      if (rows == 1) {
        Fragment own({n}, f32);
        copy(x.slice(block), own);
        butterflies(own, n, spelling);
        copy(own, out.slice(block));
      } else {
        Fragment own({2, n}, f32);
        copy(x.at(block * 2), own);
        butterflies(own, n, spelling);
        copy(own, out.at(block * 2));
      }
    });
  });
}

// A quantity of the transformed row, from a reduction behind it.
lang::Kernel scaled_transform(int n) {
  return kernel("scaled_transform", [=] {
    Dim M("M");
    lang::Tensor x = input("x", {M, n}, f32), out = output("out", {M, n}, f32);
    grid(M, {.threads = 32}, [&](Index row) {
      Fragment own({n}, f32);
      copy(x.slice(row), own);
      butterflies(own, n, Spelling::reshaped);
      Expr most = reduce_absmax(own).scalar();
      parallel(own, [&](Index i) { own(i) = own(i) / (most + 1); });
      copy(own, out.slice(row));
    });
  });
}

// ---- rows in pieces, which come ahead

enum class Piece { loaded, filled, in_place };

// Every row less its largest element, in two passes over its pieces.
lang::Kernel pieces(DType type, Piece piece) {
  return kernel("pieces", [=] {
    Dim M("M"), N("N");
    lang::Tensor x = piece == Piece::in_place ? inout("x", {M, N}, type) : input("x", {M, N}, type);
    lang::Tensor out = output("out", {M, N}, f32);
    grid(M, {.threads = 64}, [&](Index row) {
      Fragment top({64}, f32, -inf);
      lang::Tensor own = x.slice(row);
      pipelined(ceildiv(N, 64), {.stages = 3}, [&](Index n) {
        Fragment own_piece({64}, f32);
        if (piece == Piece::filled)
          copy(own.at(n * 64), own_piece, {.fill = -inf});
        else
          copy(own.at(n * 64), own_piece);
        parallel(own_piece, [&](Index i) { top(i) = max(top(i), own_piece(i)); });
      });
      Expr largest = reduce_max(top).scalar();
      pipelined(ceildiv(N, 64), {.stages = 3}, [&](Index n) {
        Fragment own_piece({64}, f32);
        copy(own.at(n * 64), own_piece);
        parallel(own_piece, [&](Index i) { own_piece(i) -= largest; });
        if (piece == Piece::in_place) copy(own_piece, own.at(n * 64));
        copy(own_piece, out.slice(row).at(n * 64));
      });
    });
  });
}

// ---- sums of rows, of which each thread has several

enum class Sums { of_rows, largest, of_columns, of_parts, scaled, kept_by_all };

// Sums of `rows` rows, or of parts of them, which only go to memory; kept_by_all: the rows need them as well.
lang::Kernel row_sums(int rows, DType type, Sums sums) {
  return kernel("row_sums", [=] {
    Dim M("M");
    lang::Tensor x = input("x", {M, 64}, type), scale = input("scale", {M}, f32);
    lang::Tensor out = output("out", {M, sums == Sums::of_columns ? 64 : 4}, f32);
    grid(ceildiv(M, rows), {.threads = 64}, [&](Index block) {
      Fragment own({rows, 64}, f32);
      copy(x.at(block * rows), own);
      if (sums == Sums::of_columns) {
        Fragment sum = reduce_sum(own, 0);
        parallel(sum, [&](Index j) { when(block == 0, [&] { out(block, j) = sum(j); }); });
        for (int i = 1; i < 5; ++i) parallel(64, [&](Index j) { when(block == 0, [&] { out(i, j) = 0; }); });
        return;
      }
      if (sums == Sums::of_parts) {
        Fragment sum = reduce_sum(own.reshape({rows, 4, 16}), 2);
        parallel(sum, [&](Index i, Index j) {
          when(block * rows + i < M, [&] { out(block * rows + i, j) = sum(i, j); });
        });
        return;
      }
      Fragment sum = sums == Sums::largest ? reduce_max(own) : reduce_sum(own);
      if (sums == Sums::kept_by_all) parallel(own, [&](Index i, Index j) { own(i, j) -= sum(i); });
      parallel(sum, [&](Index i) {
        Expr row = block * rows + i;
        when(row < M, [&] { out(row, 0) = sums == Sums::scaled ? sum(i) * scale(row) : sum(i); });
      });
      Fragment rest = reduce_absmax(own);
      parallel(rest, [&](Index i) {
        for (int j = 1; j < 4; ++j) when(block * rows + i < M, [&] { out(block * rows + i, j) = rest(i); });
      });
    });
  });
}

// ---- several tiles one after another

// Sums of two tensors and of a row, after a sum over the row.
lang::Kernel together(int rows) {
  return kernel("together", [=] {
    Dim M("M");
    lang::Tensor x = input("x", {M, 128}, bf16), y = input("y", {M, 128}, bf16), w = input("w", {128}, bf16),
                 out = output("out", {M, 128}, f32);
    grid(ceildiv(M, rows), {.threads = 64}, [&](Index block) {
      Fragment a({rows, 128}, f32), b({rows, 128}, f32), weight({128}, f32);
      copy(x.at(block * rows), a);
      copy(y.at(block * rows), b);
      copy(w.at(0), weight);
      parallel(a, [&](Index i, Index j) { a(i, j) += b(i, j); });
      Fragment sum = reduce_sum(a);
      parallel(a, [&](Index i, Index j) { a(i, j) = a(i, j) * weight(j) + sum(i); });
      copy(a, out.at(block * rows));
    });
  });
}

// Numbers that are computed from rows, and meet in pairs, as they do where they are packed.
lang::Kernel pairs_of_rows(int rows) {
  return kernel("pairs_of_rows", [=] {
    Dim M("M");
    lang::Tensor x = input("x", {M, 64}, bf16), out = output("out", {M, 32}, f32);
    grid(ceildiv(M, rows), {.threads = 64}, [&](Index block) {
      Fragment a = load(x.at(block * rows), {rows, 64}, f32), top = reduce_absmax(a);
      Fragment whole = map(
          a, [&](Index i, Index j) { return i32(round(a(i, j) / top(i) * 7)); }, i32);
      parallel(rows, 32, [&](Index i, Index j) {
        out(block * rows + i, j) = f32((whole(i, j * 2) & 15) | (whole(i, j * 2 + 1) & 15) << 4);
      });
    });
  });
}

// Each element is a sum over rows of a shared tile, in a variable of its own.
lang::Kernel taps() {
  return kernel("taps", [] {
    Dim M("M");
    lang::Tensor x = input("x", {M, 64}, bf16), w = input("w", {3, 64}, f32),
                 out = output("out", {M, 64}, f32);
    grid(ceildiv(M, 16), [&](Index block) {
      Shared rows({18, 64}, bf16), weights({3, 64}, f32);
      copy(x.at(block * 16 - 2), rows);
      copy(w.at(0), weights);
      Fragment y({16, 64}, f32);
      parallel(y, [&](Index i, Index j) {
        Var sum = 0.0f;
        for (int tap = 0; tap < 3; ++tap) sum += weights(tap, j) * rows(i + tap, j);
        y(i, j) = sum / (1 + exp(-sum));
      });
      copy(y, out.at(block * 16));
    });
  });
}

// Rows whose largest element is positive are counted where it is held by several threads.
lang::Kernel counted_rows() {
  return kernel("counted_rows", [] {
    Dim M("M");
    lang::Tensor x = input("x", {M, 64}, bf16), out = output("out", {2}, f32, {.zero = true});
    grid(ceildiv(M, 32), [&](Index block) {
      Fragment a = load(x.at(block * 32), {32, 64}, f32), sum = reduce_sum(a);
      parallel(sum, [&](Index i) {
        when(sum(i) > 0, [&] { atomic_add(out(0), 1), atomic_add(out(1), round(sum(i))); });
      });
    });
  });
}

// Two halves of a tensor's columns are written: places that do not meet.
lang::Kernel halves() {
  return kernel("halves", [] {
    Dim M("M");
    lang::Tensor x = input("x", {M, 128}, bf16), out = output("out", {M, 128}, f32);
    grid(ceildiv(M, 4), {.threads = 32}, [&](Index block) {
      Fragment a({4, 64}, f32), b({4, 64}, f32);
      copy(x.at(block * 4), a);
      copy(x.at(block * 4, 64), b);
      parallel(a, [&](Index i, Index j) {
        Expr u = a(i, j), v = b(i, j);
        a(i, j) = u - v;
        b(i, j) = v + u;
      });
      copy(a, out.at(block * 4));
      copy(b, out.at(block * 4, 64));
    });
  });
}

// Rows from an odd column on.
Tensor shifted(int rows, int columns, DType type, int seed) {
  return normal({rows, columns + 3}, type, seed).slice(1, 3, columns + 3);
}

class RowPrograms : public ::testing::TestWithParam<RowCase> {};

TEST_P(RowPrograms, AreAsInterpreted) {
  const RowCase& c = GetParam();
  const Watchdog watchdog(c.name, most_time);
  expect_as_interpreted(c.program(), c.inputs, c.shape, 2e-4,
                        {tegula::Target::emulated_sm90(), tegula::Target::emulated()});
  const std::string text = codegen::print_cuda(Signature(c.program().ir()), {90}).text;
  for (const std::string& own : c.wanted) EXPECT_NE(text.find(own), std::string::npos) << own << "\n" << text;
  for (const std::string& own : c.unwanted)
    EXPECT_EQ(text.find(own), std::string::npos) << own << "\n" << text;
}

const std::vector<std::string> once{"registers change their threads"}, by_elements{": to shared memory"},
    shared{"halve_among_lanes"};

std::vector<RowCase> transforms() {
  const Tensor rows = normal({3, 1024}, bf16, 1);
  const auto spelled = [](const char* name, Spelling spelling, const Tensor& x) -> RowCase {
    return {name, [=] { return transform(1024, spelling); }, {x}, x.shape(), once, by_elements};
  };
  return {
      spelled("reshaped", Spelling::reshaped, rows),
      spelled("radix_four", Spelling::radix_four, rows),
      spelled("slices", Spelling::slices, rows),
      spelled("two_rows", Spelling::of_two_rows, normal({4, 1024}, bf16, 5)),
      {"reduced",
       [] { return scaled_transform(256); },
       {normal({2, 256}, f32, 6)},
       {2, 256},
       once,
       by_elements},
  };
}

std::vector<RowCase> pieces_and_tiles() {
  const Tensor narrow = normal({5, 128}, bf16, 2), ragged = normal({3, 200}, f32, 3),
               whole = normal({3, 256}, bf16, 4);
  const auto in_pieces = [](const char* name, Piece piece, const Tensor& x) -> RowCase {
    return {name, [=, type = x.dtype()] { return pieces(type, piece); }, {x}, x.shape(), {"wait_copies<1>"}};
  };
  return {
      in_pieces("pieces", Piece::loaded, ragged),
      in_pieces("pieces_of_16_bits", Piece::loaded, whole),
      in_pieces("filled_pieces", Piece::filled, whole),
      in_pieces("ragged_pieces", Piece::filled, ragged),
      in_pieces("pieces_in_place", Piece::in_place, normal({3, 200}, f32, 7)),
      {"together",
       [] { return together(2); },
       {narrow, normal({5, 128}, bf16, 8), normal({128}, bf16, 9)},
       {5, 128}},
      {"together_shifted",
       [] { return together(1); },
       {shifted(5, 128, bf16, 10), normal({5, 128}, bf16, 11), normal({128}, bf16, 12)},
       {5, 128},
       {},
       {"is_aligned"}},
      {"halves", [] { return halves(); }, {narrow}, {5, 128}, {}, {"block_sync"}},
  };
}

std::vector<RowCase> sums_of_rows() {
  const Tensor sums = normal({150, 64}, f32, 12), scale = normal({150}, f32, 13);
  return {
      {"sums_of_rows", [] { return row_sums(64, f32, Sums::of_rows); }, {sums, scale}, {150, 4}, shared},
      {"sums_of_few_rows",
       [] { return row_sums(16, bf16, Sums::of_rows); },
       {normal({150, 64}, bf16, 14), scale},
       {150, 4},
       {},
       shared},
      {"largest_of_rows", [] { return row_sums(64, f32, Sums::largest); }, {sums, scale}, {150, 4}, shared},
      {"sums_of_columns",
       [] { return row_sums(64, f32, Sums::of_columns); },
       {normal({5, 64}, f32, 15), scale.slice(0, 0, 5)},
       {5, 64}},
      {"sums_of_parts_of_rows",
       [] { return row_sums(64, f32, Sums::of_parts); },
       {sums, scale},
       {150, 4},
       shared},
      {"scaled_sums", [] { return row_sums(64, f32, Sums::scaled); }, {sums, scale}, {150, 4}, shared},
      {"sums_that_rows_need", [] { return row_sums(64, f32, Sums::kept_by_all); }, {sums, scale}, {150, 4}},
  };
}

std::vector<RowCase> pairs_and_taps() {
  return {
      {"pairs",
       [] { return pairs_of_rows(16); },
       {normal({21, 64}, bf16, 16)},
       {21, 32},
       {"load_pack<8>"},
       once},
      {"pairs_of_few_rows",
       [] { return pairs_of_rows(4); },
       {normal({21, 64}, bf16, 17)},
       {21, 32},
       {},
       once},
      {"taps",
       [] { return taps(); },
       {normal({21, 64}, bf16, 19), normal({3, 64}, f32, 20)},
       {21, 64},
       {"load_pack<8>(s"}},
      {"counted", [] { return counted_rows(); }, {normal({90, 64}, bf16, 18)}, {2}, {}, by_elements},
  };
}

std::vector<RowCase> cases() {
  std::vector<RowCase> all;
  for (const auto& table : {transforms(), pieces_and_tiles(), sums_of_rows(), pairs_and_taps()})
    all.insert(all.end(), table.begin(), table.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Table, RowPrograms, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace row_programs_test
}  // namespace tegula::emulation
