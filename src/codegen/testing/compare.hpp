// For tests of an executor: small programs that are built together as one kernel, run by the interpreter and
// by another target on copies of the same tensors, and compared element by element.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/machine/cpu_features.hpp"
#include "runtime/testing/scoped_variable.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace tegula::codegen {

using Data = tegula::Tensor;

// The tensor of a call: part of a larger one, of which all is compared.
struct Given {
  Data whole;
  std::function<Data(const Data&)> part = [](const Data& data) { return data; };
  Given(Data data) : whole(std::move(data)) {}
  template <class F>
  Given(Data data, F f) : whole(std::move(data)), part(std::move(f)) {}
};

// The parameters of one case and the tensors that it is called with; used inside kernel(…).
class Program {
 public:
  explicit Program(std::string prefix) : prefix_(std::move(prefix)) {}

  lang::Tensor in(const Given& given) { return in(given, extents_of(given)); }
  lang::Tensor in(const Given& given, const lang::Extents& shape) {
    return lang::input(add(given, false), shape, given.whole.dtype());
  }
  // What the kernel leaves alone keeps its old value, so that is compared as well.
  lang::Tensor out(const Given& given) { return out(given, extents_of(given)); }
  lang::Tensor out(const Given& given, const lang::Extents& shape) {
    return lang::output(add(given, true), shape, given.whole.dtype());
  }
  lang::Tensor out(const Shape& shape, DType type) { return out(Data::full(shape, type, 1)); }
  lang::Tensor zeroed(const Shape& shape, DType type) {
    const Given given = Data::full(shape, type, 1);
    return lang::output(add(given, true), extents_of(given), type, {.zero = true});
  }
  lang::Tensor inout(const Given& given) {
    return lang::inout(add(given, true), extents_of(given), given.whole.dtype());
  }
  lang::Tensor workspace(const lang::Extents& shape, DType type, bool zero = false) {
    return lang::workspace(fmt::format("{}w{}", prefix_, workspaces_++), shape, type, {.zero = zero});
  }
  template <class T>
  lang::Expr scalar(T value, DType type) {
    args_.push_back({std::nullopt, value, false});
    return lang::scalar(last_name(), type);
  }
  lang::Dim dim(const char* letter) { return lang::Dim(prefix_ + letter); }

  // A call with copies of the tensors, whose wholes are put after `copies`.
  void arguments(std::vector<Argument>& args, std::vector<Data>& copies) const {
    for (const Arg& arg : args_) {
      if (arg.given) {
        copies.push_back(arg.given->whole.clone());
        args.emplace_back(arg.given->part(copies.back()));
      } else {
        args.push_back(arg.number);
      }
    }
  }

 private:
  struct Arg {
    std::optional<Given> given;
    Argument number;
    bool written;
  };

  static lang::Extents extents_of(const Given& given) {
    const Data part = given.part(given.whole);
    lang::Extents result;
    for (const std::int64_t n : part.shape()) result.emplace_back(static_cast<int>(n));
    return result;
  }
  std::string last_name() const { return fmt::format("{}x{}", prefix_, args_.size() - 1); }
  std::string add(const Given& given, bool written) {
    args_.push_back({given, 0, written});
    return last_name();
  }

  std::string prefix_;
  std::vector<Arg> args_;
  int workspaces_ = 0;
};

struct Case {
  const char* name;
  void (*build)(Program& program);  // declares parameters and records grids
  double tolerance = 0;             // absolute and relative; 0: every bit but those of a NaN
};

// One kernel of several cases, compiled at once because most of the time is the C++ compiler's start.
class Comparison {
 public:
  explicit Comparison(std::span<const Case> cases)
      : cases_(cases), kernel_(lang::kernel("cases", [&] { build(); })) {}

  const lang::Kernel& kernel() const { return kernel_; }

  void run(Target target) const {
    const auto expected = results(Target::interpreter()), actual = results(target);
    for (std::size_t c = 0; c < cases_.size(); ++c) {
      for (std::size_t i = 0; i < expected[c].size(); ++i) {
        const double tolerance = cases_[c].tolerance;
        const auto difference = first_difference(actual[c][i], expected[c][i], tolerance, tolerance);
        EXPECT_FALSE(difference) << cases_[c].name << ", tensor " << i << ": " << *difference;
      }
    }
  }

 private:
  void build() {
    for (std::size_t c = 0; c < cases_.size(); ++c) {
      programs_.emplace_back(fmt::format("c{}_", c));
      cases_[c].build(programs_.back());
    }
  }
  // The tensors of every case after a call.
  std::vector<std::vector<Data>> results(Target target) const {
    std::vector<Argument> args;
    std::vector<std::vector<Data>> result(cases_.size());
    for (std::size_t c = 0; c < cases_.size(); ++c) programs_[c].arguments(args, result[c]);
    compile(kernel_, target).call_in_order(args);
    return result;
  }

  std::span<const Case> cases_;
  std::vector<Program> programs_;
  lang::Kernel kernel_;
};

// Tests that run once with every instruction set of this machine.
class OnEverySet : public testing::TestWithParam<Isa> {
  ScopedVariable set_{Variable::isa, std::string(isa_name(GetParam()))};
};

inline std::vector<Isa> runnable_sets() {
  std::vector<Isa> sets;
  for (const Isa isa : all_isas) {
    if (is_supported(isa)) sets.push_back(isa);
  }
  return sets;
}

#define TEGULA_ON_EVERY_SET(Suite)                      \
  INSTANTIATE_TEST_SUITE_P(                             \
      Cpu, Suite, ::testing::ValuesIn(runnable_sets()), \
      [](const ::testing::TestParamInfo<Isa>& info) { return std::string(isa_name(info.param)); })

// All cases; if that throws, one by one, so that the case at fault is named.
inline void expect_agreement(std::span<const Case> cases, Target target = Target::cpu()) {
  try {
    return Comparison(cases).run(target);
  } catch (const Error& error) {
    if (cases.size() == 1) {
      ADD_FAILURE() << cases[0].name << ": " << error.what();
      return;
    }
  }
  for (const Case& one : cases) expect_agreement(std::span(&one, 1), target);
}

}  // namespace tegula::codegen
