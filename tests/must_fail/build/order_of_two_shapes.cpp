#include "tests/must_fail/must_fail.hpp"

// Turns are counted for each tile of the tensor in one shape: those of another one have other elements.
TEGULA_MUST_FAIL(order_of_two_shapes, "with consecutive orders in two shapes in one grid") {
  Fragment tile({8, 64}, f32, 1);
  accumulate(scene.C.at(0, 0), tile, {.order = 0, .consecutive = true});
  Tensor wide = scene.C.reshape({scene.C.extent(0) * scene.C.extent(1) / 128, 128});
  accumulate(wide.at(0, 0), tile, {.order = 1, .consecutive = true});  // error
}
