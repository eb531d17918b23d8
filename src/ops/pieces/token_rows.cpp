#include "ops/pieces/token_rows.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

// Numbers are read once for all tensors.
TokenRows::TokenRows(int tokens, int pack, const Token& token) : tokens_(tokens), token_(token) {
  if (!by_copy_engine(pack)) return;
  for (int i = 0; i < tokens; ++i) numbers_.push_back(token(Operand(i)));
}

void TokenRows::load(const Tensor& from, Shared& to) const {
  const int rows = to.extent(0) / tokens_, columns = to.extent(1);
  const bool vector = from.rank() == 2;
  if (numbers_.empty()) {
    const auto row = [&](Index i) -> Expr { return token_(i); };
    if (vector || rows == 1)
      gather(vector ? from : from.slice(all, 0), row, to);
    else
      gather(from, row, to.reshape({tokens_, rows, columns}));
    return;
  }
  for (int i = 0; i < tokens_; ++i) {
    const lang::Target rows_of_token = to.slice(range(i * rows, (i + 1) * rows), all);
    const Expr& number = numbers_[static_cast<std::size_t>(i)];
    if (vector)
      copy(from.at(number), rows_of_token);
    else
      copy(from.slice(number).at(0), rows_of_token);
  }
}

}  // namespace tegula::ops
