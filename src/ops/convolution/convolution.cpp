#include "tegula/ops/convolution.hpp"

#include "ops/convolution/maps.hpp"
#include "ops/convolution/notes.hpp"
#include "ops/convolution/plan.hpp"
#include "ops/convolution/shape.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/schema/functions.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

// Every stride-th tap of a gradient belongs to a phase, unless taps are further apart.
template <class Op>
bool has_phases_of(const Bound<Op>& c, const ConvShape& s, bool back) {
  return has_phases(over_three(c.formed(back ? "dx" : "x"), rank_of_conv<Op>), s) &&
         !(back && s.dilation % s.stride != 1);
}

// Pixels that begin off 16 bytes are copied first, or written last: threads, which would load and store all
// tiles else, are far slower.
template <class Op>
void choose_copies(const Bound<Op>& c, const ConvShape& s, ConvKernel& t) {
  const bool back = t.pass == ConvPass::input_gradient;
  if (!has_copy_engine(c.call()) || t.grouped || t.pass == ConvPass::weight_gradient) return;
  const auto is_even = [&](std::int64_t channels) { return channels * t.type.bytes() % bytes_of_piece == 0; };
  // Boxes of half a step along k are slower than copies with zeros.
  const std::int64_t seen = back ? s.features : s.channels;
  // Weights of a gradient have rows of the channels that result.
  const bool is_known = !t.phases || (s.stride <= 16 && s.stride_h() <= 16);
  t.pad_from = t.windows && t.compute.bits() == 16 && is_known &&
               (!is_even(seen) || seen < 16 || !is_even(s.channels));
  t.pad_to = !is_even(back ? s.channels : s.features) && !t.phases_of_to() && (t.pad_from || is_even(seen));
}

// Whether tiles of so many channels end with those of a group.
bool is_whole(const ConvShape& s, const ConvKernel& t, int channels) {
  const std::int64_t seen = t.pass == ConvPass::input_gradient ? s.features : s.channels;
  if ((t.phases_of_from() && t.pad_from) || (t.windows && t.merged > 1)) return true;
  return (t.phases_of_from() || (t.grouped && t.windows)) && seen / s.groups % channels == 0;
}
// Whether they end with those that result.
bool is_full(const ConvShape& s, const ConvKernel& t) {
  const std::int64_t made = t.pass == ConvPass::input_gradient ? s.channels : s.features;
  return t.grouped && t.windows && !t.phases_of_to() && made / s.groups % t.n == 0;
}

template <class Op>
ConvKernel planned(const Bound<Op>& c, ConvShape s, ConvPass pass) {
  ConvKernel t{.type = c.type("x"),
               .compute = multiplied_type(c.type("x"), c.on_gpu()),
               .out = c.type("x"),
               .pass = pass};
  if (c.on_gpu() || pass == ConvPass::weight_gradient) merge_groups(t, s, c.on_gpu());
  const bool back = pass == ConvPass::input_gradient;
  t.phases = has_phases_of(c, s, back), t.windows = s.stride == 1 || t.phases, t.grouped = s.groups > 1;
  const ConvShape::Three made = planned_pixels(s, t);
  choose_copies(c, s, t);
  if (c.on_gpu())
    plan_on_gpu(t, s, made);
  else
    plan_on_cpu(t, s, made, planned_threads(c.call()));
  if (pass == ConvPass::weight_gradient) {
    t.whole = is_whole(s, t, t.n);
  } else {
    t.whole = is_whole(s, t, t.k), t.full = is_full(s, t);
  }
  return t;
}

// Splits of the pixels, where the weights alone are too few blocks.
template <class Op>
int splits_of(const Bound<Op>& c, const ConvShape& s, const ConvKernel& t) {
  if (!c.on_gpu()) return 1;
  const auto tiles = [](std::int64_t extent, int tile) { return (extent + tile - 1) / tile; };
  const std::int64_t groups = s.groups / t.merged;
  const std::int64_t blocks =
      tiles(s.channels / groups, t.n) * tiles(s.features / groups, t.k) * s.pixels(s.taps) * groups;
  return planned_splits(blocks, tiles(s.batch * s.pixels(s.out), t.pixels()), gpu_table.pixels,
                        planned_gpu_processors(c.call()));
}

