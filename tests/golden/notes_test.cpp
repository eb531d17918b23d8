// Which shipped kernels fall back to a slower way, and why that is so.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "codegen/cuda_program.hpp"
#include "passes/note.hpp"
#include "tests/golden/shipped.hpp"

namespace golden {
namespace {

using namespace tegula;
using passes::NoteKind;

struct Exception {
  const char *begins, *holds;  // names of kernels
  std::vector<NoteKind> kinds;
  const char* reason;
};

const std::vector<NoteKind> without_wgmma{NoteKind::mma_sync},
    in_f32{NoteKind::multiply_add, NoteKind::through_shared_memory};

const std::vector<Exception> exceptions{
    {"gemm_f32", "", in_f32, "f32 is multiplied in f32"},
    {"attention_f32", "", in_f32, "f32 is multiplied in f32"},
    {"attention_backward_f32", "", in_f32, "f32 is multiplied in f32"},
    {"block_scores", "", {NoteKind::multiply_add}, "means of blocks are f32, and so are their scores"},
    {"gemm_e4m3_f16", "", {NoteKind::by_threads}, "operands of 8 bits that do not lie along k become f16"},
    {"", "varlen", {NoteKind::by_threads}, "rows behind the end of a sequence are those of the next one"},
    {"block_sparse", "direct", {NoteKind::by_threads}, "a block of queries ends within a tile of 64 rows"},
    {"block_sparse", "_backward", {NoteKind::through_shared_memory}, "one sum a row, once a block"},
    {"attention_backward",
     "",
     {NoteKind::through_shared_memory},
     "the lse of a row, once a block beside the products"},
    {"nsa_",
     "_backward",
     {NoteKind::through_shared_memory},
     "the lse of a row, once a block beside the products"},
    {"nsa_",
     "_g8_q24_k64_",
     {NoteKind::stages},
     "three blocks share a processor beside the slots that are under way"},
    {"nsa_",
     "_slots",
     {NoteKind::through_shared_memory},
     "the lse of a row, once a block beside the products"},
    {"",
     "backward",
     {NoteKind::stages},
     "sums in registers leave tiles of two products two slots, not three"},
    {"block_sparse",
     "_b16x64_g1_",
     {NoteKind::through_shared_memory},
     "weights of few queries are the right operand, which is never in registers"},
    {"block_sparse",
     "_b8x64_g1_",
     {NoteKind::through_shared_memory},
     "weights of few queries are the right operand, which is never in registers"},
    {"nsa_", "_d192_", {NoteKind::stages}, "queries of two warp groups leave room for four slots of keys"},
    {"", "norm_backward_bf16_weight_bf16_16384_", {NoteKind::registers}, "sums of all features beside a row"},
    {"nsa_", "_b32_", {NoteKind::by_threads}, "a block ends within a tile of 64 keys, once a list"},
};

bool is_listed(const std::string& kernel, NoteKind kind) {
  return std::any_of(exceptions.begin(), exceptions.end(), [&](const Exception& e) {
    return kernel.starts_with(e.begins) && kernel.find(e.holds) != std::string::npos &&
           std::find(e.kinds.begin(), e.kinds.end(), kind) != e.kinds.end();
  });
}

// Operators of which calls are chosen.
std::set<std::string> chosen_operators() {
  std::set<std::string> names;
  for (const ShippedCall& call : chosen_calls()) names.insert(call.op);
  return names;
}

class ShippedNotes : public testing::TestWithParam<std::string> {};

TEST_P(ShippedNotes, AreThoseOfTheList) {
  std::set<std::string> seen;
  for (const ShippedCall& call : shipped_calls(ops::find_schema(GetParam()))) {
    for (const lang::Kernel& kernel : call.kernels(Target::cuda())) {
      if (!seen.insert(kernel.name()).second) continue;
      for (const passes::Note& note : codegen::print_cuda(Signature(kernel.ir()), {90}).notes)
        EXPECT_TRUE(is_listed(kernel.name(), note.kind)) << kernel.name() << "\n" << passes::format(note);
    }
  }
  EXPECT_FALSE(seen.empty());
}

INSTANTIATE_TEST_SUITE_P(Operators, ShippedNotes, testing::ValuesIn(chosen_operators()),
                         [](auto& info) { return info.param; });

}  // namespace
}  // namespace golden
