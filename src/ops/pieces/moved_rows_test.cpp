// Tensors whose rows begin anywhere are copied for operators that the copy engine serves.
#include "ops/pieces/moved_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/cuda_program.hpp"
#include "ops/pieces/matrices.hpp"
#include "ops/schema/strided.hpp"

namespace tegula::ops {
namespace moved_rows_test {

struct Case {
  const char* name;
  Strides strides;
  Target target;
  std::int64_t queries, keys;
  bool moved;
};

const Case cases[] = {
    {"odd", Strides::odd, Target::cuda(), 256, 256, true},
    {"sliced", Strides::sliced, Target::cuda(), 256, 256, false},
    {"padded", Strides::padded, Target::cuda(), 256, 256, false},
    {"plain", Strides::plain, Target::cuda(), 256, 256, false},
    {"no_copy_engine", Strides::odd, Target::cuda_sm80(), 256, 256, false},
    {"cpu", Strides::odd, Target::cpu(), 256, 256, false},
    {"few_queries_of_many_keys", Strides::odd, Target::cuda(), 64, 65536, false},
};

Tensor described(Strides strides, const Shape& shape) {
  return Tensor::adopt(described_as(strides, bf16, shape), nullptr);
}

std::string text_of(const lang::Kernel& kernel, bool copy_engine) {
  return codegen::print_cuda(Signature(kernel.ir()), {90, copy_engine}).text;
}

TEST(MovedRows, AreThoseThatBeginOffPieces) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto rows = [&](std::int64_t tokens) { return described(c.strides, {1, tokens, 2, 128}); };
    const Tensors tensors{
        {"q", rows(c.queries)},
        {"k", rows(c.keys)},
        {"v", rows(c.keys)},
        {"indices", Tensor::adopt(TensorRef(nullptr, i32, {1, 2, c.queries / 64, 2}), nullptr)}};
    const OptionValues options{{"q_block_size", std::int64_t{64}}, {"k_block_size", std::int64_t{64}}};
    const ListedCall listed =
        listed_by_name(find_schema("block_sparse_attention"), tensors, options, c.target);
    const auto copies = std::ranges::count_if(
        listed.kernels, [](const lang::Kernel& k) { return k.name().starts_with("copy_rows"); });
    EXPECT_EQ(copies, c.moved ? 1 : 0);
    const bool noted = std::ranges::any_of(listed.notes, [](const std::string& note) {
      return note.find("copied first, or written last") != std::string::npos;
    });
    EXPECT_EQ(noted, c.moved);
  }
}

// An explanation speaks of the copies of those that are moved, and of the others as they are.
TEST(MovedRows, AreContiguousToTheProgramsOfTheCall) {
  const Tensors tensors{{"q", described(Strides::odd, {2, 1, 16, 128})},
                        {"k_cache", described(Strides::odd, {2, 30000, 2, 128})},
                        {"v_cache", described(Strides::plain, {2, 30000, 2, 128})}};
  const ListedCall listed =
      listed_by_name(find_schema("attention_with_kv_cache"), tensors, {}, Target::cuda());
  EXPECT_EQ(listed.moved, std::vector<std::string>{"q"});
  const Tensors given = tensors_of_programs(listed, tensors);
  EXPECT_FALSE(starts_off_pieces(given.at("q").ref()));
  EXPECT_TRUE(starts_off_pieces(given.at("k_cache").ref()));
  EXPECT_FALSE(starts_off_pieces(given.at("v_cache").ref()));
}

TEST(MovedRows, OfDenseAttentionAreCopiedWhateverTheirNumber) {
  const Tensor keys = described(Strides::odd, {1, 65536, 2, 128});
  const Tensors tensors{{"q", described(Strides::plain, {1, 64, 2, 128})}, {"k", keys}, {"v", keys}};
  const auto copies = [&](Target target) {
    return std::ranges::any_of(
        listed_by_name(find_schema("attention"), tensors, {}, target).kernels,
        [](const lang::Kernel& kernel) { return kernel.name().starts_with("copy_rows"); });
  };
  EXPECT_TRUE(copies(Target::cuda()));
  EXPECT_FALSE(copies(Target::cuda_sm80())) << "no copy engine";
}

// Where the program without copy engine runs, as these rows ask.
TEST(MovedRows, AreCopiedByAlignedWords) {
  const Tensor rows = described(Strides::odd, {1, 256, 2, 128});
  const Tensors tensors{{"q", rows},
                        {"k", rows},
                        {"v", rows},
                        {"indices", Tensor::adopt(TensorRef(nullptr, i32, {1, 2, 4, 2}), nullptr)}};
  const OptionValues options{{"q_block_size", std::int64_t{64}}, {"k_block_size", std::int64_t{64}}};
  const ListedCall listed =
      listed_by_name(find_schema("block_sparse_attention"), tensors, options, Target::cuda());
  for (const lang::Kernel& kernel : listed.kernels) {
    if (!kernel.name().starts_with("copy_rows")) continue;
    EXPECT_NE(text_of(kernel, false).find("tg::load_anywhere<"), std::string::npos);
  }
}

