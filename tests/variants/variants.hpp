// For tests of one program that is said in several ways: each is planned as the first is, or has a note that
// says what to change.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/cuda_program.hpp"
#include "tegula/lang.hpp"
#include "show/cuda_texts.hpp"

namespace variants {

struct Variant {
  std::string name;
  tegula::lang::Kernel kernel;
};

// Roles, the slots of rings that keep their tiles in shared memory, and the instructions of products, grid by
// grid. How often a step is printed, because a loop is divided where a mask begins, is not asked.
inline std::string plan_of(const tegula::lang::Kernel& kernel) {
  const tegula::passes::CudaTarget hopper{};
  std::string text;
  const auto schedules = tegula::shown::grid_schedules(kernel, hopper);
  const auto layouts = tegula::shown::grid_layouts(kernel, hopper);
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const bool has_roles = schedules[i].schedule && schedules[i].schedule->roles.size() > 1;
    text += has_roles ? "roles;" : "no roles;";
    std::map<int, int> bytes;  // of a slot, by the number of slots
    if (schedules[i].schedule) {
      for (const auto& ring : schedules[i].schedule->rings)
        for (const int buffer : ring.buffers)
          bytes[ring.depth] += schedules[i].schedule->buffers[buffer].bytes;
    }
    for (const auto& [depth, size] : bytes) text += fmt::format(" {} x {} bytes", depth, size);
    std::set<std::string> products;
    for (const auto& line : layouts[i].lines)
      if (line.words.starts_with("gemm(")) products.insert(line.words.substr(line.words.find("): ") + 2));
    text += fmt::format("{}\n", fmt::join(products, ";"));
  }
  return text;
}

inline bool has_notes(const tegula::lang::Kernel& kernel) {
  return !tegula::codegen::print_cuda(tegula::Signature(kernel.ir()), tegula::passes::CudaTarget{})
              .notes.empty();
}

inline void expect_planned_alike(const std::vector<Variant>& all) {
  const std::string wanted = plan_of(all.front().kernel);
  for (const Variant& own : all) {
    const std::string plan = plan_of(own.kernel);
    EXPECT_TRUE(plan == wanted || has_notes(own.kernel)) << own.name << " is planned without a note as\n"
                                                         << plan << "and " << all.front().name << " as\n"
                                                         << wanted;
  }
}

}  // namespace variants
