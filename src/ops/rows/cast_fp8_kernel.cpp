#include "ops/rows/cast_fp8_kernel.hpp"

#include <algorithm>
#include <cmath>

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int group = CastFp8Kernel::group, blocks_of_a_processor = 8;
constexpr float largest_e4m3 = 448, smallest_scale = 0x1p-126f;

}  // namespace

// A power of two that is not below a number has its exponent, one more unless the other bits are 0.
Expr fp8_scale(const Expr& magnitude, bool power_of_two) {
  Expr scale = max(magnitude * (1.f / largest_e4m3), smallest_scale);
  if (!power_of_two) return scale;
  return bitcast((bitcast(scale, u32) + 0x7fffffu) >> 23u << 23u, f32);
}

// A power of two is that of the scale in f32, which decides where a magnitude is a power itself.
double exact_fp8_scale(double magnitude, bool power_of_two) {
  const float single = std::max(static_cast<float>(magnitude) * (1.f / largest_e4m3), smallest_scale);
  if (power_of_two) return std::exp2(std::ceil(std::log2(single)));
  return std::max(magnitude / largest_e4m3, static_cast<double>(smallest_scale));
}

namespace {

// Groups of rows, one group after the other. A block of 128 rows has one group's rows: block i of group g has
// the number offsets[g] / 128 + g + i, which is free whatever the lengths are and is known without a sum over
// the groups before.
struct GroupsOfRows {
  static constexpr int at_once = 128;

  Expr rows;
  Expr count = scalar("groups", i32);
  Tensor offsets = input("offsets", {count + 1}, i32);

  // The group that a block belongs to: the last that begins at it or before. Every block looks at all
  // offsets.
  Expr of_block(const Expr& block) const {
    Fragment begun({at_once}, i32, 0), wrong({at_once}, i32, 0);
    serial(ceildiv(count, at_once), [&](Index step) {
      Expr first = step * at_once;
      Fragment begin = load(offsets.at(first), {at_once}), end = load(offsets.at(first + 1), {at_once});
      parallel(begun, [&](Index j) {
        Expr g = first + j, falls = begin(j) > end(j) || end(j) > rows || (g == 0 && begin(j) != 0);
        begun(j) += select(g < count && begin(j) / group + g <= block, 1, 0);
        wrong(j) += select(g < count && falls, 1, 0);
      });
    });
    check(reduce_sum(wrong).scalar() == 0);
    return reduce_sum(begun).scalar() - 1;
  }
  Range rows_of(const Expr& g) const { return range(offsets(g), offsets(g + 1)); }
  // body(column of blocks, block, its rows). The rows of a block are found once for all of its columns, by a
  // grid of their own: a tile begins with one number from the second-level cache instead of a search.
  template <class Body>
  void each_block(const Expr& blocks, const Expr& columns, const Body& body) const {
    Tensor places = workspace("places", {blocks, 2}, i32);  // the first row, and the end
    grid(blocks, [&](Index block) {
      const Var g = of_block(block);
      const Range rows = rows_of(g);
      Expr first = rows.begin + (block - rows.begin / group - g) * group;
      places(block, 0) = first;
      places(block, 1) = min(first + group, rows.end);
    });
    grid(columns, blocks, [&](Index column, Index block) {
      const Expr first = places(block, 0), end = places(block, 1);
      exit_if(first >= end);
      body(column, block, range(first, end));
    });
  }
  // A block of x. Rows are copied by vectors, the missing ones as zeros; into registers, a tile that ends
  // early would be loaded element by element.
  static Fragment tile(const Tensor& x, const Expr& column, const Range& rows) {
    Shared own({group, group}, x.type());
    copy(x.slice(0, rows).at(0, column * group), own);
    return load(own, {group, group}, f32);
  }
  static void check(const Expr& right) {
    assert_that(right, "offsets begin with 0, do not fall, end within the rows, and keep group_rows");
  }
};

// The first reading is by as many blocks as run at a time, each with a largest element of its own; the second
// begins with what was read last, which the cache still holds. `between` has what they know in common.
template <class From, class To, class Between>
void cast_with_one_scale(const CastFp8Kernel& c, const Expr& tiles, const From& from, const To& to,
                         const Between& between) {
  Tensor scales = output("scale", {1}, f32);
  Tensor largest = workspace("largest", {1}, f32, {.zero = true});
  Expr blocks = min(tiles, processors() * blocks_of_a_processor);
  const auto tile = [&](const Expr& number) { return load(from(number), {c.rows(), c.width()}, f32); };
  grid(blocks, [&](Index block) {
    Fragment most({c.rows(), c.width()}, f32, 0);
    pipelined(ceildiv(tiles - block, blocks), {.stages = 3}, [&](Index step) {
      Fragment values = tile(block + step * blocks);
      parallel(most, [&](Index i, Index j) { most(i, j) = max(most(i, j), abs(values(i, j))); });
    });
    atomic_max(largest(0), reduce_max(reduce_max(most)).scalar());
  });
  grid(1, [&](Index) {
    between(largest);
    scales(0) = fp8_scale(largest(0), c.power_of_two);
  });
  grid(tiles, [&](Index block) {
    Expr number = tiles - 1 - block;
    Fragment values = tile(number);
    Expr factor = 1.f / fp8_scale(largest(0), c.power_of_two);
    parallel(values, [&](Index i, Index j) { values(i, j) *= factor; });
    copy(values, to(number));
  });
}

// One scale has no shape: elements that follow each other in memory are whole tiles, and a rest.
void cast_rows_of_tiles(const CastFp8Kernel& c) {
  Dim tiles("tiles"), left("left");
  Tensor x = input("elements", {tiles, c.width()}, c.type), rest = input("rest", {left}, c.type);
  Tensor out = output("results", {tiles, c.width()}, e4m3), rest_out = output("rest_results", {left}, e4m3);
  cast_with_one_scale(
      c, tiles, [&](const Expr& number) { return x.at(number, 0); },
      [&](const Expr& number) { return out.at(number, 0); },
      [&](const Tensor& largest) {
        Fragment values = load(rest.at(0), {c.width()}, f32);
        const Var most = max(largest(0), reduce_absmax(values).scalar());
        largest(0) = most;
        const Expr factor = 1.f / fp8_scale(most, c.power_of_two);
        parallel(values, [&](Index j) { values(j) *= factor; });
        copy(values, rest_out.at(0));
      });
}

struct Cast {
  const CastFp8Kernel& c;
  Dim batch{"batch"}, m{"m"};
  Operand n = c.narrow ? Operand(*c.narrow) : Operand(Dim("n"));
  Tensor x = input("x", {batch, m, n}, c.type);
  Expr columns = ceildiv(n, group);