// Threads load the aligned words around pieces of a cache; nothing is asked of where its rows begin but that
// elements do not lie across words.
TEST(MovedRows, OfCachesAreRead) {
  for (const int more : {1, 2, 4, 8}) {
    SCOPED_TRACE(more);
    const TensorRef wide(nullptr, bf16, {2, 300, 2, 128 + more});
    const Tensor cache = Tensor::adopt(wide.slice(-1, 0, 128), nullptr);
    const Tensors tensors{
        {"q", described(Strides::plain, {2, 1, 16, 128})}, {"k_cache", cache}, {"v_cache", cache}};
    const ListedCall listed =
        listed_by_name(find_schema("attention_with_kv_cache"), tensors, {}, Target::cuda());
    ASSERT_FALSE(listed.kernels.empty());
    const Signature signature(listed.kernels[0].ir());
    const codegen::CudaProgram program = codegen::print_cuda(signature, {90});
    EXPECT_EQ(program.text.find("tg::load_piece(") != std::string::npos, more == 1);
    EXPECT_EQ(program.text.find("tg::copy_units_async<4>(") != std::string::npos, more == 2);
    EXPECT_EQ(program.text.find("tg::copy_units_async<8>(") != std::string::npos, more == 4);
    EXPECT_EQ(listed.notes.empty(), more == 8);
    for (const auto& [position, unit] : program.aligned) {
      if (signature.buffers()[static_cast<std::size_t>(position)]->name != "k_cache") continue;
      EXPECT_EQ(unit, 2 * more);
    }
  }
}

// Threads bring the rows of a query once, and store its results once; those of keys are listed many times.
TEST(MovedRows, OfListedKeysAreCopied) {
  const Tensors tensors{{"q", described(Strides::odd, {512, 64, 576})},
                        {"kv", described(Strides::odd, {1024, 1, 576})},
                        {"indices", Tensor::adopt(TensorRef(nullptr, i32, {512, 1, 256}), nullptr)}};
  const OptionValues options{{"d_v", std::int64_t{512}}};
  const ListedCall listed = listed_by_name(find_schema("sparse_mla"), tensors, options, Target::cuda());
  EXPECT_EQ(listed.moved, std::vector<std::string>{"kv"});
  ASSERT_EQ(listed.kernels.size(), 2U);
  EXPECT_NE(text_of(listed.kernels[1], true).find("q_values_ + "), std::string::npos) << "no box";
}

// A grid that copies rows to whole pieces for products, and another that copies results to theirs.
TEST(MovedRows, OfProductsAreCopiedByAlignedWords) {
  const auto text = [](std::int64_t k, std::int64_t n) {
    const auto rows = [](const Shape& shape) { return described(Strides::plain, shape); };
    const ListedCall listed = listed_by_name(
        find_schema("gemm"), {{"a", rows({1024, k})}, {"b", rows({k, n})}}, {}, Target::cuda());
    return text_of(listed.kernels.at(0), true);
  };
  EXPECT_NE(text(1025, 1024).find("tg::load_anywhere<8, true>(a_"), std::string::npos);
  EXPECT_NE(text(1024, 1025).find("tg::store_anywhere<32>(out_"), std::string::npos);
  const std::string plain = text(1024, 1024);
  EXPECT_EQ(plain.find("_anywhere<"), std::string::npos);
}

// Rows of 64 features leave room for two blocks of a processor, whose producers hold fewer words.
TEST(MovedRows, OfFewRegistersAreAllOnTheirWay) {
  const auto text = [](std::int64_t features) {
    const Tensor cache = described(Strides::odd, {16, 8192, 2, features});
    const Tensors tensors{
        {"q", described(Strides::plain, {16, 1, 16, features})}, {"k_cache", cache}, {"v_cache", cache}};
    const ListedCall listed =
        listed_by_name(find_schema("attention_with_kv_cache"), tensors, {}, Target::cuda());
    return text_of(listed.kernels.at(0), true);
  };
  EXPECT_NE(text(64).find("uint4 words_[8];"), std::string::npos);
  EXPECT_NE(text(128).find("uint4 words_[16];"), std::string::npos);
}

}  // namespace moved_rows_test
}  // namespace tegula::ops
