#include "tegula/ops/cross_entropy.hpp"

#include <algorithm>
#include <limits>

#include "ops/pieces/kept_rows.hpp"
#include "ops/pieces/row_tiles.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/rows/loss_formula.hpp"
#include "ops/rows/loss_in_parts.hpp"
#include "ops/rows/loss_labels.hpp"
#include "ops/rows/maps.hpp"
#include "ops/rows/row_notes.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

// Whole rows, which a block of a GPU holds in registers; of a CPU short ones, since loops over the pieces of
// one row at a time would take longer to begin than they take.
struct HeldRows {
  int rows = 1, classes = 1;        // of a tile
  std::optional<int> spread = {};   // threads of each CTA that holds a part of the row
  std::optional<int> columns = {};  // of a tile that has no whole rows
  auto fields() const {
    return std::tuple(joined("t", rows, classes), labelled("spread", spread), labelled("columns", columns));
  }
  int width() const { return columns.value_or(classes); }
};
template <class Op>
std::optional<HeldRows> held_rows_of(const Bound<Op>& c, int elements, int longest) {
  constexpr int longest_on_cpu = 1024;
  const int classes = c.small_dim("classes");
  if (!c.on_gpu() && classes > longest_on_cpu) return std::nullopt;
  if (classes > longest) {
    const auto threads = threads_of_cut_row(classes, has_copy_engine(c.call()));
    return gives_gradient<Op> && threads ? std::optional(HeldRows{1, classes, threads}) : std::nullopt;
  }
  constexpr int rows_of_threads = 128;
  const bool is_of_thread = c.on_gpu() && std::is_same_v<Op, CrossEntropy> && c.type("logits").bits() == 16 &&
                            is_row_of_thread(classes);
  const int rows = whole_power(rows_of_plan(elements, classes, c.on_gpu(), c.type("logits")));
  return HeldRows{is_of_thread ? rows_of_threads : rows_of_tile(rows, classes), classes};
}

struct LossInstance {
  DType type = f32;
  LongRows rows = {};
  bool smooths = false, with_gradient = false;
  std::optional<int> held = {};  // pieces in registers
  std::optional<HeldRows> tile = {};
  auto fields() const {
    return std::tuple(type, rows, labelled("smoothed", smooths), labelled("gradient", with_gradient),
                      labelled("held", held), tile);
  }
};
struct LossBackwardInstance {
  DType type = f32;
  LongRows rows = {};
  bool of_lse = false;
  std::optional<HeldRows> tile = {};
  auto fields() const { return std::tuple(type, rows, labelled("lse", of_lse), tile); }
};

// Short rows are one piece. Blocks are small, so that some read while others compute: that is worth more here
// than a second reading from the cache. Gradients read rows once, and that to registers.
template <class Op>
LongRows rows_of(const Bound<Op>& c) {
  const std::int64_t classes = c.dim("classes");
  LongRows result = divided_rows(0, c.on_gpu());
  int piece = 64;
  while (piece < classes && piece < result.piece) piece *= 2;
  if (piece < result.piece) result = {.piece = piece, .sums_of_rows = result.sums_of_rows};
  return result;
}
// Of rows that no block holds, a GPU's blocks have parts where there are few rows, or where rows end within
// pieces, which loops over them would load by elements.
constexpr int rows_of_all_processors = 512;
std::optional<LossInParts> parts_of(const Bound<CrossEntropy>& c) {
  constexpr int longest_held = 8192, columns = 4096;
  const std::int64_t classes = c.dim("classes");
  if (!c.on_gpu() || classes <= longest_held) return std::nullopt;
  if (c.dim("rows") >= rows_of_all_processors && !ends_within_piece(classes)) return std::nullopt;
  return LossInParts{c.type("logits"), c.small_dim("classes"), columns, c->label_smoothing != 0};
}
template <class Op>
LossInstance loss_plan(const Bound<Op>& c) {
  if (const auto tile = held_rows_of(c, 8192, 8192))
    return {c.type("logits"), {}, c->label_smoothing != 0, gives_gradient<Op>, {}, tile};
  LongRows rows = rows_of(c);
  if (gives_gradient<Op> && rows.threads > 0) rows = kept_rows(c.dim("classes"), c.type("logits"), true);
  return {c.type("logits"), rows, c->label_smoothing != 0, gives_gradient<Op>,
          gives_gradient<Op> ? held_pieces(c.dim("classes"), c.type("logits"), rows) : std::nullopt};
}
LossBackwardInstance backward_plan(const Bound<CrossEntropyBackward>& c) {
  // Rows that are read once need no block that holds them: blocks of few rows would leave processors idle.
  constexpr int longest = 1024, columns = 2048;
  if (const auto tile = held_rows_of(c, 4096, longest)) return {c.type("logits"), {}, c.has("dlse"), tile};
  const bool has_few_blocks = c.dim("rows") < rows_of_all_processors;
  if (c.on_gpu() && c.dim("classes") > longest && (has_few_blocks || ends_within_piece(c.dim("classes"))))
    return {c.type("logits"), {}, c.has("dlse"), HeldRows{1, c.small_dim("classes"), {}, columns}};
  return {c.type("logits"), rows_of(c), c.has("dlse")};
}