// A tensor of pixels as a kernel takes it: rows, or windows' five dims.
template <class Op>
TensorRef pixels_of(const Bound<Op>& c, const ConvKernel& t, const char* tensor) {
  constexpr int rank = rank_of_conv<Op>;
  return t.windows ? over_three(c.formed(tensor), rank) : c.rows(tensor, rank + 1);
}

// The input, in phases where the kernel takes it so.
template <class Op>
TensorRef input_of(const Bound<Op>& c, const ConvShape& s, const ConvKernel& t, const char* tensor) {
  const TensorRef pixels = pixels_of(c, t, tensor);
  return t.phases ? in_phases(pixels, s) : pixels;
}

template <class Op>
void launch_products(const Bound<Op>& c, Launch& launch, const ConvKernel& t, const char* from,
                     const char* to, const ConvShape::Three& extents) {
  const ConvShape s = shape_of(c);
  const TensorRef made = over_three(c.formed(to), rank_of_conv<Op>);
  const TensorRef weight = over_three(c["weight"], rank_of_conv<Op>);
  if (c.on_gpu())
    note_products(launch, t, s, planned_pixels(s, t));
  else
    note_products_on_cpu(launch, t, s);
  launch(t, convolution_program,
         {{"from", t.phases_of_from() ? input_of(c, s, t, from) : pixels_of(c, t, from)},
          {"to", t.phases_of_to() ? in_phases(made, s) : made},
          {"weight", weight},
          {"bias", c.has("bias") ? c["bias"] : weight},
          {"depth", extents[0]},
          {"height", extents[1]},
          {"width", extents[2]},
          {"to_depth", made.size(1)},
          {"stride_h", s.stride_h()},
          {"groups", s.groups / t.merged},
          {"padding_d", s.padding[0]},
          {"padding_h", s.padding[1]},
          {"padding_w", s.padding[2]}});
}

// Groups of few channels, without products. Whether there are such.
template <class Op>
bool run_by_channels(const Bound<Op>& c, Launch& launch, ConvPass pass) {
  constexpr int rank = rank_of_conv<Op>;
  const ConvShape s = shape_of(c);
  const bool back = pass == ConvPass::input_gradient;
  if (c.on_gpu() && are_products(s, c.type("x")) && (s.stride == 1 || has_phases_of(c, s, back)))
    return false;
  std::optional<ConvChannelsKernel> t = plan_channels(s, c.type("x"), pass, back ? s.in : s.out, c.on_gpu());
  if (!t) return false;
  if (!back) t->bias = c.type_if("bias");
  const TensorRef weight = over_three(c["weight"], rank);
  launch(*t, conv_channels_program,
         {{"from", over_three(c.formed(back ? "dout" : "x"), rank)},
          {"to", over_three(c.formed(back ? "dx" : "out"), rank)},
          {"weight", weight},
          {"bias", t->bias ? c["bias"] : weight},
          {"padding_d", s.padding[0]},
          {"padding_h", s.padding[1]},
          {"padding_w", s.padding[2]}});
  return true;
}

template <class Op>
void run(const Bound<Op>& c, Launch& launch) {
  if (run_by_channels(c, launch, ConvPass::forward)) return;
  const ConvShape s = shape_of(c);
  ConvKernel t = planned(c, s, ConvPass::forward);
  t.bias = c.type_if("bias");
  launch_products(c, launch, t, "x", "out", s.in);
}

