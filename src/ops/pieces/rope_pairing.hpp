// The names of the pairings of rotary position embedding.
#pragma once
#include "ops/schema/option_access.hpp"
#include "tegula/ops/rope.hpp"

namespace tegula::ops {

template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 2> choice_names<RopePairing>{
    "halves", "neighbours"};

}  // namespace tegula::ops
