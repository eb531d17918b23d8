// Lesson 12: finding a bug. Four wrong programs that a CPU or a GPU would run without complaint, and how to
// find out. TEGULA_CHECK=1 consults the interpreter from a program that runs on a faster target.
#include <string>
#include <tegula/tegula.hpp>

#include "check.hpp"

using namespace tegula::lang;

// Y(i) = X(i) + X(i + 1), with 0 after the last element: right, or wrong in one of four ways.
enum class Bug { none, reads_past_the_tile, reads_before_writing, races, forgets_the_last_block };

Kernel neighbours(Bug bug) {
  return kernel("neighbours", [&] {
    Dim N("N");
    Tensor X = input("X", {N}, f32), Y = inout("Y", {N}, f32);
    Expr blocks = bug == Bug::forgets_the_last_block ? N / 64 : ceildiv(N, 64);
    grid(blocks, [&](Index block) {
      Shared x({65}, f32), y({64}, f32);
      if (bug == Bug::reads_before_writing)
        parallel(64, [&](Index i) { x(i) = X(block * 64 + i); });  // x(64) is missing
      else
        copy(X.at(block * 64), x);
      parallel(64, [&](Index i) {
        if (bug == Bug::reads_past_the_tile)
          y(i) = x(i) + x(i + 2);  // x(65) does not exist
        else if (bug == Bug::races)
          x(i) += x(i + 1);  // another iteration may or may not have changed x(i + 1)
        else
          y(i) = x(i) + x(i + 1);
      });
      if (bug == Bug::races) parallel(64, [&](Index i) { y(i) = x(i); });
      copy(y, Y.at(block * 64));
    });
  });
}

// The error that a target reports for the program, or an empty string.
std::string complaint(Bug bug, tegula::Target target, const tegula::TensorRef& x,
                      const tegula::TensorRef& y) {
  try {
    tegula::compile(neighbours(bug), target)(x, y);
    return "";
  } catch (const tegula::ProgramError& error) { return error.what(); }
}

int main() {
  const int n = 100;
  auto x = tegula::Tensor::random_integers({n}, f32, 1, -9, 10);
  auto y = tegula::Tensor::zeros({n}, f32), expected = y.clone();
  for (int i = 0; i < n; ++i) expected.set({i}, x.get({i}) + (i + 1 < n ? x.get({i + 1}) : 0));

  // 1. While you write a kernel, run it on the interpreter with small tensors (or set
  // TEGULA_TARGET=interpreter). The interpreter records which statement wrote each element, and runs blocks
  // and iterations in several orders. Its message for a race names both lines.
  for (Bug bug : {Bug::reads_past_the_tile, Bug::reads_before_writing, Bug::races}) {
    const std::string says = complaint(bug, tegula::Target::interpreter(), x, y);
    std::printf("the interpreter: %s\n", says.c_str());
    if (says.find("12_finding_a_bug.cpp") == std::string::npos) return 1;
  }

  // 2. A program that breaks no rule but computes the wrong thing needs a reference: compare it with plain
  // loops, for extents that are not multiples of a tile. The block that `N / 64` forgets shows at once.
  complaint(Bug::forgets_the_last_block, tegula::Target::interpreter(), x, y);
  auto difference = tegula::first_difference(y, expected, 0);
  std::printf("a plain loop: %s\n", difference ? difference->c_str() : "nothing");
  if (!difference) return 1;

  // 3. In a program that runs on a CPU or GPU, TEGULA_CHECK=1 checks the first call of every kernel.
  setenv("TEGULA_CHECK", "1", 1);
  const std::string says = complaint(Bug::races, tegula::Target::cpu(), x, y);
  std::printf("TEGULA_CHECK: %s\n", says.c_str());
  if (says.empty()) return 1;

  // 4. On every executor, print(label, value) prints values and assert_that(condition, message) ends the
  // call.
  if (!complaint(Bug::none, tegula::Target::cpu(), x, y).empty()) return 1;
  check("neighbours", y, expected, 0);
}
