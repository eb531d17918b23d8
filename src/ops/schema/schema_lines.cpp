#include "ops/schema/schema_lines.hpp"

namespace tegula::ops {

TensorSpec& SchemaLines::add(Place member, const char* name, const std::string& dims, TypeRule type,
                             const char* meaning) {
  TensorSpec spec;
  spec.name = name, spec.dims = dims, spec.meaning = meaning, spec.type = std::move(type);
  spec.lists = parse_dims(dims);
  spec.holds_optional = member.is_optional, spec.offset = member.offset;
  table_.tensors.push_back(std::move(spec));
  return last();
}

void SchemaLines::add_input(Place member, const char* name, const std::string& dims, TypeRule type,
                            const char* meaning) {
  add(member, name, dims, std::move(type), meaning).optional = member.is_optional;
  ++table_.inputs;
}

void SchemaLines::add_output(Place member, const char* name, const std::string& dims, TypeRule type,
                             const char* meaning) {
  add(member, name, dims, std::move(type), meaning).output = true;
}

void SchemaLines::add_option(OptionSpec option, const char* name, const char* meaning, OptionRule rule,
                             const void* fallback) {
  option.name = name, option.meaning = meaning, option.rule = std::move(rule);
  option.fallback = option.get(fallback);
  table_.options.push_back(std::move(option));
}

void SchemaLines::add_matrix() {
  add_rule(
      last().name.c_str(),
      [name = last().name](const BoundCall& call) {
        const TensorRef& t = call[name];
        return has_unit_stride(t, -1) || has_unit_stride(t, -2);
      },
      "a matrix with stride 1 along rows or columns", "pass a contiguous copy");
}

void SchemaLines::add_range(const char* low, const char* end) {
  last().low = Expression::parse(low), last().end = Expression::parse(end);
}

void SchemaLines::add_value(const char* name, const char* value) {
  table_.derived.push_back({name, Expression::parse(value)});
}

void SchemaLines::add_rule(const char* argument, const char* condition, const char* expected,
                           const char* remedy) {
  table_.requirements.push_back({argument, Expression::parse(condition), {}, expected, remedy});
}

void SchemaLines::add_rule(const char* argument, std::function<bool(const BoundCall&)> holds,
                           const char* expected, const char* remedy) {
  table_.requirements.push_back({argument, {}, std::move(holds), expected, remedy});
}

OperatorSchema SchemaLines::finished(decltype(OperatorSchema::run) run,
                                     decltype(OperatorSchema::formula) formula) {
  table_.run = std::move(run), table_.formula = std::move(formula);
  table_.complete();
  return std::move(table_);
}

}  // namespace tegula::ops
