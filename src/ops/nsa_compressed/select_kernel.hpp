// The tile program that chooses key blocks by the weights of compressed entries.
#pragma once
#include <array>
#include <optional>
#include <string_view>

#include "ops/nsa_compressed/compressed.hpp"
#include "tegula/ops/nsa_select.hpp"

namespace tegula::ops {

template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 2> choice_names<BlockWeight>{
    "sum", "largest"};

struct SelectKernel {
  CompressedKernel heads;
  int chunks = 1;       // of the heads of a group, each of `pack`
  int columns = 32;     // blocks that a warp holds at a time
  bool held = true;     // all of them
  bool aligned = true;  // blocks begin with windows
  int entries = 0;      // that share a token with a block, at most; 0: too many to write out
  // Of those, how many begin in the block. A step of the product then sums those of whole blocks before they
  // leave it; 0: entries leave it one by one.
  int begun = 0;
  int resident = 2;  // blocks of a processor, each with a workspace

  BlockWeight weight = BlockWeight::sum;

  int blocks_of_step() const { return heads.keys / begun; }
  // Entries that begin in the block before and reach into this one.
  int reaching() const { return entries - begun; }

  auto fields() const {
    return std::tuple(heads, weight, joined("b", columns, entries), labelled("n", chunks),
                      labelled("held", held), labelled("aligned", aligned),
                      labelled("begun", begun > 0 ? std::optional(begun) : std::nullopt),
                      labelled("resident", resident > 2 ? std::optional(resident) : std::nullopt));
  }
};

// See nsa_select.
lang::Kernel select_program(const SelectKernel& instance);

}  // namespace tegula::ops