  Tensor result() const { return output("out", {batch, m, n}, e4m3); }
  int groups_of_tile() const { return std::max(c.width() / group, 1); }
  template <class Body>
  void tiles(const Body& body) const {
    grid(ceildiv(n, c.width()), ceildiv(m, c.rows()), batch, [&](Index column, Index row, Index b) {
      Fragment values = load(x.slice(b).at(row * c.rows(), column * c.width()), {c.rows(), c.width()}, f32);
      body(column, row, b, values);
    });
  }
  // Values become what is stored, and what they are divided by goes to `scales` [rows of the tile, groups].
  void by_tokens(Fragment& values, const Window& scales) const {
    const int groups = groups_of_tile();
    Fragment own = values.reshape({c.rows() * groups, c.width() / groups}), scale = reduce_absmax(own);
    parallel(scale, [&](Index i) { scale(i) = fp8_scale(scale(i), c.power_of_two); });
    copy(scale.reshape({c.rows(), groups}), scales);
    parallel(scale, [&](Index i) { scale(i) = 1.f / scale(i); });
    parallel(own, [&](Index i, Index j) { own(i, j) *= scale(i); });
  }
  void by_tokens() const {
    Tensor out = result(), scales = output("scale", {batch, m, columns}, f32);
    tiles([&](const Expr& column, const Expr& row, const Expr& b, Fragment& values) {
      by_tokens(values, scales.slice(b).at(row * c.rows(), column * groups_of_tile()));
      copy(values, out.slice(b).at(row * c.rows(), column * c.width()));
    });
  }
  // The same of rows of memory that follow each other, without a view that divides them.
  void by_elements() const {
    Tensor out = result(), scales = output("scale", {batch, m, columns}, f32);
    const int groups = c.width() / group;
    grid(ceildiv(n, c.width()), ceildiv(m, c.rows()), batch, [&](Index column, Index row, Index b) {
      const auto element = [&](const Tensor& of, Index i, Index g, Index j) {
        return of(b, row * c.rows() + i, column * c.width() + g * group + j);
      };
      Fragment values({c.rows(), groups, group}, f32);
      parallel(values, [&](Index i, Index g, Index j) { values(i, g, j) = f32(element(x, i, g, j)); });
      Fragment scale = reduce_absmax(values);
      parallel(scale, [&](Index i, Index g) { scale(i, g) = fp8_scale(scale(i, g), c.power_of_two); });
      copy(scale, scales.slice(b).at(row * c.rows(), column * groups));
      parallel(scale, [&](Index i, Index g) { scale(i, g) = 1.f / scale(i, g); });
      parallel(values,
               [&](Index i, Index g, Index j) { element(out, i, g, j) = values(i, g, j) * scale(i, g); });
    });
  }
  // The same of a tile with one scale.
  template <class Store>
  void by_blocks(Fragment& values, const Store& store) const {
    Expr scale = fp8_scale(reduce_absmax(reduce_absmax(values)).scalar(), c.power_of_two);
    store(scale);
    Expr factor = 1.f / scale;
    parallel(values, [&](Index i, Index j) { values(i, j) *= factor; });
  }
  void by_blocks() const {
    Tensor out = result(), scales = output("scale", {batch, ceildiv(m, group), columns}, f32);
    tiles([&](const Expr& column, const Expr& row, const Expr& b, Fragment& values) {
      by_blocks(values, [&](const Expr& scale) { scales(b, row, column) = scale; });
      copy(values, out.slice(b).at(row * c.rows(), column * group));
    });
  }
  void by_blocks_of_groups() const {
    const GroupsOfRows groups{m};
    Expr blocks = m / group + groups.count;
    Tensor out = result(), scales = output("scale", {blocks, columns}, f32);
    groups.each_block(blocks, columns, [&](const Expr& column, const Expr& block, const Range& rows) {
      Fragment values = groups.tile(x, column, rows);
      by_blocks(values, [&](const Expr& scale) { scales(block, column) = scale; });
      copy(values, out.slice(0, rows).at(0, column * group));
    });
  }
  // Zeros follow the rows that a group has.
  void by_tokens_of_groups() const {
    const GroupsOfRows groups{m};
    Dim most("group_rows");
    Tensor out = output("out", {groups.count, most, n}, e4m3);
    Tensor scales = output("scale", {groups.count, most, columns}, f32);
    grid(columns, ceildiv(most, c.rows()), groups.count, [&](Index column, Index row, Index g) {
      const Range rows = groups.rows_of(g);
      GroupsOfRows::check((g > 0 || rows.begin == 0) && rows.begin <= rows.end && rows.end <= m &&
                          rows.end - rows.begin <= most);
      Fragment values = load(x.slice(0, rows).at(row * c.rows(), column * group), {c.rows(), group}, f32);
      by_tokens(values, scales.slice(g).at(row * c.rows(), column));
      copy(values, out.slice(g).at(row * c.rows(), column * group));
    });
  }
  void as_one() const {
    Tensor out = result();
    const Expr rows = ceildiv(m, c.rows());
    const auto tile_of = [&](const Tensor& tensor, const Expr& number) {
      const Expr row = number / columns;
      return tensor.slice(row / rows).at(row % rows * c.rows(), number % columns * group);
    };
    cast_with_one_scale(
        c, columns * rows * batch, [&](const Expr& number) { return tile_of(x, number); },
        [&](const Expr& number) { return tile_of(out, number); }, [](const Tensor&) {});
  }
};

}  // namespace

