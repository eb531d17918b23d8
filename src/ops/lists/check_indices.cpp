#include "ops/lists/check_indices.hpp"

#include <limits>

#include "ops/pieces/views.hpp"
#include "ops/schema/arguments.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr int rows_of_block = 64;
constexpr std::int32_t nothing = std::numeric_limits<std::int32_t>::max();

struct CheckKernel {
  bool counts = false, varlen = false;
  bool blocks = false;  // packed sequences with rows of their own, of several queries each
  bool ascending = false;

  bool by_token() const { return varlen && !blocks; }
  auto fields() const {
    return std::tuple(labelled("counts", counts), labelled("varlen", varlen), labelled("blocks", blocks),
                      labelled("ascending", ascending));
  }
};

// The smallest number of a row with a wrong entry, then its details. Arguments: indices, found (the row, the
// entry, its value and the number of blocks), block, keys; then counts, q_begin, k_begin, longest, and
// q_block.
struct Program {
  const CheckKernel& c;
  std::optional<Dim> batch;
  Dim rows{"rows"}, heads{"heads"}, entries{"entries"};
  std::optional<lang::Tensor> indices, found, counts, q_begin, k_begin;
  std::optional<Expr> block, keys, longest, q_block;

  explicit Program(const CheckKernel& instance) : c(instance) {
    if (!c.by_token()) batch.emplace("batch");
    const Extents of_rows = joined(c.by_token() ? Extents{} : Extents{*batch}, {rows, heads});
    indices.emplace(input("indices", joined(of_rows, {entries}), i32));
    found.emplace(inout("found", {4}, i32));
    block.emplace(scalar("block", i32));
    keys.emplace(scalar("keys", i32));
    if (c.counts) counts.emplace(input("counts", of_rows, i32));
    if (!c.varlen) return;
    Dim fences("fences");
    q_begin.emplace(input("q_begin", {fences}, i32));
    k_begin.emplace(input("k_begin", {fences}, i32));
    longest.emplace(scalar("longest", i32));
    if (c.blocks) q_block.emplace(scalar("q_block", i32));
  }

  Expr length_of(const lang::Tensor& of_counts, const Expr& row) const {
    return clamp(of_counts(row), 0, entries);
  }
  SequenceRows rows_of(const Expr& b) const {
    if (!c.varlen) return {b, rows, *keys};
    const SequenceRows tokens(b, *q_begin, *k_begin);
    if (!c.blocks) return tokens;
    Expr own_rows = ceildiv(tokens.queries.end - tokens.queries.begin, *q_block);
    return {b, range(0, min(own_rows, rows)), tokens.keys};
  }
  Expr first_row(const SequenceRows& of) const { return c.by_token() ? Expr(of.queries.begin) : of.b * rows; }
  Expr blocks_of(const SequenceRows& of) const { return ceildiv(of.keys.end - of.keys.begin, *block); }

  // Calls `wrong` with every entry of a row that counts and should not be there.
  template <class F>
  void each_wrong(const SequenceRows& of, const Expr& h, const Expr& row, F wrong) const {
    auto own = [&](const lang::Tensor& t) {
      return c.by_token() ? t.slice(of.queries, h) : t.slice(of.b, of.queries, h);
    };
    Expr blocks = blocks_of(of), length = c.counts ? length_of(own(*counts), row) : Expr(entries);
    lang::Tensor list = own(*indices).slice(row);
    serial(length, [&](Index n) {
      Expr entry = list(n);
      Expr least = c.ascending ? select(n > 0, list(max(n - 1, 0)) + 1, 0) : Expr(Operand(-1));
      when(entry < least || entry >= blocks, [&] { wrong(n, entry); });
    });
  }

  void run() const {
    Expr most = c.by_token() ? *longest : c.blocks ? ceildiv(*longest, *q_block) : Expr(rows);
    Expr sequences = c.by_token() ? q_begin->extent(0) - 1 : Expr(*batch);
    grid(ceildiv(most, rows_of_block), heads, sequences, [&](Index x, Index h, Index b) {
      SequenceRows of = rows_of(b);
      parallel(rows_of_block, [&](Index r) {
        Expr row = x * rows_of_block + r;
        when(row < of.queries.end - of.queries.begin, [&] {
          each_wrong(of, h, row, [&](const Expr&, const Expr&) {
            atomic_min((*found)(0), (first_row(of) + row) * heads + h);
          });
        });
      });
    });
    grid(1, [&](Index) { describe(sequences); });
  }

  // The details of the row that was found.
  void describe(const Expr& sequences) const {
    Expr at = (*found)(0);
    exit_if(at == nothing);
    Expr token = at / heads;
    serial(sequences, [&](Index b) {
      SequenceRows of = rows_of(b);
      Expr first = first_row(of);
      when(token >= first && token < first + (of.queries.end - of.queries.begin), [&] {
        Var missing = true;
        each_wrong(of, at % heads, token - first, [&](const Expr& n, const Expr& entry) {
          when(missing, [&] {
            (*found)(1) = n;
            (*found)(2) = entry;
            (*found)(3) = blocks_of(of);
            missing = false;
          });
        });
      });
    });
  }
};

lang::Kernel check_kernel(const CheckKernel& instance) {
  return kernel(instance_name("check_indices", instance), [&] { Program(instance).run(); });
}

// The position as the caller counts.
std::string position(const IndexCheck& check, std::int64_t row, std::int64_t entry) {
  const std::int64_t heads = check.indices.size(-2), rows = check.indices.size(-3);
  const std::int64_t head = row % heads, token = row / heads;
  if (check.indices.rank() == 3) return describe(Shape{token, head, entry});
  return check.heads_first ? describe(Shape{token / rows, head, token % rows, entry})
                           : describe(Shape{token / rows, token % rows, head, entry});
}

}  // namespace

void check_indices(const IndexCheck& check, Launch& launch) {
  if (!launch.runs() || nelements(check.indices) == 0) return;
  const Arguments args(launch.call().schema().name);
  const std::int64_t rows = nelements(check.indices) / check.indices.size(-1);
  if (rows >= nothing)
    args.refuse(check.name, "fewer than 2^31 rows", tegula::describe(check.indices), "split the batch");
  const bool packed = launch.call().has("cu_seqlens_q");
  const tegula::Tensor found = tegula::Tensor::full({4}, i32, nothing).to(check.indices.device);
  launch(CheckKernel{check.counts.has_value(), packed, packed && check.q_block > 0, check.ascending},
         check_kernel,
         {{"indices", check.indices},
          {"found", found},
          {"block", check.block},
          {"keys", check.keys},
          {"counts", check.counts.value_or(TensorRef())},
          {"q_begin", check.q_begin},
          {"k_begin", check.k_begin},
          {"longest", check.longest},
          {"q_block", check.q_block}});
  const std::vector<std::int32_t> result = found.values<std::int32_t>();
  if (result[0] == nothing) return;
  const char* expected = check.ascending ? "ascending numbers" : "-1 or a number";
  args.refuse(check.name, fmt::format("{} below {}, that of the blocks of keys", expected, result[3]),
              fmt::format("{} at {}", result[2], position(check, result[0], result[1])),
              check.ascending
                  ? "correct the selection, or promise nothing of its order"
                  : "correct the selection, or leave check_indices out: such entries select nothing");
}

}  // namespace tegula::ops
