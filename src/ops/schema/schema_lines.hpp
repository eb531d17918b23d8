// What the lines of a table add to it, independent of the operator's struct; schema.hpp selects the member of
// a line.
#pragma once
#include "ops/schema/exact.hpp"
#include "ops/schema/launch.hpp"

namespace tegula::ops {

class SchemaLines {
 protected:
  SchemaLines(const char* name, const char* doc) { table_.name = name, table_.doc = doc; }

  struct Place {
    std::size_t offset;
    bool is_optional;
  };
  void add_input(Place member, const char* name, const std::string& dims, TypeRule type, const char* meaning);
  void add_output(Place member, const char* name, const std::string& dims, TypeRule type,
                  const char* meaning);
  // `fallback` is the struct without arguments.
  void add_option(OptionSpec option, const char* name, const char* meaning, OptionRule rule,
                  const void* fallback);
  void add_matrix();
  void add_range(const char* low, const char* end);
  void add_value(const char* name, const char* value);
  void add_rule(const char* argument, const char* condition, const char* expected, const char* remedy);
  void add_rule(const char* argument, std::function<bool(const BoundCall&)> holds, const char* expected,
                const char* remedy);
  OperatorSchema finished(decltype(OperatorSchema::run) run, decltype(OperatorSchema::formula) formula);

  TensorSpec& last() { return table_.tensors.back(); }

  OperatorSchema table_;

 private:
  TensorSpec& add(Place member, const char* name, const std::string& dims, TypeRule type,
                  const char* meaning);
};

}  // namespace tegula::ops
