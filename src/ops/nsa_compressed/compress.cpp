#include <functional>

#include "ops/nsa_compressed/windows.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr int stages = 8;  // steps of a window whose rows are on their way

struct CompressInstance {
  DType type = f32;
  int dim = 64, rows = 16;  // of a tile
  bool packed = false;

  auto fields() const {
    return std::tuple(type, labelled("d", dim), labelled("t", rows), labelled("packed", packed));
  }
};

// The program of both directions: `whole` has a row for each token, `means` one for each entry.
struct CompressProgram {
  const CompressInstance& c;
  Dim batch{"batch"}, tokens{"tokens"}, heads{"heads"}, entries{"entries"};
  Tensor whole, means;
  Expr length = scalar("length", i32), stride = scalar("stride", i32), longest = scalar("longest", i32);
  std::optional<Tensor> fences;

  template <class Whole, class Means>
  CompressProgram(const CompressInstance& instance, const Whole& declare_whole, const Means& declare_means)
      : c(instance),
        whole(declare_whole(Extents{batch, tokens, heads, c.dim})),
        means(declare_means(Extents{batch, entries, heads, c.dim})) {
    if (c.packed) fences.emplace(input("cu_seqlens", {Dim("fences")}, i32));
  }

  Windows windows() const { return {length, stride}; }
  CompressedSequence sequence(const Index& b) const {
    return c.packed ? CompressedSequence::packed(*fences, b, stride)
                    : CompressedSequence::of_batch(b, tokens, entries);
  }
  Expr sequences() const { return c.packed ? fences->extent(0) - 1 : Expr(batch); }
  // Entries of the longest sequence: one that begins off a multiple of the stride may have a row more.
  Expr most_entries() const { return c.packed ? longest / stride + 1 : Expr(entries); }
  Expr count(const CompressedSequence& s) const {
    return min(windows().among(s.tokens.end - s.tokens.begin), s.entries.end - s.entries.begin);
  }

  // The number of the row that a row of a tile adds in a step; -1 adds nothing.
  using RowOfStep = std::function<Expr(const Expr& i, const Expr& step)>;
  template <class Steps>
  Fragment share_of_rows(const Tensor& from, const Steps& steps, const RowOfStep& row) const;

  void sum_windows() const;
  void spread() const;
};

// The sums of the steps' rows, divided by the tokens of a window. A Var of steps is read where the loop
// begins.
template <class Steps>
Fragment CompressProgram::share_of_rows(const Tensor& from, const Steps& steps, const RowOfStep& row) const {
  Expr share = 1 / f32(length);
  Fragment sum({c.rows, c.dim}, f32, 0);
  pipelined(steps, {.stages = stages}, [&](Index step) {
    Shared rows({c.rows, c.dim}, c.type);
    gather(
        from, [&](Index i) { return row(i, step); }, rows);
    parallel(sum, [&](Index i, Index j) { sum(i, j) += rows(i, j); });
  });
  parallel(sum, [&](Index i, Index j) { sum(i, j) *= share; });
  return sum;
}

void CompressProgram::sum_windows() const {
  grid(ceildiv(most_entries(), c.rows), heads, sequences(), [&](Index x, Index h, Index b) {
    const CompressedSequence s = sequence(b);
    if (c.packed) s.check(longest);
    const Tensor from = whole.slice(s.batch, s.tokens, h), to = means.slice(s.batch, s.entries, h);
    const Var whole_windows = count(s);
    const Fragment mean = share_of_rows(from, length, [&](const Expr& i, const Expr& step) {
      Expr entry = x * c.rows + i;
      return select(entry < whole_windows, entry * stride + step, -1);
    });
    copy(mean, to.at(x * c.rows));
  });
}

