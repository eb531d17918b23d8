#include "tegula/ops/rms_norm.hpp"

#include "ops/rows/maps.hpp"
#include "ops/rows/norm.hpp"

namespace tegula::ops {

const OperatorSchema& rms_norm_schema() {
  using Op = RmsNorm;
  static const OperatorSchema table =
      Schema<Op>("rms_norm", "rows divided by their root mean square")
          .in(&Op::x, "x", "... d", floats, "rows")
          .cancels("d == 1")  // its gradient is the share of eps alone
          .in(&Op::weight, "weight", "d", floats, "factors of the features")
          .with(with_norm<Op>)
          .gradient("rms_norm_backward")
          .examples({{"ragged", "...=37 d=100 weight"},
                     {"short_bf16", "...=300 d=8 bf16 weight"},
                     {"odd_bf16", "...=3 d=4097 bf16 weight"},
                     {"batched_bf16", "...=2,7 d=512 bf16 weight:f32 eps=0.01"},
                     {"long_bf16", "...=2 d=16500 bf16 weight"},
                     {"spread", "...=1 d=54002 weight"},
                     {"5120_bf16", "...=3 d=5120 bf16 weight"},
                     {"18432_bf16", "...=2 d=18432 bf16 weight"},
                     {"24576_weight_bf16", "...=2 d=24576 weight:bf16"}})
          .measured({{"8192x4096_bf16", "...=8192 d=4096 bf16 weight"},
                     {"16384x4096_bf16", "...=16384 d=4096 bf16 weight"},
                     {"16384x5120_bf16", "...=16384 d=5120 bf16 weight"},
                     {"4096x16384_bf16", "...=4096 d=16384 bf16 weight"},
                     {"262144x128_bf16", "...=262144 d=128 bf16 weight"},
                     {"512x131072_bf16", "...=512 d=131072 bf16 weight"}})
          .maps(row_maps({"bf16 weight"}))
          .run(run_norm<8192, Op>, norm_formula<Op, Exact>);
  return table;
}

const OperatorSchema& rms_norm_backward_schema() {
  using Op = RmsNorm;
  return gradient_table<run_norm_gradient<Op>, norm_formula<Op, Traced>>(rms_norm_schema(), "12*rows*d", "");
}

const OperatorSchema& add_rms_norm_schema() {
  using Op = AddRmsNorm;
  static const OperatorSchema table =
      Schema<Op>("add_rms_norm", "sums of two rows, and rms_norm of these sums")
          .in(&Op::x, "x", "... d", floats, "rows")
          .cancels("d == 1")  // its gradient is the share of eps alone
          .in(&Op::residual, "residual", "... d", same_as("x"), "residual that is added to the rows")
          .in(&Op::weight, "weight", "d", floats, "factors of the features")
          .with(with_norm<Op>)
          .out(&Op::sum, "sum", "... d", same_as("x"), "x + residual, which out is the norm of")
          .gradient("add_rms_norm_backward")
          .examples({{"ragged", "...=37 d=100 weight"},
                     {"short_bf16", "...=300 d=8 bf16 weight"},
                     {"odd_bf16", "...=3 d=4097 bf16 weight"},
                     {"batched_bf16", "...=2,7 d=512 bf16 weight:f32 eps=0.01"},
                     {"long_bf16", "...=2 d=16500 bf16 weight"},
                     {"16384", "...=2 d=16384 weight"}})
          .measured({{"16384x4096_bf16", "...=16384 d=4096 bf16 weight"},
                     {"4096x16384_bf16", "...=4096 d=16384 bf16 weight"}})
          .maps(row_maps({"bf16 weight"}))
          .run(run_norm<8192, Op>, norm_formula<Op, Exact>);
  return table;
}

const OperatorSchema& add_rms_norm_backward_schema() {
  using Op = AddRmsNorm;
  return gradient_table<run_norm_gradient<Op>, norm_formula<Op, Traced>>(add_rms_norm_schema(), "14*rows*d",
                                                                         "");
}

}  // namespace tegula::ops
