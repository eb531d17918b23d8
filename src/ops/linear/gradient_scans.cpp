#include "ops/linear/gradient_scans.hpp"

#include <array>
#include <cmath>

#include "ops/linear/scan_short.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

using Call = Bound<LinearAttention>;

// A gradient that is a scan itself.
struct GradientScan {
  const char *queries, *keys, *values, *result;
  bool reverse;
  int d, d_v;
};
std::array<GradientScan, 3> gradient_scans(const Call& c) {
  const int d = c.small_dim("d"), d_v = c.small_dim("d_v");
  return {{{"dout", "v", "k", "dq", false, d_v, d},
           {"v", "dout", "q", "dk", true, d_v, d},
           {"k", "q", "dout", "dv", true, d, d_v}}};
}
ScanKernel kernel_of(const Call& c, ScanKernel scan, const GradientScan& own) {
  scan.reverse = own.reverse, scan.even = scan.gated, scan.d = own.d, scan.d_v = own.d_v;
  return narrow(scan, sequences_of(c.call()) * c.dim("heads"), c.on_gpu());
}

}  // namespace

bool differentiates_by_scans(const Call& c, const ScanKernel& given) {
  // Microseconds: of a chunk of a scan, of one in the two passes over states, and of one in all grids.
  constexpr double of_scan = 2.6, of_passes = 2.8, of_grids = 0.12;
  constexpr std::int64_t most = 128;
  if (c.has("g") || c.has("dg_gamma") || c->normalize || c.has("initial_state") || c.has("dfinal_state") ||
      c.dim("group") > 1 || std::max(c.dim("d"), c.dim("d_v")) > most ||
      tile_of_short_gradients(c.call(), given))
    return false;
  return best_of(Candidates<bool, 2>{false, true}, [&](bool by_scans) {
    if (!c.on_gpu() || c.type("q").bits() != 16) return by_scans ? 1.0 : 0.0;
    // The longest sequence is a chain of chunks; those of all share the processors.
    const auto chunks_of = [&](const char* tokens) {
      return std::max(1., std::ceil(static_cast<double>(c.dim(tokens)) / chunk_tokens_of_scan));
    };
    const double batch = c.has("cu_seqlens") ? 1 : static_cast<double>(c.dim("batch")),
                 all = batch * chunks_of("tokens"), chain = chunks_of("longest"),
                 heads = static_cast<double>(c.dim("heads"));
    if (!by_scans) return std::max(chain * of_passes, all * heads * of_grids);
    double result = 0;
    for (const GradientScan& own : gradient_scans(c)) {
      const ScanKernel scan = kernel_of(c, given, own);
      const double blocks = heads * std::ceil(1. * scan.d_v / scan.block);
      result +=
          chain * of_scan * std::ceil(all / chain * blocks / static_cast<double>(scan.blocks_at_once()));
    }
    return result;
  });
}

void run_gradient_scans(const Call& c, Launch& launch, const ScanKernel& scan) {
  for (const GradientScan& own : gradient_scans(c))
    launch(kernel_of(c, scan, own), scan_kernel,
           {{"q", token_view(c.call(), own.queries)},
            {"k", token_view(c.call(), own.keys)},
            {"v", token_view(c.call(), own.values)},
            {"scale", c.real("scale")},
            {"out", token_view(c.call(), own.result)}});
}

}  // namespace tegula::ops
