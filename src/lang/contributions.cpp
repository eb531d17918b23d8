#include "lang/contributions.hpp"

#include "lang/builder.hpp"

namespace tegula::lang {

void Contributions::check(const ir::Buffer& tensor, std::size_t grid, bool ordered, const Loc& at) {
  const auto [found, is_new] = tensors_.try_emplace(&tensor, OfTensor{grid, ordered});
  if (!is_new && found->second.grid == grid && found->second.ordered != ordered)
    fail(at, "`" + tensor.name +
                 "` gets contributions with an order and without one in one grid; give all of them an order, "
                 "or use a grid for each kind");
  if (found->second.grid != grid) found->second = {grid, ordered};
}

ir::BufferPtr& Contributions::turn_words(const ir::View& window, const std::vector<std::int64_t>& extents,
                                         const Loc& at) {
  OfTensor& own = tensors_.at(window.buffer.get());
  if (own.words && !ir::equal(own.shape, window.shape))
    fail(at,
         "`" + window.buffer->name +
             "` gets contributions with consecutive orders in two shapes in one grid; reshape it once for "
             "all of them, or use a grid for each");
  if (own.words && own.of_tile != extents)
    fail(at, "`" + window.buffer->name +
                 "` gets contributions with consecutive orders from tiles of different extents in one grid; "
                 "give the tiles the same extents, or use a grid for each");
  own.shape = window.shape;
  own.of_tile = extents;
  return own.words;
}

}  // namespace tegula::lang
