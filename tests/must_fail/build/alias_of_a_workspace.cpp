#include "tests/must_fail/must_fail.hpp"

// Only arguments of a call share bytes.
TEGULA_MUST_FAIL_WHOLE(alias_of_a_workspace, "`w` is a workspace, whose memory is its own; leave it out") {
  kernel("k", [&] {
    Tensor x = inout("x", {4}, f32), w = workspace("w", {4}, f32);
    may_alias(x, w);  // error
    grid(4, [&](Index i) { w(i) = 1, x(i) = w(i); });
  });
}
