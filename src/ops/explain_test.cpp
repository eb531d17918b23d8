// What is told of calls: the way of every kernel on every target, and a note for each kind that calls can
// have.
#include "tegula/explain.hpp"

#include <gtest/gtest.h>

#include "runtime/machine/thread_pool.hpp"
#include "runtime/testing/expect_error.hpp"
#include "runtime/testing/scoped_variable.hpp"
#include "tegula/error.hpp"
#include "tegula/lang.hpp"

namespace tegula {
namespace explain_test {

using Inputs = std::map<std::string, Tensor>;
using Texts = std::map<std::string, std::string>;

Inputs heads(DType type, std::int64_t tokens, std::int64_t dim, bool backward = false) {
  Inputs in;
  for (const char* name : {"q", "k", "v", "out", "dout"}) {
    if (backward || std::string(name).size() == 1) in.emplace(name, Tensor::empty({1, tokens, 4, dim}, type));
  }
  if (backward) in.emplace("lse", Tensor::empty({1, 4, tokens}, f32));
  return in;
}

Inputs packed(DType type, std::int64_t tokens, std::int64_t dim) {
  Inputs in;
  for (const char* name : {"q", "k", "v"}) in.emplace(name, Tensor::empty({tokens, 4, dim}, type));
  for (const char* name : {"cu_seqlens_q", "cu_seqlens_k"})
    in.emplace(name, Tensor::from<std::int32_t>({0, 100, static_cast<std::int32_t>(tokens)}));
  return in;
}

Inputs matrices(DType type, std::int64_t m, std::int64_t n, std::int64_t k) {
  return {{"a", Tensor::empty({m, k}, type)}, {"b", Tensor::empty({k, n}, type)}};
}

// Of 8 heads that share a cache's.
Inputs decoded(DType cache, std::int64_t tokens, std::int64_t dim) {
  return {{"q", Tensor::empty({2, tokens, 16, dim}, bf16)},
          {"k_cache", Tensor::empty({2, 300, 2, dim}, cache)},
          {"v_cache", Tensor::empty({2, 300, 2, dim}, cache)}};
}

// Of 3 × 3 taps.
Inputs images(DType type, std::int64_t channels) {
  return {{"x", Tensor::empty({2, 32, 32, channels}, type)},
          {"weight", Tensor::empty({128, 3, 3, channels}, type)}};
}

Inputs with_view(Inputs in, const std::string& name, const Tensor& view) {
  in.insert_or_assign(name, view);
  return in;
}

struct CallCase {
  std::string name, op;
  Inputs inputs;
  Texts options;
  Target target;
  std::string way;   // that the text has
  std::string note;  // begin of a note after its place; empty: there is none
};

const std::vector<CallCase> call_cases{
    {"gemm", "gemm", matrices(bf16, 512, 512, 512), {}, Target::cuda(), "roles: ", ""},
    {"gemm_on_cpu", "gemm", matrices(f32, 4096, 4096, 64), {}, Target::cpu(), "compiled C++", ""},
    {"gemm_in_interpreter",
     "gemm",
     matrices(bf16, 64, 64, 64),
     {},
     Target::interpreter(),
     "the interpreter",
     ""},
    {"gemm_for_sm_80", "gemm", matrices(bf16, 512, 512, 512), {}, Target::cuda_sm80(), "1 by mma.sync", ""},
    {"gemm_emulated", "gemm", matrices(bf16, 512, 512, 512), {}, Target::emulated_sm90(), "1 by wgmma", ""},
    {"rows_off_the_copy_engine",
     "attention",
     heads(bf16, 512, 100),
     {},
     Target::cuda(),
     "roles: ",
     "rows of 100 and 100 features are copied"},
    {"pixels_off_the_copy_engine",
     "conv2d",
     images(bf16, 20),
     {},
     Target::cuda(),
     "roles: ",
     "pixels that do not begin at multiples of 16 bytes are copied first"},
    {"pixels_that_it_takes", "conv2d", images(bf16, 32), {}, Target::cuda(), "roles: ", ""},
    {"f32", "gemm", matrices(f32, 512, 512, 512), {}, Target::cuda(), "no roles", "multiply-add: "},
    {"few_rows",
     "gemm",
     matrices(bf16, 512, 512, 512),
     {{"tile_m", "16"}, {"tile_n", "80"}},
     Target::cuda(),
     "1 by mma.sync",
     "mma.sync: the sum has 16 rows"},
    {"few_rows_of_many_columns",
     "gemm",
     matrices(bf16, 512, 512, 512),
     {{"tile_m", "16"}, {"tile_n", "128"}},
     Target::cuda(),
     "1 by wgmma",
     ""},
    {"few_rows_come_ahead",
     "gemm",
     matrices(bf16, 512, 512, 512),
     {{"tile_m", "16"}, {"tile_n", "80"}},
     Target::cuda(),
     "all threads load ahead",
     "mma.sync: "},
    {"transposed",
     "gemm",
     matrices(e4m3, 512, 512, 512),
     {},
     Target::cuda(),
     "one thread loads by the copy engine; slots: a_tile b_tile x 10, b_tile_as_stored x 10",
     ""},
    {"a_decoded_token_has_few_rows",
     "attention_with_kv_cache",
     decoded(e4m3, 1, 128),
     {},
     Target::cuda(),
     "_g8_q1_k128",
     "through shared memory: "},
    {"two_tokens_too",
     "attention_with_kv_cache",
     decoded(bf16, 2, 128),
     {},
     Target::cuda(),
     "_g8_q2_k128",
     "through shared memory: "},
    {"three_tokens_have_many",
     "attention_with_kv_cache",
     decoded(bf16, 3, 128),
     {},
     Target::cuda(),
     "_g8_q8_k128",
     ""},
    {"features_that_are_no_rows",
     "attention_with_kv_cache",
     decoded(bf16, 1, 96),
     {},
     Target::cuda(),
     "_g8_q8_k128",
     ""},
    {"bytes_are_widened",
     "attention_with_kv_cache",
     decoded(e4m3, 5, 128),
     {},
     Target::cuda(),
     "one thread loads by the copy engine",
     ""},
    {"odd_strides",
     "gemm",
     with_view(matrices(bf16, 512, 512, 512), "a", Tensor::empty({512, 513}, bf16).slice(1, 0, 512)),
     {},
     Target::cuda(),
     "roles: ",
     "rows that do not begin at multiples of 16 bytes"},
    {"odd_strides_of_keys",
     "attention",
     with_view(heads(bf16, 1024, 128), "k", Tensor::empty({1, 1024, 4, 129}, bf16).slice(3, 0, 128)),
     {},
     Target::cuda(),
     "one thread loads by the copy engine",
     "rows that do not begin at multiples of 16 bytes are copied first"},
    {"odd_strides_of_a_cache",
     "attention_with_kv_cache",
     with_view(decoded(bf16, 1, 128), "k_cache", Tensor::empty({2, 300, 2, 129}, bf16).slice(3, 0, 128)),
     {},
     Target::cuda(),
     "roles: ",
     "threads bring rows of a cache that do not begin at multiples of 16 bytes"},
    {"rows_of_a_larger_one",
     "gemm",
     with_view(matrices(bf16, 512, 512, 512), "b",
               Tensor::empty({520, 512}, bf16).slice(1, 0, 512).slice(0, 1, 513)),
     {},
     Target::cuda(),
     "roles: ",
     ""},
    {"attention",
     "attention",
     heads(bf16, 1024, 128),
     {{"causal", "true"}},
     Target::cuda(),
     "roles: ",
     "tiles of 128 queries fill 14 %"},
    {"attention_packed",
     "attention",
     packed(bf16, 1024, 128),
     {},
     Target::cuda(),
     "roles: ",
     "by threads: if a limit"},
    {"attention_f32",
     "attention",
     heads(f32, 512, 64),
     {},
     Target::cuda(),
     "by multiply-add",
     "multiply-add: "},
    {"gradients",
     "attention_backward",
     heads(bf16, 1024, 128, true),
     {},
     Target::cuda(),
     "roles: ",
     "a processor has 4 steps of 128 keys"},
};

class ExplainedCall : public ::testing::TestWithParam<CallCase> {};

TEST_P(ExplainedCall, TellsItsWayAndItsNotes) {
  const CallCase& c = GetParam();
  const auto kernels = explain(c.op, c.inputs, c.options, c.target);
  ASSERT_FALSE(kernels.empty());
  std::string text;
  std::vector<std::string> notes;
  for (const Explanation& kernel : kernels) {
    EXPECT_FALSE(kernel.ways.empty());
    text += kernel.text();
    notes.insert(notes.end(), kernel.notes.begin(), kernel.notes.end());
  }
  EXPECT_NE(text.find(c.way), std::string::npos) << text;
  for (const std::string& note : notes) EXPECT_NE(text.find(note), std::string::npos) << text;
  const bool found = std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
    return note.substr(note.find(": ") + 2).starts_with(c.note);
  });
  EXPECT_EQ(found, !c.note.empty()) << text;
}

