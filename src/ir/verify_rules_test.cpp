// Broken kernels for the rules that verify_test.cpp and verify_statements_test.cpp leave, and a search for
// rules that none breaks.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>

#include "ir/testing/kernels.hpp"

namespace tegula::ir {
namespace {

using namespace testing;

// ---- expressions
Expr f(double value) { return constant(f32, value); }
// As given, also where `make` would refuse it.
Expr op(Op o, DType type, std::vector<Expr> args) {
  ExprNode node{o, type, 1, Loc::current(), std::move(args), nullptr};
  return std::make_shared<const ExprNode>(std::move(node));
}
Expr wrong_constant() {
  ExprNode node = *int32(0);
  node.integer = std::int64_t{1} << 40;
  return std::make_shared<const ExprNode>(node);
}
Expr misnamed(const VariablePtr& v) {
  ExprNode node = *variable(v);
  node.type = f32;
  return std::make_shared<const ExprNode>(node);
}

const struct {
  const char* rule;
  Expr (*value)();
} expressions[] = {
    {"as many operands as it needs", [] { return op(Op::add, i32, {int32(1)}); }},
    {"no operand is missing",
     [] {
       return op(Op::add, i32, {int32(1), nullptr});
     }},
    {"values exist in f32, f64, i32, i64, u32 and bool",
     [] {
       return op(Op::add, f16, {f(1), f(2)});
     }},
    {"a constant fits its type", [] { return wrong_constant(); }},
    {"a variable has its own type", [] { return misnamed(named("v")); }},
    {"arithmetic is on numbers",
     [] {
       return op(Op::add, boolean, {truth(true), truth(true)});
     }},
    {"operations on bits are on integers",
     [] {
       return op(Op::bit_and, f32, {f(1), f(1)});
     }},
    {"mul_high is of u32",
     [] {
       return op(Op::mul_high, i32, {int32(1), int32(1)});
     }},
    {"order is between numbers",
     [] {
       return op(Op::lt, boolean, {truth(true), truth(true)});
     }},
    {"a comparison is a bool",
     [] {
       return op(Op::eq, i32, {int32(1), int32(1)});
     }},
    {"operands of logical operations are bools",
     [] {
       return op(Op::logical_and, boolean, {int32(1), int32(1)});
     }},
    {"isnan is of a float", [] { return op(Op::isnan, boolean, {int32(1)}); }},
    {"select decides by a bool",
     [] {
       return op(Op::select, i32, {int32(1), int32(1), int32(1)});
     }},
    {"the arms of select have the type",
     [] {
       return op(Op::select, i32, {truth(true), f(1), int32(1)});
     }},
    {"bitcast is between types of one width", [] { return op(Op::bitcast, i64, {f(1)}); }},
    {"elementary functions are of floats", [] { return op(Op::exp, i32, {int32(1)}); }},
};

TEST(VerifyRules, OfExpressions) {
  for (auto& c : expressions) {
    const Material p;
    expect_broken(p.kernel({st(Print{"", c.value()})}), c.rule);
  }
}

// ---- signatures and grids

GridHints& heavy_first(Kernel& k) {
  GridHints& hints = k.grids[0].hints;
  hints.order = GridOrder::heavy_first, hints.cost = int32(1);
  return hints;
}

const struct {
  const char* rule;
  void (*spoil)(Kernel& kernel, const Material& p);
} signatures[] = {
    {"a parameter is a dim or a scalar",
     [](auto& k, auto& p) {
       k.parameters.push_back({nullptr, p.v});
     }},
    {"a parameter is a tensor or a scalar",
     [](auto& k, auto&) {
       k.parameters.push_back({nullptr, nullptr});
     }},
    {"an extent of a tensor depends on dims and scalars",
     [](auto& k, auto& p) { k.workspaces.push_back(tensor("W", f32, {p.I}, Role::workspace)); }},
    {"extents are i32 or i64",
     [](auto& k, auto& p) { k.workspaces.push_back(tensor("W", f32, {p.one}, Role::workspace)); }},
    {"tensors are in global memory",
     [](auto& k, auto&) {
       Buffer strange = *tile("t", Space::shared, f32, {8});
       strange.role = Role::workspace;
       k.grids[0].body = {st(Declare{std::make_shared<const Buffer>(strange)})};
     }},
    {"only tensors that are written are cleared",
     [](auto& k, auto& p) {
       Buffer cleared = *p.A;
       cleared.zero = true;
       k.parameters.push_back({std::make_shared<const Buffer>(cleared), nullptr});
     }},
    {"extents of tiles are constant and positive",
     [](auto& k, auto& p) { k.grids[0].body = {p.declare(tile("t", Space::shared, f32, {0}))}; }},
    {"a grid has one to three indices", [](auto& k, auto&) { k.grids[0].index.clear(); }},
    {"a grid has an extent for each index", [](auto& k, auto&) { k.grids[0].extents.clear(); }},
    {"a grid defines indices of type i32", [](auto& k, auto& p) { k.grids[0].index = {p.v}; }},
    {"extents of a grid are i32 or i64", [](auto& k, auto& p) { k.grids[0].extents = {p.one}; }},
    {"grid options are in their ranges", [](auto& k, auto&) { k.grids[0].hints.cluster = 0; }},
    {"only heavy_first has blocks that begin together",
     [](auto& k, auto&) { k.grids[0].hints.together = int32(2); }},
    {"the number of blocks that begin together is i32 or i64",
     [](auto& k, auto& p) { heavy_first(k).together = p.one; }},
    {"a cost is a number", [](auto& k, auto& p) { heavy_first(k).cost = p.yes; }},
    {"a statement is missing", [](auto& k, auto&) { k.grids[0].body = {nullptr}; }},
};

TEST(VerifyRules, OfSignaturesAndGrids) {
  for (auto& c : signatures) {
    const Material p;
    Kernel kernel = p.kernel({});
    c.spoil(kernel, p);
    expect_broken(kernel, c.rule);
  }
}

// ---- completeness

std::vector<std::string> literals_of(const std::string& file) {
  std::ifstream stream(std::string(TEGULA_SOURCE "/src/ir/") + file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const std::regex literal("\"([^\"\\n]+)\"");
  std::vector<std::string> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), literal); at != std::sregex_iterator(); ++at)
    found.push_back((*at)[1]);
  return found;
}

// Rules are sentences; what else stands between quotes in these files is shorter, or has braces.
bool is_rule(const std::string& text) {
  return std::count(text.begin(), text.end(), ' ') >= 2 && text.find('{') == std::string::npos &&
         text[0] != ' ' && text != "a statement that cannot be printed";
}

TEST(VerifyRules, NoneIsWithoutATest) {
  std::vector<std::string> tested = literals_of("verify_test.cpp");
  for (auto* file : {"verify_rules_test.cpp", "verify_statements_test.cpp"})
    for (auto& text : literals_of(file)) tested.push_back(text);
  int rules = 0;
  for (auto* file : {"verify.cpp", "spec.cpp", "spec_expr.cpp"})
    for (auto& rule : literals_of(file)) {
      if (!is_rule(rule)) continue;
      ++rules;
      const bool found = std::any_of(tested.begin(), tested.end(), [&](auto& text) {
        return text.size() > 6 &&
               (rule.find(text) != std::string::npos || text.find(rule) != std::string::npos);
      });
      EXPECT_TRUE(found) << file << ": " << rule;
    }
  EXPECT_GT(rules, 80);
}

}  // namespace
}  // namespace tegula::ir
