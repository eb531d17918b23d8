#include "ops/lists/inverse.hpp"

#include "ops/lists/running_sums.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

constexpr int columns = 256;         // lists that a block counts at a time
constexpr int chunks_at_a_time = 8;  // whose numbers are read

}  // namespace

InverseLists::InverseLists(int fold, const InverseExtents& extents, OwnerOf owner_of)
    : fold_(fold),
      words_(words_of(fold)),
      extents_(extents),
      owner_of_(std::move(owner_of)),
      counts_(workspace("chunk_counts", {extents.heads, extents.chunks, extents.longest_lists}, i32)),
      begins_(workspace("list_begins", {extents.heads, extents.lists}, i32)),
      lengths_(workspace("list_lengths", {extents.heads, extents.lists}, i32)),
      rows_(workspace("list_rows", {extents.heads, extents.entries}, i32)) {
  if (fold > 1) bits_.emplace(workspace("list_bits", {extents.heads, extents.entries, words_}, u32));
}

void InverseLists::over_chunks(const OfChunkOfRows& body) const {
  Expr chunks = ceildiv(extents_.longest_rows, extents_.chunk),
       passes = ceildiv(extents_.longest_lists, columns);
  grid(chunks * passes, extents_.heads, extents_.sequences, [&](Index x, Index h, Index b) {
    Expr chunk = x / passes, begin = x % passes * columns;
    InverseOwner owner = owner_of_(h, b);
    exit_if(chunk * extents_.chunk >= owner.rows || begin >= owner.lists);
    body(chunk, begin, h, owner);
  });
}

void InverseLists::record_count() const {
  over_chunks([this](const Expr& chunk, const Expr& begin, const Expr& h, const InverseOwner& owner) {
    count(chunk, begin, h, owner);
  });
}

void InverseLists::record_begins() const {
  grid(extents_.heads, extents_.sequences, [&](Index h, Index b) { find_begins(h, owner_of_(h, b)); });
}

void InverseLists::record_rows() const {
  over_chunks([this](const Expr& chunk, const Expr& begin, const Expr& h, const InverseOwner& owner) {
    write(chunk, begin, h, owner);
  });
}

// A bit for every block that a row of the step names, by row and list.
void InverseLists::mark(const InverseOwner& owner, const Expr& step, const Expr& begin, Shared& marks) const {
  clear(marks);
  parallel(inverse_rows, [&](Index r) {
    Expr row = step * inverse_rows + r;
    when(row < owner.rows, [&] {
      owner.each(row, [&](const Expr& block) {
        // Only then can nothing overflow.
        when(block >= 0 && block < owner.blocks, [&] {
          Expr list = block / fold_ - begin;
          when(list >= 0 && list < columns, [&] {
            Expr bit = fold_ == 1 ? u32(1) : u32(1) << u32(block % fold_ % word_bits);
            Expr at = words_ == 1 ? list : list * words_ + block % fold_ / word_bits;
            marks(r, at) = marks(r, at) | bit;
          });
        });
      });
    });
  });
}

Expr InverseLists::is_marked(Shared& marks, const Expr& row, const Expr& column) const {
  if (words_ == 1) return marks(row, column) != 0u;
  Var bits = Expr(marks(row, column * words_));
  for (int w = 1; w < words_; ++w) bits |= marks(row, column * words_ + w);
  return Expr(bits) != 0u;
}

void InverseLists::each_step(const InverseOwner& owner, const Expr& chunk, const Expr& begin,
                             const OfMarks& body) const {
  auto of_step = [&](const Expr& step) {
    Shared marks({inverse_rows, columns * words_}, u32);
    mark(owner, step, begin, marks);
    body(step, marks);
  };
  const int steps = extents_.chunk / inverse_rows;
  if (steps == 1) return of_step(chunk);
  Expr first = chunk * steps;
  serial(min(ceildiv(owner.rows, inverse_rows) - first, steps), [&](Index n) { of_step(first + n); });
}

