// Tensors whose rows begin anywhere are copied for operators that the copy engine serves.
#include "ops/pieces/moved_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>

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

TEST(MovedRows, AreThoseThatBeginOffPieces) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto rows = [&](std::int64_t tokens) {
      return Tensor::adopt(described_as(c.strides, bf16, {1, tokens, 2, 128}), nullptr);
    };
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

}  // namespace moved_rows_test
}  // namespace tegula::ops
