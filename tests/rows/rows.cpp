#include "tests/rows/rows.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

namespace tegula::rows {
namespace {

struct Known {
  Suite suite;
  std::vector<Test> tests;
  std::vector<Table> tables;
};

// In the order in which they are mentioned first; made when the first is.
std::vector<Known>& all() {
  static std::vector<Known> known;
  return known;
}

Known& known(const Suite& suite) {
  const auto found = std::find_if(all().begin(), all().end(),
                                  [&](const Known& other) { return other.suite.id == suite.id; });
  return found != all().end() ? *found : all().emplace_back(Known{suite, {}, {}});
}

bool is_valid(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

class Registering final : public Visitor {
 public:
  Registering(const Suite& suite, const Test& test, const Table& table)
      : suite_(suite), test_(test), name_(std::string(table.prefix) + "/" + suite.name) {}

  void visit(const void* row, const std::string& name, const std::string& printed) override {
    GTEST_CHECK_(is_valid(name) && names_.insert(name).second)
        << "row '" << name << "' of " << name_ << " (" << suite_.place.file
        << "): names are of letters, digits and _, and no two rows of a table have the same";
    ::testing::internal::MakeAndRegisterTestInfo(
        name_.c_str(), (std::string(test_.name) + "/" + name).c_str(), nullptr, printed.c_str(), suite_.place,
        suite_.id, test_.set_up, test_.tear_down, test_.make(row));
  }

  bool has_rows() const { return !names_.empty(); }

 private:
  const Suite& suite_;
  const Test& test_;
  std::string name_;
  std::set<std::string> names_;
};

}  // namespace

int add(const Suite& suite, const Test& test) {
  known(suite).tests.push_back(test);
  return 0;
}

int add(const Suite& suite, const Table& table) {
  known(suite).tables.push_back(table);
  return 0;
}

void register_tests() {
  for (const Known& of : all()) {
    bool has_rows = false;
    for (const Test& test : of.tests)
      for (const Table& table : of.tables) {
        Registering registering(of.suite, test, table);
        table.each_row(registering);
        has_rows |= registering.has_rows();
      }
    // Fails for a table without tests or rows.
    if (!has_rows)
      ::testing::internal::InsertSyntheticTestCase(of.suite.name, of.suite.place, !of.tests.empty());
  }
}

}  // namespace tegula::rows
