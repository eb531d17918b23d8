// A program that must be refused while it is built. Each case is a file of its own; the line that is at fault
// carries the comment `// error`, and the refusal must name that line and say the expected words.
#pragma once
#include <string>
#include <vector>

#include "tegula/lang.hpp"

namespace must_fail {

using namespace tegula::lang;

// What the cases that are about the inside of a grid find declared.
struct Scene {
  const Tensor &A, &N, &C;  // input f16 [M, 64], input i32 [M], output f32 [M, 64]
  Index block;
};

struct Case {
  const char* file;
  const char* words;
  void (*in_grid)(const Scene&);
  void (*whole)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all_cases;
  return all_cases;
}

struct Register {
  Register(const char* file, const char* words, void (*in_grid)(const Scene&)) {
    cases().push_back({file, words, in_grid, nullptr});
  }
  Register(const char* file, const char* words, void (*whole)()) {
    cases().push_back({file, words, nullptr, whole});
  }
};

}  // namespace must_fail

#define TEGULA_JOIN_(a, b) a##b
#define TEGULA_JOIN(a, b) TEGULA_JOIN_(a, b)
#define TEGULA_MUST_FAIL_AS(name, words, parameters)         \
  namespace must_fail::TEGULA_JOIN(name, _scope) {           \
    static void run parameters;                              \
    static const Register registered(__FILE__, words, &run); \
  }                                                          \
  static void must_fail::TEGULA_JOIN(name, _scope)::run parameters

// The body runs inside a grid.
#define TEGULA_MUST_FAIL(name, words) TEGULA_MUST_FAIL_AS(name, words, ([[maybe_unused]] const Scene& scene))
// The body is everything.
#define TEGULA_MUST_FAIL_WHOLE(name, words) TEGULA_MUST_FAIL_AS(name, words, ())
