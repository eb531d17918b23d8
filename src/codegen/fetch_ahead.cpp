#include "codegen/fetch_ahead.hpp"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "codegen/tiles.hpp"
#include "ir/effects.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// The statements of body[begin, end) that define what the last one reads by its address, and the last one;
// nothing if that is more than constants and elements that the loop leaves alone.
class Slice {
 public:
  Slice(const Body& body, std::size_t begin, std::size_t end) : changes_(all_effects(body)) {
    need(body[end]);
    statements_.push_back(body[end]);
    for (std::size_t i = end; i-- > begin;) take(body[i]);
    std::reverse(statements_.begin(), statements_.end());
  }

  std::optional<Body> statements() const {
    return possible_ ? std::optional<Body>(statements_) : std::nullopt;
  }

 private:
  void need(const Expr& e) {
    for_each_variable(e, [&](const VariablePtr& v) {
      needed_.insert(v);
      possible_ &= v->kind != VariableKind::mutable_;
    });
  }
  void need(const View& view) {
    for_each_expr(view, [&](const Expr& e) { need(e); });
  }
  void need(const Stmt& stmt) {
    if (const auto* copy = as<Copy>(stmt)) return need(copy->from);
    if (const auto* let = as<Let>(stmt)) return need(let->value);
    const auto* load = as<Load>(stmt);
    if (load == nullptr || changes_.writes(load->from.view.buffer)) {
      possible_ = false;
      return;
    }
    need(load->from.view);
    for (const Expr& e : load->from.index) need(e);
  }
  void take(const Stmt& stmt) {
    bool wanted = false;
    for_each_definition(stmt, [&](const VariablePtr& v) { wanted |= needed_.contains(v); });
    if (!wanted) return;
    need(stmt);
    statements_.push_back(stmt);
  }

  Effects changes_;
  std::unordered_set<VariablePtr> needed_;
  Body statements_;
  bool possible_ = true;
};

FetchAhead fetch(const Body& slice, const Substitution& by, const Expr& step) {
  const Stmt& made = slice.back();
  Body statements = fresh_copy(substitute(slice, by));
  const Copy copy = *as<Copy>(statements.back());
  statements.pop_back();
  return {std::move(statements), copy.from, copy.to.extent(0), copy.to.extent(1), made, step, nullptr};
}

// Of as many rows, a product takes so long for each line of an operand that it fetches larger ones, too.
constexpr std::int64_t many_rows = 64, most_bytes_of_many_rows = 256 * 1024;

bool brings_matrix(const Copy& copy) {
  return !copy.from.is_tile() && copy.to.is_tile() && copy.to.rank() == 2;
}
bool has_time_for(const Gemm& product, const Copy& copy) {
  if (is_fetchable(copy)) return true;
  if (!brings_matrix(copy) || product.c.extent(0) < many_rows) return false;
  return copy.to.extent(0) * copy.to.extent(1) * copy.from.buffer->type.bits() <= 8 * most_bytes_of_many_rows;
}

// A product fetches for one copy: the last in front of it that has time, else, for the next iteration, the
// last of all.
class Fetches {
 public:
  Fetches(const For& loop, const std::vector<std::size_t>& products)
      : loop_(loop), products_(products.rbegin(), products.rend()) {}

  void add(std::size_t copy) {
    const auto in_front = std::find_if(products_.begin(), products_.end(), [&](std::size_t product) {
      return product < copy && is_free(product, copy);
    });
    if (in_front != products_.end()) {
      if (const auto slice = Slice(loop_.body, *in_front, copy).statements())
        put(*in_front, fetch(*slice, {}, variable(loop_.index[0])));
      return;
    }
    const auto any =
        std::find_if(products_.begin(), products_.end(), [&](std::size_t p) { return is_free(p, copy); });
    const auto slice = Slice(loop_.body, 0, copy).statements();
    if (any != products_.end() && slice) put(*any, fetch_for_next(*slice));
  }
  FetchesAhead take() { return std::move(result_); }

 private:
  bool is_free(std::size_t product, std::size_t copy) const {
    const Stmt& stmt = loop_.body[product];
    return !result_.contains(stmt.get()) && has_time_for(*as<Gemm>(stmt), *as<Copy>(loop_.body[copy]));
  }
  void put(std::size_t product, FetchAhead fetch) {
    result_.emplace(loop_.body[product].get(), std::move(fetch));
  }
  FetchAhead fetch_for_next(const Body& slice) {
    const Expr index = variable(loop_.index[0]), end = loop_.end[0];
    const Expr next = make(Op::add, i32, {index, int32(1)}, index->at);
    const Expr last = make(Op::sub, i32, {end, int32(1)}, index->at);
    const Expr step = make(Op::min, i32, {next, last}, index->at);
    FetchAhead result = fetch(slice, {{loop_.index[0], step}}, step);
    result.more = make(Op::lt, boolean, {next, end}, index->at);
    result.place = for_next_++;
    return result;
  }

  const For& loop_;
  std::vector<std::size_t> products_;  // the last first
  FetchesAhead result_;
  std::size_t for_next_ = 0;
};

}  // namespace

bool is_fetchable(const Copy& copy) {
  return brings_matrix(copy) &&
         copy.to.extent(0) * copy.to.extent(1) * held_bytes(copy.to.buffer->type) <= most_fetched_bytes;
}

FetchesAhead fetches_ahead(const For& loop) {
  std::vector<std::size_t> products;
  for (std::size_t i = 0; i < loop.body.size(); ++i)
    if (as<Gemm>(loop.body[i]) != nullptr) products.push_back(i);
  if (loop.kind != LoopKind::pipelined || products.empty()) return {};
  Fetches fetches(loop, products);
  for (std::size_t i = 0; i < loop.body.size(); ++i) {
    const auto* copy = as<Copy>(loop.body[i]);
    if (copy != nullptr) fetches.add(i);
  }
  return fetches.take();
}

std::vector<FetchAhead> results_of(const Body& body) {
  std::vector<FetchAhead> results;
  for (const Stmt& stmt : body) {
    const auto* copy = as<Copy>(stmt);
    if (copy == nullptr || copy->to.is_tile() || !copy->from.is_tile() || copy->from.rank() != 2) continue;
    results.push_back({{}, copy->to, copy->from.extent(0), copy->from.extent(1)});
  }
  std::stable_sort(results.begin(), results.end(), [](const FetchAhead& a, const FetchAhead& b) {
    return a.rows * a.columns > b.rows * b.columns;
  });
  return results;
}

}  // namespace tegula::codegen
