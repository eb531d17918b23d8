#include <dnnl.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "measure.hpp"
#include "references.hpp"
#include "sections.hpp"
#include "tegula/ops.hpp"

namespace tegula::bench {
namespace {

// One row of the table.
void compare(std::int64_t n, int rounds) {
  const Tensor a = Tensor::random_normal({n, n}, f32, 1), b = Tensor::random_normal({n, n}, f32, 2);
  const Tensor c = Tensor::empty({n, n}, f32), d = Tensor::empty({n, n}, f32);
  ops::Gemm options;
  options.out = c, options.target = Target::cpu();
  const auto ours = [&] { ops::gemm(a, b, options); };
  const auto theirs = [&] {
    const dnnl_status_t status = dnnl_sgemm('N', 'N', n, n, n, 1.0f, a.data_as<float>(), n,
                                            b.data_as<float>(), n, 0.0f, d.data_as<float>(), n);
    if (status != dnnl_success) throw std::runtime_error("dnnl_sgemm failed");
  };
  ours(), theirs();
  check_product(a, b, c), check_product(a, b, d);
  const Times times = interleaved({ours, theirs}, rounds);
  const double work = 2e-9 * std::pow(double(n), 3);
  fmt::print("| {0} x {0} x {0} | {1:.1f} | {2:.1f} | {3:.2f} |\n", n, work / times.median(0),
             work / times.median(1), times.ratio(1, 0));
}

}  // namespace

void gemm_section() {
  fmt::print(
      "## Matrix product\n\n"
      "`gemm`, f32, row-major, compared with `dnnl_sgemm`. The ratio is oneDNN's time divided by Tegula's; "
      "the aim is 0.8.\n\n"
      "| size | Tegula, GFLOP/s | oneDNN, GFLOP/s | ratio |\n|---|---|---|---|\n");
  compare(512, 31);
  compare(1024, 31);
  compare(2048, 13);
  fmt::print("\n");
}

}  // namespace tegula::bench
