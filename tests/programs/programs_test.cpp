// Every program at small sizes on the interpreter, the CPU and the emulated Hopper, beside its formula.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/programs/program.hpp"

namespace programs {
namespace {

Data before(const Wanted& wanted) {
  if (wanted.before) return wanted.before->clone();
  return Data::full(wanted.exact.shape, wanted.type, wanted.type.is_floating() ? NAN : 77);
}

// Elements for which NaN is wanted hold what they held before.
void expect_close(const Wanted& wanted, const Data& got) {
  double largest = 0;
  for (const double x : wanted.exact.values)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  const auto values = got.values<double>(), old = before(wanted).values<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double exact = std::isnan(wanted.exact.values[i]) ? old[i] : wanted.exact.values[i];
    if (values[i] == exact || (std::isnan(values[i]) && std::isnan(exact))) continue;
    ASSERT_LE(std::abs(values[i] - exact), wanted.tolerance * largest)
        << "element " << i << " of " << values.size() << " is " << values[i] << " instead of " << exact;
  }
}

void expect_right(const Prepared& call, tegula::Target target) {
  SCOPED_TRACE(std::string(target.name()));
  std::vector<tegula::Argument> arguments;
  std::vector<std::pair<const Wanted*, Data>> outputs;
  for (const Value& value : call.values) {
    if (const auto* wanted = std::get_if<Wanted>(&value)) {
      outputs.emplace_back(wanted, before(*wanted));
      arguments.emplace_back(outputs.back().second);
    } else {
      std::visit(
          [&](const auto& own) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(own)>, Wanted>) arguments.emplace_back(own);
          },
          value);
    }
  }
  tegula::compile(call.kernel, target).call_in_order(arguments);
  for (const auto& [wanted, got] : outputs) {
    SCOPED_TRACE("output " + std::to_string(&wanted - &outputs.front().first));
    expect_close(*wanted, got);
  }
}

struct Row {
  std::string name;
  Call call;

  friend std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }
};

std::vector<Row> rows() {
  std::vector<Row> result;
  for (const Program& program : all_programs()) {
    for (const Call& call : program.calls) {
      std::string name = program.family + "_" + program.name + (call.name.empty() ? "" : "_" + call.name);
      std::ranges::replace_if(
          name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
      result.push_back({std::move(name), call});
    }
  }
  return result;
}

class Programs : public ::testing::TestWithParam<Row> {};

TEST_P(Programs, AgreeWithTheirFormula) {
  const Prepared call = GetParam().call.prepare();
  for (const tegula::Target target :
       {tegula::Target::interpreter(), tegula::Target::cpu(), tegula::Target::emulated_sm90()})
    expect_right(call, target);
}

INSTANTIATE_TEST_SUITE_P(Rows, Programs, ::testing::ValuesIn(rows()),
                         [](const auto& info) { return info.param.name; });

TEST(ProgramList, HasDifferentNamesCallsAndForms) {
  std::set<std::string> names;
  for (const Program& program : all_programs()) {
    EXPECT_TRUE(names.insert(program.name).second) << program.name;
    EXPECT_FALSE(program.calls.empty() || program.forms.empty() || program.computes.empty()) << program.name;
  }
}

// scripts/programs-table writes it.
TEST(ProgramList, IsInTheTableOfThePage) {
  std::ifstream file(TEGULA_SOURCE "/docs/programs.md");
  std::stringstream page;
  page << file.rdbuf();
  for (const Program& program : all_programs())
    EXPECT_NE(page.str().find("`" + program.name + "`"), std::string::npos) << program.name;
}

}  // namespace
}  // namespace programs