// A token has its share of every window that it is in.
void CompressProgram::spread() const {
  grid(ceildiv(longest, c.rows), heads, sequences(), [&](Index x, Index h, Index b) {
    const CompressedSequence s = sequence(b);
    if (c.packed) s.check(longest);
    const Tensor to = whole.slice(s.batch, s.tokens, h), from = means.slice(s.batch, s.entries, h);
    const Var whole_windows = count(s), most = ceildiv(length, stride);  // windows of a token
    const Fragment share = share_of_rows(from, most, [&](const Expr& i, const Expr& step) {
      Expr token = x * c.rows + i, entry = windows().beginning_before(token + 1) - most + step;
      return select(entry >= windows().ending_behind(token) && entry < whole_windows, entry, -1);
    });
    copy(share, to.at(x * c.rows));
  });
}

Kernel compress_forward(const CompressInstance& c) {
  return kernel(instance_name("nsa_compress", c), [&] {
    CompressProgram(
        c, [&](const Extents& e) { return input("x", e, c.type); },
        [&](const Extents& e) { return output("out", e, c.type); })
        .sum_windows();
  });
}

Kernel compress_backward(const CompressInstance& c) {
  return kernel(instance_name("nsa_compress_backward", c), [&] {
    CompressProgram(
        c, [&](const Extents& e) { return output("dx", e, c.type); },
        [&](const Extents& e) { return input("dout", e, c.type); })
        .spread();
  });
}

template <class Op>
CompressInstance compress_plan(const Bound<Op>& c, int elements) {
  const int dim = c.small_dim("d");
  return {c.type("x"), dim, elements / (dim <= 64 ? 64 : 128), c.has("cu_seqlens")};
}

// Elements of a tile. On a GPU a window has many steps, which more and smaller blocks hide better.
constexpr int many_elements = 2048, few_elements = 512;

void run(const Bound<NsaCompress>& c, Launch& launch) {
  launch(compress_plan(c, c.on_gpu() ? few_elements : many_elements), compress_forward,
         {{"x", batched(c["x"], c->layout)}, {"out", batched(c["out"], c->layout)}});
}

void run_backward(const Bound<CompressBackward>& c, Launch& launch) {
  launch(compress_plan(c, many_elements), compress_backward,
         {{"dout", batched(c["dout"], c->layout)}, {"dx", batched(c["dx"], c->layout)}});
}

// Tells `each` of every entry, by its sequence or batch, its row and the first of its tokens.
template <class Op, class F>
void each_window(const Bound<Op>& c, const F& each) {
  const auto walk = [&](std::int64_t b, std::int64_t begin, std::int64_t tokens) {
    for (std::int64_t n = 0; n * c->stride + c->length <= tokens; ++n)
      each(b, begin / c->stride + n, begin + n * c->stride);
  };
  if (!c.has("cu_seqlens")) {
    for (std::int64_t b = 0; b < c.dim("batch"); ++b) walk(b, 0, c.dim("tokens"));
    return;
  }
  const auto fence = [&](std::int64_t i) { return static_cast<std::int64_t>(c["cu_seqlens"].get({i})); };
  for (std::int64_t i = 0; i < c.dim("sequences"); ++i) walk(0, fence(i), fence(i + 1) - fence(i));
}

void formula(const Bound<NsaCompress>& c, Exact& exact) {
  const TensorRef x = batched(c["x"], c->layout);
  const tegula::Tensor result = tegula::Tensor::zeros(c["out"].shape, f64);
  const TensorRef out = batched(result, c->layout);
  each_window(c, [&](std::int64_t b, std::int64_t row, std::int64_t token) {
    for (std::int64_t h = 0; h < c.dim("heads"); ++h)
      for (std::int64_t d = 0; d < c.dim("d"); ++d) {
        double sum = 0;
        for (std::int64_t t = 0; t < c->length; ++t) sum += x.get({b, token + t, h, d});
        out.set({b, row, h, d}, sum / c->length);
      }
  });
  exact.set("out", result);
}

void formula_backward(const Bound<CompressBackward>& c, Exact& exact) {
  const TensorRef dout = batched(c["dout"], c->layout);
  const tegula::Tensor result = tegula::Tensor::zeros(c["x"].shape, f64);
  const TensorRef dx = batched(result, c->layout);
  each_window(c, [&](std::int64_t b, std::int64_t row, std::int64_t token) {
    for (std::int64_t h = 0; h < c.dim("heads"); ++h)
      for (std::int64_t d = 0; d < c.dim("d"); ++d)
        for (std::int64_t t = 0; t < c->length; ++t)
          dx.set({b, token + t, h, d}, dx.get({b, token + t, h, d}) + dout.get({b, row, h, d}) / c->length);
  });
  exact.set("dx", result);
}