Kernel cast_fp8_program(const CastFp8Kernel& c) {
  return kernel(instance_name("cast_fp8", c), [&] {
    if (c.as_row) return cast_rows_of_tiles(c);
    const Cast cast{c};
    if (c.scaling == Fp8Scaling::tensor)
      cast.as_one();
    else if (c.by_elements)
      cast.by_elements();
    else if (c.scaling == Fp8Scaling::token)
      c.of_groups ? cast.by_tokens_of_groups() : cast.by_tokens();
    else
      c.of_groups ? cast.by_blocks_of_groups() : cast.by_blocks();
  });
}

namespace {

// Blocks of groups, each with its own scale.
void uncast_groups(const UncastFp8Kernel& c) {
  Dim batch("batch"), m("m"), n("n");
  Tensor x = input("x", {batch, m, n}, e4m3), out = output("out", {batch, m, n}, c.out);
  const GroupsOfRows groups{m};
  Expr columns = ceildiv(n, group), blocks = m / group + groups.count;
  Tensor scales = input("scale", {blocks, columns}, f32);
  groups.each_block(blocks, columns, [&](const Expr& column, const Expr& block, const Range& rows) {
    Fragment values = groups.tile(x, column, rows);
    Expr own = scales(block, column);
    parallel(values, [&](Index i, Index j) { values(i, j) *= own; });
    copy(values, out.slice(0, rows).at(0, column * group));
  });
}

}  // namespace

Kernel uncast_fp8_program(const UncastFp8Kernel& c) {
  return kernel(instance_name("uncast_fp8", c), [&] {
    if (c.of_groups) return uncast_groups(c);
    constexpr int rows = 32;
    Dim batch("batch"), m("m"), n("n");
    const bool by_tokens = c.scaling == Fp8Scaling::token, as_one = c.scaling == Fp8Scaling::tensor;
    Tensor x = input("x", {batch, m, n}, e4m3), out = output("out", {batch, m, n}, c.out);
    Tensor scales =
        as_one ? input("scale", {1}, f32)
               : input("scale", {batch, by_tokens ? Expr(m) : ceildiv(m, group), ceildiv(n, group)}, f32);
    grid(ceildiv(n, group), ceildiv(m, rows), batch, [&](Index column, Index row, Index b) {
      Fragment values = load(x.slice(b).at(row * rows, column * group), {rows, group}, f32);
      if (by_tokens) {
        Fragment own = load(scales.slice(b, all, column).at(row * rows), {rows});
        parallel(values, [&](Index i, Index j) { values(i, j) *= own(i); });
      } else {
        Expr own = as_one ? Expr(scales(0)) : Expr(scales(b, row * rows / group, column));
        parallel(values, [&](Index i, Index j) { values(i, j) *= own; });
      }
      copy(values, out.slice(b).at(row * rows, column * group));
    });
  });
}

}  // namespace tegula::ops