// What a row's gradient is made of: d logit = softmax · of_softmax − of_all, and less of_label at the label,
// which is written again once the row is: no other element asks whether it is the label.
struct RowGradient {
  Expr lse, of_softmax, of_all, of_label, label;
  bool spreads;  // of_all is not 0

  void write(const KeptRows& kept, const Tensor& logits, const Tensor& dlogits) const {
    const Var subtracted = lse, factor = of_softmax;
    const auto gradient = [&](const Expr& x) -> Expr {
      Expr own = exp2((x - subtracted) * log2e) * factor;
      return spreads ? own - of_all : own;
    };
    kept.each_again([&](const Expr& first, std::vector<Fragment>& values) {
      Fragment& x = values[0];
      parallel(x, [&](Index j) { x(j) = gradient(x(j)); });
      copy(x, dlogits.at(first));
    });
    when(label >= 0 && label < logits.extent(0),
         [&] { dlogits(label) = gradient(f32(logits(label))) - of_label; });
  }
};

// Blocks that are spread over CTAs have no assertions.
void check_labels_before(const Tensor& labels, const Expr& ignored, int classes) {
  constexpr int rows = 256;
  grid(ceildiv(labels.extent(0), rows),
       [&](Index block) { TileLabels(rows, classes, labels, block * rows, ignored); });
}

// x becomes the gradient: exp(x - lse) · of_softmax - of_all, less of_label at the label.
void write_gradients(Fragment& x, const Expr& first, const Fragment& lse, const Fragment& labels,
                     const Fragment& of_softmax, const Fragment& factors, const Expr& smoothing,
                     int classes) {
  Expr of_all = smoothing * (1.f / static_cast<float>(classes)), of_label = 1.f - smoothing;
  parallel(x, [&](Index i, Index j) {
    Expr less = of_all + select(first + j == labels(i), of_label, 0.f);
    x(i, j) = exp2((x(i, j) - lse(i)) * log2e) * of_softmax(i) - factors(i) * less;
  });
}

struct Loss {
  const LossInstance& c;
  Dim rows{"rows"};
  Operand classes = c.tile ? Operand(c.tile->classes) : Operand(c.rows.features("classes"));
  Tensor logits = input("logits", {rows, classes}, c.type), labels = input("labels", {rows}, i32);
  Tensor losses = output("loss", {rows}, f32), all_lse = output("lse", {rows}, f32);
  Tensor dlogits = c.with_gradient ? output("dlogits", {rows, classes}, c.type) : logits;
  Expr ignored = scalar("ignore_index", i64);
  Expr smoothing = c.smooths ? scalar("label_smoothing", f32) : Expr(f32(0));
  Expr scale = c.with_gradient ? scalar("gradient_scale", f32) : Expr(f32(0));