// Columns' numbers are carried from step to step where there are several.
void InverseLists::count(const Expr& chunk, const Expr& begin, const Expr& head,
                         const InverseOwner& owner) const {
  std::optional<Shared> numbers;
  auto store = [&](const Index& j, const auto& number) {
    when(begin + j < owner.lists, [&] { counts_(head, owner.chunk_begin + chunk, begin + j) = number; });
  };
  if (extents_.chunk > inverse_rows) {
    numbers.emplace(Shared({columns}, i32));
    clear(*numbers);
  }
  each_step(owner, chunk, begin, [&](const Expr&, Shared& marks) {
    parallel(columns, [&](Index j) {
      Var number = 0;
      serial(inverse_rows, [&](Index r) { number += select(is_marked(marks, r, j), 1, 0); });
      if (numbers)
        (*numbers)(j) += number;
      else
        store(j, number);
    });
  });
  if (!numbers) return;
  parallel(columns, [&](Index j) {
    Expr number = (*numbers)(j);
    store(j, number);
  });
}

// The numbers of all chunks, a few at a time, so that what is read of them is under way together.
void InverseLists::each_chunk(const Expr& head, const InverseOwner& owner, const Expr& list,
                              const OfChunk& body) const {
  Expr chunks = ceildiv(owner.rows, extents_.chunk);
  serial(ceildiv(chunks, chunks_at_a_time), [&](Index group) {
    std::vector<Expr> numbers;
    for (int i = 0; i < chunks_at_a_time; ++i) {
      Expr n = group * chunks_at_a_time + i;
      // After the last are those of another sequence.
      Expr number = counts_(head, owner.chunk_begin + min(n, chunks - 1), list);
      numbers.push_back(select(n < chunks, number, 0));
    }
    for (int i = 0; i < chunks_at_a_time; ++i) {
      Expr n = group * chunks_at_a_time + i;
      body(n, n < chunks, numbers[static_cast<std::size_t>(i)]);
    }
  });
}

// Lengths of the lists, their begins, and the start of each chunk's rows in place of their number.
void InverseLists::find_begins(const Expr& head, const InverseOwner& owner) const {
  Expr passes = ceildiv(owner.lists, columns);
  Var next = owner.entry_begin;
  serial(passes, [&](Index pass) {
    Shared length({columns}, i32), begin({columns}, i32);
    Expr first = pass * columns;
    parallel(columns, [&](Index j) {
      Var sum = 0;
      each_chunk(head, owner, first + j,
                 [&](const Expr&, const Expr&, const Expr& number) { sum += number; });
      length(j) = select(first + j < owner.lists, sum, 0);
    });
    add_up(clone(length), begin, next);
    parallel(columns, [&](Index j) {
      when(first + j < owner.lists, [&] {
        lengths_(head, owner.list_begin + first + j) = length(j);
        begins_(head, owner.list_begin + first + j) = begin(j);
        Var at = begin(j);
        each_chunk(head, owner, first + j, [&](const Expr& n, const Expr& exists, const Expr& number) {
          when(exists, [&] { counts_(head, owner.chunk_begin + n, first + j) = at; });
          at += number;
        });
      });
    });
  });
}

void InverseLists::write(const Expr& chunk, const Expr& begin, const Expr& head,
                         const InverseOwner& owner) const {
  auto begin_of = [&](const Expr& j) -> Expr { return counts_(head, owner.chunk_begin + chunk, begin + j); };
  std::optional<Shared> cursors;
  if (extents_.chunk > inverse_rows) {
    cursors.emplace(Shared({columns}, i32));
    parallel(columns, [&](Index j) {
      (*cursors)(j) = 0;
      when(begin + j < owner.lists, [&] { (*cursors)(j) = begin_of(j); });
    });
  }
  each_step(owner, chunk, begin, [&](const Expr& step, Shared& marks) {
    parallel(columns, [&](Index j) {
      when(begin + j < owner.lists, [&] {
        Var at = cursors ? Expr((*cursors)(j)) : begin_of(j);
        serial(inverse_rows, [&](Index r) {
          when(is_marked(marks, r, j), [&] {
            rows_(head, at) = step * inverse_rows + r;
            for (int w = 0; bits_ && w < words_; ++w)
              (*bits_)(head, at, w) = words_ == 1 ? Expr(marks(r, j)) : Expr(marks(r, j * words_ + w));
            at += 1;
          });
        });
        if (cursors) (*cursors)(j) = at;
      });
    });
  });
}

InverseLists::List InverseLists::list(const Expr& head, const Expr& sequence, const Expr& number) const {
  InverseOwner owner = owner_of_(head, sequence);
  List result{rows_.slice(head),
              {},
              begins_(head, owner.list_begin + number),
              lengths_(head, owner.list_begin + number)};
  if (bits_) result.bits.emplace(bits_->slice(head));
  return result;
}

}  // namespace tegula::ops