template <class Op>
void run_backward(const Bound<Op>& c, Launch& launch) {
  const ConvShape s = shape_of(c);
  if (!run_by_channels(c, launch, ConvPass::input_gradient))
    launch_products(c, launch, planned(c, s, ConvPass::input_gradient), "dout", "dx", s.out);
  ConvKernel t = planned(c, s, ConvPass::weight_gradient);
  t.out = c.type("dweight"), t.splits = splits_of(c, s, t);
  launch(t, conv_weights_program,
         {{"from", input_of(c, s, t, "x")},
          {"dout", pixels_of(c, t, "dout")},
          {"dweight", over_three(c["dweight"], rank_of_conv<Op>)},
          {"depth", s.in[0]},
          {"height", s.in[1]},
          {"width", s.in[2]},
          {"to_depth", s.out[0]},
          {"to_height", s.out[1]},
          {"to_width", s.out[2]},
          {"stride_h", s.stride_h()},
          {"groups", s.groups / t.merged},
          {"padding_d", s.padding[0]},
          {"padding_h", s.padding[1]},
          {"padding_w", s.padding[2]}});
  if (c.has("bias"))
    launch(ColumnSumsKernel{c.type("x")}, column_sums_program,
           {{"rows", c.rows("dout", rank_of_conv<Op> + 1)}, {"sums", c["dbias"]}});
}

// Calls `body` with every tap of a pixel of the result that meets one of the input: its number, and the
// input's pixel.
template <class Body>
void each_tap(const ConvShape& s, const ConvShape::Three& at, const Body& body) {
  for (std::int64_t tap = 0; tap < s.pixels(s.taps); ++tap) {
    const ConvShape::Three taps{tap / s.taps[2] / s.taps[1], tap / s.taps[2] % s.taps[1], tap % s.taps[2]};
    std::int64_t pixel = 0;
    bool is_inside = true;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t place = at[i] * s.stride + taps[i] * s.dilation - s.padding[i];
      is_inside = is_inside && place >= 0 && place < s.in[i];
      pixel = pixel * s.in[i] + place;
    }
    if (is_inside) body(tap, pixel);
  }
}

template <class Op, class E>
void formula(const Bound<Op>& c, E& exact) {
  using Number = typename E::Number;
  const ConvShape s = shape_of(c);
  const std::int64_t own = s.channels / s.groups, own_features = s.features / s.groups,
                     taps = s.pixels(s.taps);
  auto *x = exact.data("x"), *weight = exact.data("weight"), *bias = exact.data_if("bias"),
       *out = exact.data("out");
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t p = 0; p < s.pixels(s.out); ++p) {
      const ConvShape::Three at{p / s.out[2] / s.out[1], p / s.out[2] % s.out[1], p % s.out[2]};
      for (std::int64_t f = 0; f < s.features; ++f) {
        Number sum = bias ? bias[f] : Number(0);
        each_tap(s, at, [&](std::int64_t tap, std::int64_t pixel) {
          const auto* row = x + (b * s.pixels(s.in) + pixel) * s.channels + f / own_features * own;
          for (std::int64_t e = 0; e < own; ++e) sum += row[e] * weight[(f * taps + tap) * own + e];
        });
        *out++ = sum;
      }
    }
}

const OptionRule least_one = between(1, 1 << 16, "a number from 1 to 2^16", "give such a number");

// The names of those of the dims depth, height and width that a table has.
struct ConvDims {
  const char *in, *taps, *out;
};

