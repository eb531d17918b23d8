// Gradients of linear attention that are scans themselves. Without states and gates that have gradients, dq
// is the scan whose queries are the gradients of results, whose keys are values and whose values are keys; dk
// and dv are scans from the last token to the first. Their states stay in registers, so that nothing of them
// is written, but a head has few blocks.
#pragma once
#include "ops/linear/scan.hpp"
#include "tegula/ops/linear_attention.hpp"

namespace tegula::ops {

// Whether a call, whose results are those of `scan`, has such gradients, and they take less time.
bool differentiates_by_scans(const Bound<LinearAttention>& c, const ScanKernel& scan);
void run_gradient_scans(const Bound<LinearAttention>& c, Launch& launch, const ScanKernel& scan);

}  // namespace tegula::ops