  void in_tiles() const {
    const HeldRows& tile = *c.tile;
    if (tile.spread) check_labels_before(labels, ignored, tile.classes);
    grid(ceildiv(rows, tile.rows), options_of_held_rows(tile.spread), [&](Index block) {
      const Expr row = block * tile.rows;
      const TileLabels own(tile.rows, tile.classes, labels, row, ignored, !tile.spread);
      Fragment x = load(logits.at(row), {tile.rows, tile.classes}, f32), most = reduce_max(x);
      // Of a row of -inf, no difference is NaN: its sum is 0, and lse -inf.
      parallel(most, [&](Index i) { most(i) = max(most(i), std::numeric_limits<float>::lowest()); });
      Fragment lse = reduce_sum(map(x, [&](Index i, Index j) { return exp2((x(i, j) - most(i)) * log2e); }));
      parallel(lse, [&](Index i) { lse(i) = log(lse(i)) + most(i); });
      copy(lse, all_lse.at(row));
      Fragment at_label = own.logits(logits, row, tile.classes);
      Fragment loss = map(lse, [&](Index i) { return lse(i) - at_label(i); });
      if (c.smooths) {
        Fragment sum = reduce_sum(x);
        parallel(loss, [&](Index i) {
          Expr mean = sum(i) * (1.f / static_cast<float>(tile.classes));
          loss(i) = loss(i) * (1.f - smoothing) + (lse(i) - mean) * smoothing;
        });
      }
      parallel(loss, [&](Index i) { loss(i) = select(own.factors(i) == 0, 0.f, loss(i)); });
      copy(loss, losses.at(row));
      if (!c.with_gradient) return;
      Fragment factors = map(own.factors, [&](Index i) { return own.factors(i) * scale; });
      write_gradients(x, 0, lse, own.of, factors, factors, smoothing, tile.classes);
      copy(x, dlogits.at(row));
    });
  }

  void in_pieces() const {
    Expr count = Expr(classes);
    grid(rows, {.threads = c.rows.threads}, [&](Index row) {
      Tensor own = logits.slice(row);
      const KeptRows kept(c.rows, c.held.value_or(0), {{own, -std::numeric_limits<double>::infinity()}});
      ExponentialSums sums(c.rows, c.type);
      Fragment plain({c.rows.piece}, f32, 0);
      kept.each([&](const Expr& first, std::vector<Fragment>& values) {
        Fragment& x = values[0];
        if (c.smooths) parallel(plain, [&](Index j) { plain(j) += select(first + j < count, x(j), 0.f); });
        sums.add(x);
      });
      Expr lse = sums.total().lse(), label = labels(row), counts = i64(label) != ignored;
      check_labels(!counts || (label >= 0 && label < count));
      const auto smoothed = [&](const Expr& loss) -> Expr {
        if (!c.smooths) return loss;
        Expr mean = reduce_sum(plain).scalar() / f32(count);
        return loss * (1.f - smoothing) + (lse - mean) * smoothing;
      };
      losses(row) = select(counts, smoothed(lse - own(label)), 0.f);
      all_lse(row) = lse;
      if (!c.with_gradient) return;
      Expr factor = select(counts, scale, 0.f);
      RowGradient{lse, factor, factor * smoothing / f32(count), factor * (1.f - smoothing), label, c.smooths}
          .write(kept, own, dlogits.slice(row));
    });
  }
};

Kernel loss_forward(const LossInstance& c) {
  return kernel(instance_name(c.with_gradient ? "cross_entropy_and_gradient" : "cross_entropy", c), [&] {
    const Loss loss{c};
    c.tile ? loss.in_tiles() : loss.in_pieces();
  });
}

template <class Op>
void run_loss(const Bound<Op>& c, Launch& launch) {
  if constexpr (!gives_gradient<Op>)
    if (const auto parts = parts_of(c)) return launch(*parts, loss_in_parts);
  const LossInstance made = loss_plan(c);
  if (made.tile && made.tile->spread) note_cut_rows(launch, c.dim("classes"), made.type);
  launch(made, loss_forward);
}

