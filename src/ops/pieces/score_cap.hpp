// Scores that are capped: cap · tanh(score / cap).
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// What an instance knows of the cap, whose value is an argument. A wide one needs shares with all digits.
enum class ScoreCap : std::uint8_t { none, usual, wide };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 3> choice_names<ScoreCap>{
    "none", "softcap", "wide_softcap"};

// Of the option softcap, where 0 is none.
ScoreCap score_cap(float softcap);

// tanh(score · scale), what a score is of its cap. `compute` is the type that is multiplied: with 16 bits and
// a usual cap, the share is right to 2^-21.
lang::Expr share_of_cap(const lang::Expr& score, const lang::Expr& scale, ScoreCap cap, DType compute);
// Scores become such shares, if there is a cap.
void cap_scores(lang::Fragment& scores, const lang::Expr& scale, ScoreCap cap, DType compute);

}  // namespace tegula::ops