INSTANTIATE_TEST_SUITE_P(Calls, ExplainedCall, ::testing::ValuesIn(call_cases),
                         [](const auto& info) { return info.param.name; });

// A row is a block's work.
TEST(Explain, SaysWhereACpuHasFewerBlocksThanThreads) {
  if (thread_pool().size() < 2) GTEST_SKIP() << "there is one thread";
  const auto notes = [](std::int64_t rows, Target target) {
    return explain("softmax", {{"x", Tensor::empty({rows, 100}, f32)}}, {}, target)[0].notes;
  };
  ASSERT_EQ(notes(1, Target::cpu()).size(), 1u);
  EXPECT_NE(notes(1, Target::cpu())[0].find(": few blocks: 1 block for "), std::string::npos);
  EXPECT_TRUE(notes(1 << 16, Target::cpu()).empty());
  EXPECT_TRUE(notes(1, Target::cuda()).empty());
}

TEST(Explain, SaysWhereACpuReducesShortRows) {
  const auto notes = [](const char* op, std::int64_t numbers) {
    return explain(op, {{"x", Tensor::empty({1 << 16, numbers}, bf16)}}, {}, Target::cpu())[0].notes;
  };
  for (const char* op : {"softmax", "rms_norm"}) {
    ASSERT_EQ(notes(op, 8).size(), 1u) << op;
    EXPECT_NE(notes(op, 20)[0].find(": short rows: rows of 20 numbers "), std::string::npos) << op;
    EXPECT_TRUE(notes(op, 64).empty()) << op;
  }
}