struct LossGradient {
  const LossBackwardInstance& c;
  Dim rows{"rows"};
  Operand classes = c.tile ? Operand(c.tile->classes) : Operand(c.rows.features("classes"));
  Tensor dloss = input("dloss", {rows}, f32);
  Tensor dlse = c.of_lse ? input("dlse", {rows}, f32) : dloss;
  Tensor logits = input("logits", {rows, classes}, c.type), labels = input("labels", {rows}, i32);
  Tensor all_lse = input("lse", {rows}, f32), dlogits = output("dlogits", {rows, classes}, c.type);
  Expr ignored = scalar("ignore_index", i64), smoothing = scalar("label_smoothing", f32);

  void in_tiles() const {
    const HeldRows& tile = *c.tile;
    grid(ceildiv(tile.classes, tile.width()), ceildiv(rows, tile.rows), [&](Index part, Index block) {
      const Expr row = block * tile.rows, first = part * tile.width();
      TileLabels own(tile.rows, tile.classes, labels, row, ignored);
      Fragment given = load(dloss.at(row), {tile.rows}), lse = load(all_lse.at(row), {tile.rows});
      parallel(given, [&](Index i) { given(i) = select(own.factors(i) == 0, 0.f, given(i)); });
      Fragment of_softmax = clone(given);
      if (c.of_lse) {
        Fragment more = load(dlse.at(row), {tile.rows});
        parallel(of_softmax, [&](Index i) { of_softmax(i) += more(i); });
      }
      Fragment x = load(logits.at(row, first), {tile.rows, tile.width()}, f32);
      write_gradients(x, first, lse, own.of, of_softmax, given, smoothing, tile.classes);
      copy(x, dlogits.at(row, first));
    });
  }

  void in_pieces() const {
    Expr count = Expr(classes);
    grid(rows, {.threads = c.rows.threads}, [&](Index row) {
      Expr label = labels(row), counts = i64(label) != ignored;
      check_labels(!counts || (label >= 0 && label < count));
      Expr factor = select(counts, dloss(row), 0.f);
      Expr of_softmax = c.of_lse ? Expr(factor + dlse(row)) : factor;
      RowGradient{all_lse(row), of_softmax, factor * smoothing / f32(count), factor * (1.f - smoothing),
                  label,        true}
          .write(KeptRows(c.rows, 0, {{logits.slice(row)}}), logits.slice(row), dlogits.slice(row));
    });
  }
};

Kernel loss_backward(const LossBackwardInstance& c) {
  return kernel(instance_name("cross_entropy_backward", c), [&] {
    const LossGradient gradient{c};
    c.tile ? gradient.in_tiles() : gradient.in_pieces();
  });
}

const OptionRule share = between(0, 1, "a share from 0 to 1");

template <class Op>
Schema<Op>& with_labels(Schema<Op>& table) {
  return table.in(&Op::labels, "labels", "...", index, "the class of every row, or ignore_index")
      .converts()
      .range("0", "classes");
}
template <class Op>
Schema<Op>& with_options(Schema<Op>& table) {
  return table
      .option(&Op::label_smoothing, "label_smoothing",
              "share of the target that is spread evenly over all classes", share)
      .option(&Op::ignore_index, "ignore_index", "rows with this label have no loss and no gradient")
      .require("logits", "classes >= 1", "1 class or more", "leave the call out")
      .source("PyTorch's cross_entropy; gradients in the same pass as in Hsu et al. 2024, Liger Kernel");
}
template <class Op>
Schema<Op>& with_losses(Schema<Op>& table) {
  return table.out(&Op::loss, "loss", "...", is(f32), "lse - (1 - s) * logit of the label - s * mean(logits)")
      .out(&Op::lse, "lse", "...", is(f32), "log(sum(exp(logits)))");
}

}  // namespace

