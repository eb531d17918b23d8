#include "codegen/fetch_ahead.hpp"

#include <algorithm>
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

std::optional<FetchAhead> fetch(const Body& slice, const Substitution& by) {
  Body statements = fresh_copy(substitute(slice, by));
  const Copy copy = *as<Copy>(statements.back());
  statements.pop_back();
  return FetchAhead{std::move(statements), copy.from, copy.to.extent(0), copy.to.extent(1), nullptr};
}

}  // namespace

bool is_fetchable(const Copy& copy) {
  return !copy.from.is_tile() && copy.to.is_tile() && copy.to.rank() == 2 &&
         copy.to.extent(0) * copy.to.extent(1) * held_bytes(copy.to.buffer->type) <= most_fetched_bytes;
}

FetchesAhead fetches_ahead(const For& loop) {
  FetchesAhead result;
  std::vector<std::size_t> products;
  for (std::size_t i = 0; i < loop.body.size(); ++i)
    if (as<Gemm>(loop.body[i]) != nullptr) products.push_back(i);
  if (loop.kind != LoopKind::pipelined || products.empty()) return result;
  const Expr index = variable(loop.index[0]), end = loop.end[0];
  const Expr next = make(Op::add, i32, {index, int32(1)}, index->at);
  const Expr last = make(Op::sub, i32, {end, int32(1)}, index->at);
  for (std::size_t i = 0; i < loop.body.size(); ++i) {
    const auto* copy = as<Copy>(loop.body[i]);
    if (copy == nullptr || !is_fetchable(*copy)) continue;
    const auto behind = std::lower_bound(products.begin(), products.end(), i);
    const bool wraps = behind == products.begin();
    const std::size_t product = wraps ? products.back() : *(behind - 1);
    const auto slice = Slice(loop.body, wraps ? 0 : product, i).statements();
    if (!slice || result.contains(loop.body[product].get())) continue;
    auto found = wraps ? fetch(*slice, {{loop.index[0], make(Op::min, i32, {next, last}, index->at)}})
                       : fetch(*slice, {});
    if (wraps) found->more = make(Op::lt, boolean, {next, end}, index->at);
    result.emplace(loop.body[product].get(), std::move(*found));
  }
  return result;
}

std::optional<FetchAhead> result_of(const Body& body) {
  std::optional<FetchAhead> result;
  for (const Stmt& stmt : body) {
    const auto* copy = as<Copy>(stmt);
    if (copy == nullptr || copy->to.is_tile() || !copy->from.is_tile() || copy->from.rank() != 2) continue;
    const std::int64_t rows = copy->from.extent(0), columns = copy->from.extent(1);
    if (result && rows * columns <= result->rows * result->columns) continue;
    result = FetchAhead{{}, copy->to, rows, columns, nullptr};
  }
  return result;
}

}  // namespace tegula::codegen