template <class Op>
Schema<Op> conv_table(const char* name, const char* doc, const ConvDims& dims) {
  const auto list = [](const char* before, const char* between, const char* behind) {
    return std::string(before) + " " + between + " " + behind;
  };
  Schema<Op> table(name, doc);
  table.in(&Op::x, "x", list("batch", dims.in, "channels"), floats, "images")
      .in(&Op::weight, "weight", list("features", dims.taps, "channels/groups"), same_as("x"), "filters")
      .in(&Op::bias, "bias", "features", floats, "added to every pixel")
      .option(&Op::stride, "stride", "stride: input pixels from one output to the next", least_one)
      .option(&Op::padding, "padding", "zeros around the images",
              between(0, 1 << 16, "a number from 0 to 2^16", "give such a number"))
      .option(&Op::dilation, "dilation", "dilation: input pixels from one tap of a filter to the next",
              least_one)
      .option(&Op::groups, "groups", "groups of channels and features that are convolved separately",
              least_one);
  if constexpr (rank_of_conv<Op> == 3)
    table.let("out_depth", "max((depth+2*padding-dilation*(taps_d-1)-1+stride)/stride,0)")
        .require("weight", "taps_d >= 1", "a tap or more", "give filters that have elements");
  if constexpr (rank_of_conv<Op> >= 2)
    table.let("out_height", "max((height+2*padding-dilation*(taps_h-1)-1+stride)/stride,0)")
        .require("weight", "taps_h >= 1", "a tap or more", "give filters that have elements");
  table.let("out_width", "max((width+2*padding-dilation*(taps_w-1)-1+stride)/stride,0)")
      .require("weight", "taps_w >= 1", "a tap or more", "give filters that have elements")
      .require("groups", "channels%groups == 0", "a divisor of {channels}, the channels", "change it")
      .require("groups", "features%groups == 0", "a divisor of {features}, the features", "change it")
      .out(&Op::out, "out", list("batch", dims.out, "features"), same_as("x"), "the convolution")
      .source("LeCun et al. 1989, Backpropagation Applied to Handwritten Zip Code Recognition");
  return table;
}

template <class Op>
const OperatorSchema& gradients_of(const OperatorSchema& forward, const char* flops) {
  return gradient_table<run_backward<Op>, formula<Op, Traced>>(forward, flops, "x");
}

std::vector<Example> image_examples() {
  return {
      {"padded", "batch=2 height=5 width=7 channels=20 features=9 taps_h=3 taps_w=3 padding=1"},
      {"dilated_f16",
       "batch=1 height=9 width=8 channels=16 features=40 taps_h=3 taps_w=2 dilation=2 f16 bias:f32"},
      {"strided_bf16",
       "batch=2 height=9 width=10 channels=24 features=16 taps_h=3 taps_w=3 stride=2 padding=1 "
       "bf16"},
      {"strided_even_bf16",
       "batch=2 height=8 width=10 channels=24 features=16 taps_h=3 taps_w=3 stride=2 padding=1 "
       "groups=2 bf16"},
      {"images_bf16", "batch=3 height=4 width=12 channels=16 features=24 taps_h=3 taps_w=3 padding=1 bf16"},
      {"odd_features_bf16",
       "batch=2 height=9 width=8 channels=16 features=20 taps_h=3 taps_w=3 padding=1 bias bf16"},
      {"strided_odd_features_bf16",
       "batch=2 height=9 width=10 channels=16 features=20 taps_h=3 taps_w=3 stride=2 padding=1 "
       "bf16"},
      {"depthwise_bf16",
       "batch=2 height=9 width=10 channels=24 features=24 taps_h=3 taps_w=3 padding=1 groups=24 "
       "bias bf16"},
      {"depthwise_twice",
       "batch=1 height=8 width=9 channels=10 features=20 taps_h=3 taps_w=2 padding=1 stride=2 "
       "groups=10"},
      {"few_of_a_group_f16",
       "batch=1 height=7 width=6 channels=32 features=48 taps_h=3 taps_w=3 padding=2 dilation=2 "
       "groups=8 "
       "f16"},
      {"few_channels_bf16",
       "batch=2 height=9 width=8 channels=3 features=24 taps_h=3 taps_w=3 padding=1 bf16"},
      {"strided_few_channels_bf16",
       "batch=2 height=10 width=8 channels=3 features=24 taps_h=5 taps_w=3 padding=2 stride=2 bf16"},
      {"groups_of_16_bf16",
       "batch=2 height=9 width=8 channels=32 features=64 taps_h=3 taps_w=3 padding=1 groups=2 bias "
       "bf16"},
      {"strided_groups_of_32_f16",
       "batch=3 height=8 width=10 channels=64 features=32 taps_h=3 taps_w=3 padding=1 stride=2 "
       "groups=2 "
       "f16"},
      {"grouped",
       "batch=1 height=6 width=5 channels=12 features=9 taps_h=2 taps_w=3 padding=1 groups=3 bias"}};
}

}  // namespace

