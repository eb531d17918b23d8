// Lesson 7: reading a schedule. The program contains no barriers and no thread numbers. What the compiler
// makes of it for a Hopper GPU can be read without having one. The tool prints it too, or draws it (`--svg
// pictures`):
//   tegula show examples/07_reading_a_schedule.cpp --flag=-Iexamples --schedule
#include <string>
#include <tegula/show.hpp>
#include <tegula/tegula.hpp>

#include "check.hpp"

using namespace tegula::lang;

// A matrix product, optionally with an assertion that was left inside the loop.
Kernel product(bool asserts) {
  return kernel(asserts ? "product_with_assertion" : "product", [&] {
    Dim M("M"), N("N"), K("K");
    Tensor A = input("A", {M, K}, bf16), B = input("B", {N, K}, bf16), C = output("C", {M, N}, f32);
    grid(ceildiv(N, 128), ceildiv(M, 128), [&](Index bx, Index by) {
      Fragment sum({128, 128}, f32, 0);
      pipelined(ceildiv(K, 64), {.stages = 4}, [&](Index k) {
        Shared a({128, 64}, bf16), b({128, 64}, bf16);
        copy(A.at(by * 128, k * 64), a);
        copy(B.at(bx * 128, k * 64), b);
        if (asserts) assert_that(a(0, 0) == a(0, 0), "the first element of a tile is NaN");
        gemm(a, b.T(), sum);
      });
      copy(sum, C.at(by * 128, bx * 128));
    });
  });
}

TEGULA_KERNELS(product(false), product(true))

// Exits with status 1 unless the text contains all of these lines in this order.
void expect(const std::string& text, const std::vector<const char*>& lines) {
  std::size_t at = 0;
  for (const char* line : lines) {
    at = text.find(line, at);
    if (at == std::string::npos) {
      std::printf("not found, or not in this order: %s\n", line);
      std::exit(1);
    }
  }
}

int main() {
  const std::string schedule = tegula::show(product(false), {.schedule = true});
  std::printf("%s", schedule.c_str());
  // One group of warps, the producer, only loads; the others, the consumers, only multiply. They communicate
  // through a ring: four slots for the tiles s0 and s1, which are a and b in the order of declaration. A
  // consumer waits until a slot is full, issues the product, waits until at most one product is in flight
  // (`gemm wait 1`), and releases the slot of the previous step.
  expect(schedule, {"ring s0, depth 4", "consumer", "wait full s0[n]", "gemm: reads s0[s0], reads s1[s0]",
                    "gemm wait 1", "release s0[n-1]"});
  // The producer waits until a slot is empty, announces the bytes, and starts both loads by the copy engine.
  expect(schedule, {"producer", "wait empty s0[n]", "expect 32768 bytes", "load s0[s0]", "load s1[s0]"});

  // If a program gets no roles, a note names the line that prevents them and says what to write instead.
  for (bool asserts : {false, true}) {
    const tegula::Explanation explained = tegula::explain(product(asserts), tegula::Target::cuda());
    std::printf("%s", explained.text().c_str());
    const bool has_roles = explained.text().find("no roles") == std::string::npos;
    if (has_roles == asserts) return 1;
  }

  int m = 40, n = 50, k = 70;
  auto a = tegula::Tensor::random_integers({m, k}, bf16, 1, -4, 5),
       b = tegula::Tensor::random_integers({n, k}, bf16, 2, -4, 5);
  auto c = tegula::Tensor::zeros({m, n}, f32), expected = tegula::Tensor::zeros({m, n}, f32);
  tegula::compile(product(false))(a, b, c);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int p = 0; p < k; ++p) sum += a.get({i, p}) * b.get({j, p});
      expected.set({i, j}, sum);
    }
  check("product", c, expected, 0);
}
