#include "tegula/ops/layer_norm.hpp"

#include "ops/rows/maps.hpp"
#include "ops/rows/norm.hpp"

namespace tegula::ops {

const OperatorSchema& layer_norm_schema() {
  using Op = LayerNorm;
  static const OperatorSchema table =
      Schema<Op>("layer_norm", "rows minus their mean, divided by their standard deviation")
          .in(&Op::x, "x", "... d", floats, "rows")
          .in(&Op::weight, "weight", "d", floats, "factors of the features")
          .in(&Op::bias, "bias", "d", floats, "added to the features")
          .with(with_norm<Op>)
          .gradient("layer_norm_backward")
          .examples({{"ragged", "...=37 d=100 weight bias"},
                     {"short_bf16", "...=300 d=8 bf16 weight bias"},
                     {"odd_bf16", "...=3 d=4097 bf16 weight bias"},
                     {"spread_bf16", "...=2 d=16385 bf16 weight bias"},
                     {"batched_bf16", "...=2,7 d=512 bf16 weight:f32 bias:f32 eps=0.01"},
                     {"long_bf16", "...=2 d=16500 bf16 weight bias"},
                     {"spread", "...=1 d=54002 weight bias"},
                     {"7168_bf16", "...=3 d=7168 bf16 weight bias"},
                     {"20480_bf16", "...=2 d=20480 bf16 weight bias"},
                     {"768_bf16", "...=37 d=768 bf16 weight bias"},
                     {"24576_weight_bf16", "...=2 d=24576 weight:bf16 bias"},
                     {"63488_bf16", "...=3 d=63488 bf16 weight bias"},
                     {"65536", "...=3 d=65536 weight bias"}})
          .measured({{"16384x4096_bf16", "...=16384 d=4096 bf16 weight bias"},
                     {"16384x7168_bf16", "...=16384 d=7168 bf16 weight bias"},
                     {"4096x16384_bf16", "...=4096 d=16384 bf16 weight bias"},
                     {"262144x128_bf16", "...=262144 d=128 bf16 weight bias"},
                     {"512x131072_bf16", "...=512 d=131072 bf16 weight bias"}})
          .maps(row_maps({"bf16 weight bias"}))
          .run(run_norm<8192, Op>, norm_formula<Op, Exact>);
  return table;
}

const OperatorSchema& layer_norm_backward_schema() {
  using Op = LayerNorm;
  return gradient_table<run_norm_gradient<Op>, norm_formula<Op, Traced>>(layer_norm_schema(), "16*rows*d",
                                                                         "");
}

const OperatorSchema& add_layer_norm_schema() {
  using Op = AddLayerNorm;
  static const OperatorSchema table =
      Schema<Op>("add_layer_norm", "sums of two rows, and layer_norm of these sums")
          .in(&Op::x, "x", "... d", floats, "rows")
          .in(&Op::residual, "residual", "... d", same_as("x"), "residual that is added to the rows")
          .in(&Op::weight, "weight", "d", floats, "factors of the features")
          .in(&Op::bias, "bias", "d", floats, "added to the features")
          .with(with_norm<Op>)
          .out(&Op::sum, "sum", "... d", same_as("x"), "x + residual, which out is the norm of")
          .gradient("add_layer_norm_backward")
          .examples({{"ragged", "...=37 d=100 weight bias"},
                     {"short_bf16", "...=300 d=8 bf16 weight bias"},
                     {"odd_bf16", "...=3 d=4097 bf16 weight bias"},
                     {"spread_bf16", "...=2 d=16385 bf16 weight bias"},
                     {"batched_bf16", "...=2,7 d=512 bf16 weight:f32 eps=0.01"},
                     {"long_bf16", "...=2 d=16500 bf16 weight bias"},
                     {"16384", "...=2 d=16384 weight bias"}})
          .measured({{"16384x4096_bf16", "...=16384 d=4096 bf16 weight bias"},
                     {"4096x16384_bf16", "...=4096 d=16384 bf16 weight bias"}})
          .maps(row_maps({"bf16 weight bias"}))
          .run(run_norm<8192, Op>, norm_formula<Op, Exact>);
  return table;
}

const OperatorSchema& add_layer_norm_backward_schema() {
  using Op = AddLayerNorm;
  return gradient_table<run_norm_gradient<Op>, norm_formula<Op, Traced>>(add_layer_norm_schema(), "18*rows*d",
                                                                         "");
}

}  // namespace tegula::ops