// Notes of a compiled function, of an explanation, and what TEGULA_TARGET makes of `automatic`.
TEST(Explain, SaysOfAKernelWhatItsFunctionSays) {
  const lang::Kernel kernel = lang::kernel("wide_product", [] {
    using namespace lang;
    lang::Tensor a = input("a", {96, 64}, bf16), b = input("b", {64, 64}, bf16),
                 c = output("c", {96, 64}, f32);
    grid(1, [&](Index) {
      Shared x({96, 64}, bf16), y({64, 64}, bf16);
      Fragment sum({96, 64}, f32, 0);
      lang::copy(a, x);
      lang::copy(b, y);
      gemm(x, y, sum);
      lang::copy(sum, c);
    });
  });
  const Explanation told = explain(kernel, Target::emulated_sm90());
  ASSERT_EQ(told.notes.size(), 1u);
  EXPECT_EQ(told.notes[0].substr(0, 16), "explain_test.cpp");
  EXPECT_EQ(compile(kernel, Target::emulated_sm90()).notes(), told.notes);
  EXPECT_EQ(explain(kernel, Target::cuda()).notes, told.notes);
  const ScopedVariable variable(Variable::target, "emulated_sm90");
  EXPECT_EQ(explain(kernel).text(), told.text());
  EXPECT_EQ(explain("gemm", matrices(bf16, 512, 512, 512))[0].kernel,
            explain("gemm", matrices(bf16, 512, 512, 512), {}, Target::cuda())[0].kernel);
}

TEST(Explain, RefusesWhatTheCallRefuses) {
  EXPECT_ERROR(ArgumentError, "there is no operator 'gem'", explain("gem", {}));
  EXPECT_ERROR(ArgumentError, "gemm needs the input 'b'",
               explain("gemm", {{"a", Tensor::empty({2, 2}, f32)}}));
  EXPECT_ERROR(ArgumentError, "gemm has no option", explain("gemm", matrices(f32, 4, 4, 4), {{"tile", "3"}}));
  EXPECT_ERROR(ArgumentError, "with k = 3, as a",
               explain("gemm", {{"a", Tensor::empty({2, 3}, f32)}, {"b", Tensor::empty({2, 3}, f32)}}));
}

}  // namespace explain_test
}  // namespace tegula