const OperatorSchema& conv1d_schema() {
  static const OperatorSchema table =
      conv_table<Conv1d>("conv1d", "convolution over one dimension, channels last",
                         {"width", "taps_w", "out_width"})
          .gradient("conv1d_backward")
          .flops("2*batch*out_width*features*taps_w*channels/groups")
          .examples({{"padded", "batch=2 width=23 channels=12 features=9 taps_w=3 padding=1"},
                     {"strided_bf16",
                      "batch=2 width=70 channels=24 features=16 taps_w=4 stride=2 groups=2 bias bf16"}})
          .measured({{"whisper", "batch=16 width=3000 channels=1280 features=1280 taps_w=3 padding=1 bf16"}})
          .run(run<Conv1d>, formula<Conv1d, Exact>);
  return table;
}

const OperatorSchema& conv2d_schema() {
  static const OperatorSchema table =
      conv_table<Conv2d>("conv2d", "convolution over two dimensions, channels last",
                         {"height width", "taps_h taps_w", "out_height out_width"})
          .gradient("conv2d_backward")
          .flops("2*batch*out_height*out_width*features*taps_h*taps_w*channels/groups")
          .examples(image_examples())
          .measured(
              {{"128x56x56x128",
                "batch=128 height=56 width=56 channels=128 features=128 taps_h=3 taps_w=3 padding=1 bf16"},
               {"stride_2",
                "batch=128 height=56 width=56 channels=128 features=256 taps_h=3 taps_w=3 padding=1 stride=2 "
                "bf16"}})
          .maps(image_maps())
          .run(run<Conv2d>, formula<Conv2d, Exact>);
  return table;
}

const OperatorSchema& conv3d_schema() {
  static const OperatorSchema table =
      conv_table<Conv3d>("conv3d", "convolution over three dimensions, channels last",
                         {"depth height width", "taps_d taps_h taps_w", "out_depth out_height out_width"})
          .gradient("conv3d_backward")
          .flops("2*batch*out_depth*out_height*out_width*features*taps_d*taps_h*taps_w*channels/groups")
          .examples(
              {{"padded",
                "batch=1 depth=3 height=5 width=4 channels=10 features=7 taps_d=3 taps_h=2 taps_w=3 "
                "padding=1"},
               {"strided_bf16",
                "batch=2 depth=4 height=5 width=6 channels=8 features=16 taps_d=2 taps_h=2 taps_w=2 stride=2 "
                "bias bf16"}})
          .measured(
              {{"video_vae",
                "batch=1 depth=16 height=64 width=64 channels=256 features=256 taps_d=3 taps_h=3 taps_w=3 "
                "padding=1 bf16"}})
          .run(run<Conv3d>, formula<Conv3d, Exact>);
  return table;
}

const OperatorSchema& conv1d_backward_schema() {
  return gradients_of<Conv1d>(conv1d_schema(), "4*batch*out_width*features*taps_w*channels/groups");
}
const OperatorSchema& conv2d_backward_schema() {
  return gradients_of<Conv2d>(conv2d_schema(),
                              "4*batch*out_height*out_width*features*taps_h*taps_w*channels/groups");
}
const OperatorSchema& conv3d_backward_schema() {
  return gradients_of<Conv3d>(
      conv3d_schema(),
      "4*batch*out_depth*out_height*out_width*features*taps_d*taps_h*taps_w*channels/groups");
}

}  // namespace tegula::ops
