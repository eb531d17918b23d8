#include "ops/convolution/maps.hpp"

#include <fmt/format.h>

#include <string>

namespace tegula::ops {

// About as many pixels in all.
std::vector<CallMap> image_maps() {
  const std::string base =
      "batch=32 height=56 width=56 channels=128 features=128 taps_h=3 taps_w=3 padding=1 bf16";
  CallMap channels{"channels", base, {}, {}};
  for (const int count : {3, 4, 8, 16, 20, 32, 64, 96, 128, 256, 512})
    channels.columns.push_back(fmt::format("channels={}", count));
  for (const int count : {3, 16, 64, 100, 128, 256, 512})
    channels.rows.push_back(fmt::format("features={}", count));
  return {{"images",
           base,
           {"batch=1 height=320 width=320", "batch=8 height=112 width=112", "batch=32",
            "batch=33 height=55 width=57", "batch=128 height=28 width=28", "batch=512 height=14 width=14",
            "batch=2048 height=7 width=7", "batch=1 height=64 width=64"},
           {"", "stride=2", "taps_h=1 taps_w=1 padding=0", "taps_h=5 taps_w=5 padding=2",
            "dilation=2 padding=2", "padding=0", "groups=4", "groups=128", "f16", "f32"}},
          channels};
}

}  // namespace tegula::ops