const OperatorSchema& cross_entropy_schema() {
  using Op = CrossEntropy;
  static const OperatorSchema table =
      Schema<Op>("cross_entropy", "cross-entropy loss of every row of logits")
          .in(&Op::logits, "logits", "... classes", floats, "rows, in their own dtype throughout")
          .with(with_labels<Op>)
          .with(with_options<Op>)
          .with(with_losses<Op>)
          .gradient("cross_entropy_backward")
          .flops("5*rows*classes")
          .examples({{"ragged", "...=11 classes=100"},
                     {"short_bf16", "...=300 classes=12 bf16"},
                     {"odd_bf16", "...=3 classes=4097 bf16"},
                     {"parts_bf16", "...=37 classes=8200 bf16"},
                     {"odd_parts_bf16", "...=3 classes=8193 bf16 label_smoothing=0.1 ignore_index=7"},
                     {"smoothed_f16", "...=2,3 classes=300 f16 label_smoothing=0.1 ignore_index=7"}})
          .measured({{"4096x128256_bf16", "...=4096 classes=128256 bf16"}})
          .maps(row_maps({.width = "classes"}))
          .run(run_loss<Op>, loss_formula<Op>);
  return table;
}

const OperatorSchema& cross_entropy_and_gradient_schema() {
  using Op = CrossEntropyAndGradient;
  static const OperatorSchema table =
      Schema<Op>("cross_entropy_and_gradient",
                 "cross-entropy loss of every row of logits, and its gradient in the same pass")
          .in(&Op::logits, "logits", "... classes", floats, "rows, in their own dtype throughout")
          .with(with_labels<Op>)
          .with(with_options<Op>)
          .option(&Op::gradient_scale, "gradient_scale", "factor of dlogits", finite)
          .with(with_losses<Op>)
          .out(&Op::dlogits, "dlogits", "... classes", same_as("logits"),
               "gradient of gradient_scale * sum(loss)")
          .no_gradient("it returns the gradient itself")
          .flops("10*rows*classes")
          .examples({{"ragged", "...=11 classes=100"},
                     {"1024_bf16", "...=37 classes=1024 bf16"},
                     {"short_bf16", "...=300 classes=12 bf16"},
                     {"odd_bf16", "...=3 classes=4097 bf16"},
                     {"smoothed_bf16",
                      "...=2,3 classes=5000 bf16 label_smoothing=0.1 ignore_index=7 gradient_scale=0.5"}})
          .measured({{"4096x128256_bf16", "...=4096 classes=128256 bf16"}})
          .maps(row_maps({.width = "classes"}))
          .run(run_loss<Op>, loss_formula<Op>);
  return table;
}

const OperatorSchema& cross_entropy_backward_schema() {
  using Op = CrossEntropyBackward;
  static const OperatorSchema table =
      Schema<Op>("cross_entropy_backward", "gradients of cross_entropy")
          .in(&Op::dloss, "dloss", "...", is(f32), "gradient of loss")
          .follows()
          .in(&Op::logits, "logits", "... classes", floats, "rows")
          .with(with_labels<Op>)
          .in(&Op::lse, "lse", "...", is(f32), "log(sum(exp(logits)))")
          .in(&Op::dlse, "dlse", "...", is(f32), "gradient of lse")
          .with(with_options<Op>)
          .out(&Op::dlogits, "dlogits", "... classes", same_as("logits"), "gradient of logits")
          .no_gradient("second derivatives are not computed")
          .flops("6*rows*classes")
          .examples({{"ragged", "...=11 classes=100 dlse"},
                     {"short_bf16", "...=300 classes=8 bf16 dlse"},
                     {"long_ragged_bf16", "...=3 classes=4099 bf16 dlse"},
                     {"few_bf16", "...=3 classes=5000 bf16 dlse"},
                     {"smoothed_bf16", "...=2,3 classes=5000 bf16 label_smoothing=0.1 ignore_index=7"}})
          .measured({{"4096x128256_bf16", "...=4096 classes=128256 bf16"}})
          .maps(row_maps({.width = "classes"}))
          .run(backward_plan, loss_backward, backward_formula);
  return table;
}

}  // namespace tegula::ops
