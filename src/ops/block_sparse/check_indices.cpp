#include "ops/block_sparse/check_indices.hpp"

#include <limits>

#include "ops/attention/views.hpp"
#include "ops/common/functions.hpp"

namespace tegula::ops {

namespace {

using namespace lang;

constexpr int rows_of_block = 64;
constexpr std::int32_t nothing = std::numeric_limits<std::int32_t>::max();

struct CheckKernel {
  bool counts = false, varlen = false;
  std::string name() const {
    return fmt::format("check_indices{}{}", counts ? "_counts" : "", varlen ? "_varlen" : "");
  }
};

// The smallest number of a row with a wrong entry, then its details. Arguments: indices, found (the row, the
// entry, its value and the number of blocks), block, keys; then counts, and q_begin, k_begin, longest.
struct Program {
  const CheckKernel& c;
  std::optional<Dim> batch;
  Dim rows{"rows"}, heads{"heads"}, entries{"entries"};
  std::optional<lang::Tensor> indices, found, counts, q_begin, k_begin;
  std::optional<Expr> block, keys, longest;

  explicit Program(const CheckKernel& instance) : c(instance) {
    if (!c.varlen) batch.emplace("batch");
    const Extents of_rows = joined(c.varlen ? Extents{} : Extents{*batch}, {rows, heads});
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
  }

  Expr length_of(const lang::Tensor& of_counts, const Expr& row) const {
    return clamp(of_counts(row), 0, entries);
  }
  SequenceRows rows_of(const Expr& b) const {
    return c.varlen ? SequenceRows(b, *q_begin, *k_begin) : SequenceRows(b, rows, *keys);
  }
  Expr blocks_of(const SequenceRows& of) const { return ceildiv(of.keys.end - of.keys.begin, *block); }

  // Calls `wrong` with every entry of a row that counts and should not be there.
  template <class F>
  void each_wrong(const SequenceRows& of, const Expr& h, const Expr& row, F wrong) const {
    auto part = [&](const lang::Tensor& t) {
      return c.varlen ? t.slice(of.queries, h) : t.slice(of.b, of.queries, h);
    };
    Expr blocks = blocks_of(of), length = c.counts ? length_of(part(*counts), row) : Expr(entries);
    lang::Tensor list = part(*indices).slice(row);
    serial(length, [&](Index n) {
      Expr entry = list(n);
      when(entry < -1 || entry >= blocks, [&] { wrong(n, entry); });
    });
  }

  void run() const {
    Expr most = c.varlen ? *longest : Expr(rows);
    Expr sequences = c.varlen ? q_begin->extent(0) - 1 : Expr(*batch);
    grid(ceildiv(most, rows_of_block), heads, sequences, [&](Index x, Index h, Index b) {
      SequenceRows of = rows_of(b);
      Expr first_row = c.varlen ? Expr(of.queries.begin) : b * rows;
      parallel(rows_of_block, [&](Index r) {
        Expr row = x * rows_of_block + r;
        when(row < of.queries.end - of.queries.begin, [&] {
          each_wrong(of, h, row, [&](const Expr&, const Expr&) {
            atomic_min((*found)(0), (first_row + row) * heads + h);
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
      Expr first = c.varlen ? Expr(of.queries.begin) : b * rows;
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
  return kernel(instance.name(), [&] { Program(instance).run(); });
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

void check_indices(const Arguments& args, const IndexCheck& check, tegula::Target target) {
  if (nelements(check.indices) == 0) return;
  const std::int64_t rows = nelements(check.indices) / check.indices.size(-1);
  args.check(rows < nothing, check.name, "fewer than 2^31 rows", check.indices, "split the batch");
  const CheckKernel kernel{check.counts.has_value(), check.q_begin.has_value()};
  const Device& device = check.indices.device;
  const tegula::Tensor found = tegula::Tensor::full({4}, i32, nothing).to(device);
  std::vector<Argument> values{check.indices, found, check.block, check.keys};
  if (check.counts) values.push_back(*check.counts);
  if (check.q_begin) {
    values.push_back(*check.q_begin);
    values.push_back(*check.k_begin);
    values.push_back(check.longest);
  }
  compiled(kernel, target_for(target, device), check_kernel).call_in_order(values);
  const std::vector<std::int32_t> result = found.values<std::int32_t>();
  args.check(result[0] == nothing, check.name,
             worded("-1 or a number below {}, that of the blocks of keys", result[3]),
             worded("{} at {}", result[2], position(check, result[0], result[1])),
             "correct the selection, or leave check_indices out: such entries select nothing");
}

}  // namespace tegula::ops
