#include "tests/programs/timing.hpp"

#include <algorithm>

#include "runtime/call/binding.hpp"
#include "tegula/error.hpp"

namespace programs {
namespace {

// Tensors at addresses that nothing else has; nobody reads them.
class MadeUp {
 public:
  tegula::Argument operator()(const Random& random) {
    if (random.row == 0) return at_next(random.shape, random.type);
    Shape shape = random.shape;
    shape.back() = random.row;
    return at_next(shape, random.type).slice(static_cast<int>(shape.size()) - 1, 0, random.shape.back());
  }
  tegula::Argument operator()(const Result& result) { return at_next(result.shape, result.type); }
  tegula::Argument operator()(const Data& data) { return at_next(data.shape(), data.dtype()); }
  tegula::Argument operator()(double x) { return x; }
  tegula::Argument operator()(int x) { return x; }

 private:
  tegula::TensorRef at_next(const Shape& shape, DType type) {
    const std::int64_t bytes = tegula::nelements(shape) * type.bytes(), unit = 4096;
    next_ += (bytes + unit) / unit * unit;
    return {reinterpret_cast<void*>(next_ - (bytes + unit) / unit * unit), type, shape};
  }
  std::int64_t next_ = std::int64_t{1} << 32;
};

bool is_meant(const Timing& timing, const Form& form) {
  return timing.forms.empty() || std::ranges::any_of(timing.forms, [&](const std::string& begin) {
           return form.name.starts_with(begin);
         });
}

}  // namespace

std::vector<Timing> all_timings() {
  std::vector<Timing> all;
  for (const auto& list : {linear_timings(), product_timings(), decode_timings()})
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::string TimedCase::name() const { return timing.program + ", " + form.name + ", " + timing.shape; }

std::vector<TimedCase> timed_cases() {
  const std::vector<Program> list = all_programs();
  std::vector<TimedCase> cases;
  for (const Timing& timing : all_timings()) {
    const auto program =
        std::ranges::find_if(list, [&](const Program& p) { return p.name == timing.program; });
    if (program == list.end()) continue;
    for (const Form& form : program->forms)
      if (is_meant(timing, form) && !refusal(timing, form)) cases.push_back({timing, form});
  }
  return cases;
}

std::optional<std::string> refusal(const Timing& timing, const Form& form) {
  std::map<std::string, tegula::Argument> given;
  MadeUp make;
  for (const TimedArgument& argument : timing.arguments())
    given.emplace(argument.name, std::visit(make, argument.value));
  const tegula::Signature signature(form.kernel().ir());
  std::vector<tegula::Argument> ordered;
  for (const auto& parameter : signature.kernel().parameters) {
    const std::string& name = parameter.tensor ? parameter.tensor->name : parameter.scalar->name;
    const auto own = given.find(name);
    if (own == given.end()) return "argument '" + name + "' is missing";
    ordered.push_back(own->second);
  }
  if (ordered.size() < given.size()) return "there are fewer parameters than arguments";
  try {
    signature.bind_only(ordered);
  } catch (const tegula::ArgumentError& error) { return error.what(); }
  return {};
}

}  // namespace programs