// Rows of entries that so many tokens have.
const char* const entries_of_tokens = "cu_seqlens ? tokens/stride : max((tokens-length)/stride + 1, 0)";

template <class Op>
void add_mean(Schema<Op>& table) {
  table.require("x", "1 <= d & d <= 512", "1 to 512 features", "split the heads")
      .flops("batch*heads*d*entries*length")
      .source("Yuan et al. 2025, Native Sparse Attention: compression by means");
}

// For the gradient, dout determines the number of entries.
std::vector<Example> compress_examples(bool of_gradient) {
  const std::pair<Example, std::int64_t> all_of_them[] = {
      {{"small", "batch=1 tokens=11 heads=2 d=5 length=4 stride=2"}, 4},
      {{"uneven_f16", "batch=2 tokens=33 heads=1 d=16 f16 length=7 stride=3 layout=bhsd"}, 9},
      {{"packed", "sequences=4 tokens=50 heads=2 d=16 length=5 stride=4 cu_seqlens"}, 12},
      {{"packed_without_entries", "sequences=2 tokens=3 heads=2 d=16 length=5 stride=4 cu_seqlens"}, 0},
      {{"apart_bf16", "batch=1 tokens=70 heads=2 d=64 bf16 length=16 stride=16"}, 4}};
  std::vector<Example> result;
  for (auto [example, entries] : all_of_them) {
    if (of_gradient) example.text += fmt::format(" entries={}", entries);
    result.push_back(example);
  }
  return result;
}

std::vector<Example> compress_measured(bool of_gradient) {
  return {{"65536_bf16",
           std::string("batch=1 tokens=65536 heads=4 d=128 bf16") + (of_gradient ? " entries=4095" : "")},
          {"8192_bf16",
           std::string("batch=8 tokens=8192 heads=4 d=128 bf16") + (of_gradient ? " entries=511" : "")}};
}

const std::string whole_dims = compressed_dims("tokens", "heads", "d");
const std::string mean_dims = compressed_dims("entries", "heads", "d");

}  // namespace

const OperatorSchema& nsa_compress_schema() {
  using Op = NsaCompress;
  static const OperatorSchema table =
      Schema<Op>("nsa_compress", "means of overlapping windows of tokens")
          .in(&Op::x, "x", whole_dims, floats, "keys or values")
          .unit_stride()
          .with(add_windows<Op>("tokens"))
          .let("entries", entries_of_tokens)
          .with(add_mean<Op>)
          .out(&Op::out, "out", mean_dims, same_as("x"),
               "one entry per whole window; if packed, those of a sequence start at its first token / stride")
          .unit_stride()
          .gradient("nsa_compress_backward")
          .examples(compress_examples(false))
          .measured(compress_measured(false))
          .run(run, formula);
  return table;
}

const OperatorSchema& nsa_compress_backward_schema() {
  using Op = CompressBackward;
  static const OperatorSchema table =
      Schema<Op>("nsa_compress_backward", "gradient of nsa_compress")
          .in(&Op::dout, "dout", mean_dims, same_as("x"), "gradient of out")
          .unit_stride()
          .follows()
          .in(&Op::x, "x", whole_dims, floats, "keys or values")
          .unit_stride()
          .with(add_windows<Op>("tokens"))
          .let("expected_entries", entries_of_tokens)
          .require("dout", "entries == expected_entries", "{expected_entries} entries, as out has",
                   "give it the shape of out")
          .with(add_mean<Op>)
          .out(&Op::dx, "dx", whole_dims, same_as("x"), "gradient of x")
          .unit_stride()
          .no_gradient("it is linear: that of nsa_compress")
          .examples(compress_examples(true))
          .measured(compress_measured(true))
          .run(run_backward, formula_backward);
  return table;
}

}  // namespace tegula::ops
