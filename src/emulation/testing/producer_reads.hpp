// Programs with tiles that the producer brings and reads itself, to know what else to bring: rows of gathers,
// places of copies, bounds of loops, elements of other tiles.
#pragma once
#include <functional>
#include <vector>

#include "tegula/lang.hpp"

namespace tegula::emulation::producer_reads {

inline constexpr int rows = 50, dim = 64, entries = 256, steps = 4, listed = entries / steps;

// What a block has, and what it does in the end with rows of the table.
struct Block {
  const lang::Tensor &table, &list, &fours;  // the list by rows of four
  lang::Expr number;                         // of the block
  const lang::Shared& queries;
  lang::Fragment& sum;  // += queries · rowsᵀ
  bool both;            // the consumers read the tiles as well
};
using Column = std::function<lang::Expr(const lang::Expr&)>;

inline void use(const Block& b, const lang::Shared& tile, const Column& column) {
  using namespace lang;
  gemm(b.queries, tile.T(), b.sum);
  if (b.both) parallel(b.sum, [&](Index i, Index c) { b.sum(i, c) += f32(column(c)); });
}

struct Reads {
  const char* name;
  std::function<void(const Block&)> body;
  enum class Waits : std::uint8_t {
    if_both,
    never,
    always
  } waits = Waits::if_both;  // the producer, for what it reads
  int blocks = 1;
  bool uneven = false;  // blocks come from a counter
};

inline void each_step(const std::function<void(const lang::Index&)>& body) {
  lang::pipelined(steps, {.stages = 2}, body);
}

inline void gather_and_use(const Block& b, const lang::Shared& list) {
  using namespace lang;
  Shared tile({listed, dim}, bf16);
  gather(b.table, list, tile);
  use(b, tile, [&](const Expr& c) -> Expr { return list(c); });
}

inline const std::vector<Reads> all_reads{
    {"list_by_copy",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared own({listed}, i32);
         copy(b.list.at(j * listed), own);
         gather_and_use(b, own);
       });
     }},
    {"list_by_loop",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared own({listed}, i32);
         parallel(own, [&](Index i) { own(i) = b.list(j * listed + i); });
         gather_and_use(b, own);
       });
     },
     Reads::Waits::never},
    {"list_computed",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared own({listed}, i32);
         parallel(own, [&](Index i) { own(i) = b.list(j * listed + (listed - 1) - i) + 1; });
         gather_and_use(b, own);
       });
     },
     Reads::Waits::never},
    {"list_before_the_loop",
     [](const Block& b) {
       using namespace lang;
       Shared whole({entries}, i32);
       copy(b.list.at(0), whole);
       each_step([&](const Index& j) {
         Shared tile({listed, dim}, bf16);
         gather(
             b.table, [&](Index i) -> Expr { return whole(j * listed + i); }, tile);
         use(b, tile, [&](const Expr& c) -> Expr { return whole(j * listed + c); });
       });
     }},
    {"list_by_gather",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared four({listed / 4, 4}, i32), tile({listed, dim}, bf16);
         gather(
             b.fours, [&](Index i) -> Expr { return j * (listed / 4) + (i + 3) % 16; }, four);
         gather(
             b.table, [&](Index i) -> Expr { return four(i / 4, i % 4); }, tile);
         use(b, tile, [&](const Expr& c) -> Expr { return four(c / 4, c % 4); });
       });
     }},
    {"list_in_a_view",
     [](const Block& b) {
       using namespace lang;
       lang::Tensor listed_range = b.list.slice(range(0, b.list(0) + 70));
       each_step([&](const Index& j) {
         Shared own({listed}, i32);
         copy(listed_range.at(j * listed), own);
         gather_and_use(b, own);
       });
     }},
    {"list_in_two_parts",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared own({listed / 4, 4}, i32), tile({listed, dim}, bf16);
         for (int half = 0; half < 2; ++half)
           copy(b.fours.at(j * 16 + (1 - half) * 8, 0), own.slice(range(half * 8, half * 8 + 8), all));
         gather(
             b.table, [&](Index i) -> Expr { return own(i / 4, i % 4); }, tile);
         use(b, tile, [&](const Expr& c) -> Expr { return own(c % 16, c / 16); });
       });
     }},
    {"list_read_between_its_parts",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared own({listed / 4, 4}, i32), tile({listed, dim}, bf16);
         copy(b.fours.at(j * 16, 0), own.slice(range(0, 8), all));
         gather(
             b.table, [&](Index i) -> Expr { return own(i % 8, i / 16); }, tile);
         copy(b.fours.at(j * 16 + 8, 0), own.slice(range(8, 16), all));
         use(b, tile, [&](const Expr& c) -> Expr { return own(c % 16, c / 16); });
       });
     },
     Reads::Waits::never},
    {"place_of_a_copy",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared own({listed}, i32), tile({listed, dim}, bf16);
         copy(b.list.at(j * listed), own);
         copy(b.table.at(own(5), 0), tile);
         use(b, tile, [&](const Expr& c) -> Expr { return own(c); });
       });
     }},
    {"place_from_before_the_loop",
     [](const Block& b) {
       using namespace lang;
       Shared whole({entries}, i32);
       copy(b.list.at(0), whole);
       each_step([&](const Index& j) {
         Shared tile({listed, dim}, bf16);
         copy(b.table.at(whole(j * 7), 0), tile);
         use(b, tile, [&](const Expr& c) -> Expr { return whole(c); });
       });
     }},
    {"place_in_the_tensor",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared tile({listed, dim}, bf16);
         gather(
             b.table, [&](Index i) -> Expr { return b.list(j * listed + i); }, tile);
         use(b, tile, [&](const Expr& c) -> Expr { return b.list(j * listed + c); });
       });
     },
     Reads::Waits::never},
    {"converted_tile",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared raw({listed, dim}, bf16), tile({listed, dim}, bf16);
         copy(b.table.at(j * 16, 0), raw);
         parallel(tile, [&](Index i, Index d) { tile(i, d) = raw(i, d) * 2; });
         if (b.both) gemm(b.queries, raw.T(), b.sum);
         use(b, tile, [&](const Expr& c) -> Expr { return raw(c, 3); });
       });
     }},
    {"converted_rows",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared raw({listed, dim}, bf16), tile({listed, dim}, bf16);
         gather(
             b.table, [&](Index i) -> Expr { return b.list(j * listed + i); }, raw);
         parallel(tile, [&](Index i, Index d) { tile(i, d) = raw(63 - i, d) * 2; });
         use(b, tile, [&](const Expr& c) -> Expr { return raw(c, 3); });
       });
     }},
    // A column of the list by fours, whose elements threads copy one by one.
    {"rows_times_a_column",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared raw({listed, dim}, bf16), own({listed}, i32), tile({listed, dim}, bf16);
         copy(b.table.at(j * 16, 0), raw);
         copy(b.fours.slice(all, 1).at(j * 3), own);
         parallel(tile, [&](Index i, Index d) { tile(i, d) = raw(i, d) * f32(own(i) % 4); });
         use(b, tile, [&](const Expr& c) -> Expr { return own(c); });
       });
     }},
    {"number_without_dims",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared one({}, i32), tile({listed, dim}, bf16);
         fill(one, b.list(j) + 1);
         copy(b.table.at(b.list(j), 0), tile);
         use(b, tile, [&](const Expr& c) -> Expr { return one.scalar() + c; });
       });
     },
     Reads::Waits::never},
    {"list_by_column",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared own({listed}, i32);
         copy(b.fours.slice(all, 3).at(j), own);
         gather_and_use(b, own);
       });
     }},
    {"list_from_an_odd_place",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared own({listed}, i32), tile({listed, dim}, bf16);
         copy(b.list.at(j * 7 + 1), own);
         copy(b.table.at(own(5), 0), tile);
         use(b, tile, [&](const Expr& c) -> Expr { return own(c); });
       });
     }},
    {"bounds_of_the_loop",
     [](const Block& b) {
       using namespace lang;
       Shared whole({entries}, i32);
       copy(b.list.at(0), whole);
       pipelined(range(whole(3) % 3, whole(4) % 3 + 3), {.stages = 2}, [&](Index j) {
         Shared tile({listed, dim}, bf16);
         copy(b.table.at(j * 3, 0), tile);
         use(b, tile, [&](const Expr& c) -> Expr { return whole(c); });
       });
     },
     Reads::Waits::always, 3},
    {"condition_of_a_branch",
     [](const Block& b) {
       using namespace lang;
       serial(5, [&](Index n) {
         Shared own({listed}, i32);
         copy(b.list.at(n * 16), own);
         when(own(n) % 2 == 0, [&] {
           pipelined(own(1) % 3, {.stages = 2}, [&](Index j) {
             Shared tile({listed, dim}, bf16);
             copy(b.table.at(j * 3 + n, 0), tile);
             use(b, tile, [&](const Expr& c) -> Expr { return own(c); });
           });
         });
       });
     },
     Reads::Waits::always},
    {"nested_loops",
     [](const Block& b) {
       using namespace lang;
       serial(steps, [&](Index n) {
         Shared own({listed}, i32);
         copy(b.list.at(n * listed), own);
         pipelined(3, {.stages = 3}, [&](Index j) {
           Shared tile({listed, dim}, bf16);
           gather(
               b.table, [&](Index i) -> Expr { return own((i + j * 5) % listed); }, tile);
           use(b, tile, [&](const Expr& c) -> Expr { return own(c); });
         });
       });
     },
     Reads::Waits::if_both, 3},
    {"two_lists",
     [](const Block& b) {
       using namespace lang;
       Shared whole({entries}, i32);
       copy(b.list.at(0), whole);
       each_step([&](const Index& j) {
         Shared own({listed}, i32), tile({listed, dim}, bf16);
         copy(b.list.at(j * listed), own);
         gather(
             b.table, [&](Index i) -> Expr { return own(i) + whole(i + j) % 2; }, tile);
         use(b, tile, [&](const Expr& c) -> Expr { return own(c) + whole(c); });
       });
     }},
    {"list_of_a_list",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared raw({listed}, i32), own({listed}, i32);
         copy(b.list.at(j * listed), raw);
         parallel(own, [&](Index i) { own(i) = raw((raw(i) + i) % listed); });
         gather_and_use(b, own);
       });
     },
     Reads::Waits::never, 2},
    {"gather_by_a_gather",
     [](const Block& b) {
       using namespace lang;
       each_step([&](const Index& j) {
         Shared raw({listed}, i32), four({listed / 4, 4}, i32), tile({listed, dim}, bf16);
         copy(b.list.at(j * listed), raw);
         gather(
             b.fours, [&](Index i) -> Expr { return raw(i); }, four);
         gather(
             b.table, [&](Index i) -> Expr { return four(i / 4, i % 4); }, tile);
         use(b, tile, [&](const Expr& c) -> Expr { return raw(c) + four(c / 4, c % 4); });
       });
     }},
    {"beside_a_step_ahead",
     [](const Block& b) {
       using namespace lang;
       Shared whole({entries}, i32);
       copy(b.list.at(0), whole);
       each_step([&](const Index& j) {
         Shared tile({listed, dim}, bf16), other({listed, dim}, bf16);
         copy(b.table.at(b.list(j), 0), tile);
         copy(b.table.at(whole(j * 9) + b.list(j), 0), other);
         gemm(b.queries, other.T(), b.sum);
         use(b, tile, [&](const Expr& c) -> Expr { return whole(c) + b.list(j); });
       });
     }},
    {"many_blocks",
     [](const Block& b) {
       using namespace lang;
       Shared whole({entries}, i32);
       copy(b.list.at(b.number * 4), whole);
       each_step([&](const Index& j) {
         Shared own({listed}, i32);
         copy(b.list.at(whole(j) + b.number * 3), own);
         gather_and_use(b, own);
       });
     },
     Reads::Waits::if_both, 5},
    {"blocks_from_a_counter",
     [](const Block& b) {
       using namespace lang;
       Shared whole({entries}, i32);
       copy(b.list.at(b.number * 4), whole);
       pipelined(whole(b.number) % 5, {.stages = 2}, [&](const Index& j) {
         Shared own({listed}, i32);
         copy(b.list.at(j * listed + b.number * 4), own);
         gather_and_use(b, own);
       });
     },
     Reads::Waits::always, 5, true},
    {"places_of_blocks_from_a_counter",
     [](const Block& b) {
       using namespace lang;
       pipelined(b.list(b.number) % 5, {.stages = 2}, [&](const Index& j) {
         Shared own({listed}, i32), tile({listed, dim}, bf16);
         copy(b.list.at(j * listed), own);
         copy(b.table.at(own(b.number), 0), tile);
         use(b, tile, [&](const Expr& c) -> Expr { return own(c); });
       });
     },
     Reads::Waits::if_both, 5, true},
};

inline lang::Kernel program_of(const Reads& c, bool both) {
  using namespace lang;
  return kernel("producer_reads", [&] {
    Dim height("height");
    lang::Tensor table = input("table", {height, dim}, bf16), list = input("list", {entries}, i32),
                 fours = input("fours", {entries / 4, 4}, i32), q = input("q", {64, dim}, bf16),
                 out = output("out", {64 * c.blocks, listed}, f32);
    GridOptions options;
    if (c.uneven) options.order = Order::heavy_first([](Expr x) -> Expr { return x; });
    grid(c.blocks, options, [&](Index b) {
      Shared queries({64, dim}, bf16);
      copy(q.at(0, 0), queries);
      Fragment sum({64, listed}, f32, 0);
      c.body({table, list, fours, b, queries, sum, both});
      copy(sum, out.at(b * 64, 0));
    });
  });
}

}  // namespace tegula::emulation::producer_reads
