#include "ops/pieces/kept_rows.hpp"

#include <algorithm>

#include "ops/pieces/row_tiles.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

constexpr int vector_of_thread = 16;  // bytes of a piece that each thread has
// Shared memory that a block may have, and blocks of shorter rows that share a processor.
constexpr std::int64_t room = 208 * 1024, blocks_of_shorter = 3;

int piece_of(int threads, DType type) { return threads * vector_of_thread / type.bytes(); }

// Of pieces of `tensors`, for rows of so many bytes of all of them.
int slots(std::int64_t row, int threads, int tensors) {
  const std::int64_t piece = std::int64_t{threads} * vector_of_thread * tensors;
  return static_cast<int>(std::min((row + piece - 1) / piece + 1, room / piece));
}

std::int64_t pieces_of(std::int64_t features, const LongRows& rows) {
  return (features + rows.piece - 1) / rows.piece;
}

}  // namespace

bool ends_within_piece(std::int64_t features) {
  constexpr int elements = 8;
  return features % elements != 0;
}

LongRows direct_rows(std::int64_t row_bytes) {
  LongRows result = divided_rows(row_bytes, true);
  result.kept = 1;
  return result;
}

LongRows kept_rows(std::int64_t features, DType type, bool on_gpu, int tensors) {
  if (!on_gpu) return divided_rows(0, false);
  constexpr int shorter = 512, most = 1024;
  const std::int64_t row = features * type.bytes() * tensors;
  const int threads = row * blocks_of_shorter <= room ? shorter : most, piece = piece_of(threads, type);
  return {piece, threads, slots(row, threads, tensors), features % piece == 0};
}

SpreadRows spread_rows(std::int64_t features, DType type, bool on_gpu, int tensors) {
  constexpr int ctas = 8, few = 256, many = 512;
  const std::int64_t row = features * type.bytes() * tensors;
  if (!on_gpu || row <= room || ends_within_piece(features))
    return {kept_rows(features, type, on_gpu, tensors), {}};
  const int threads = row * blocks_of_shorter <= room * ctas ? few : many,
            piece = piece_of(ctas * threads, type);
  return {{piece, threads, slots(row / ctas, threads, tensors), features % piece == 0}, ctas};
}

std::optional<int> held_pieces(std::int64_t features, DType type, const LongRows& rows, int tensors) {
  constexpr int registers = 24, bytes_of_register = 2;  // an element of 16 bits may take one
  if (!rows.kept || type.bits() != 16) return std::nullopt;
  const std::int64_t of_piece = tensors * vector_of_thread / bytes_of_register,
                     pieces = std::min(pieces_of(features, rows) - *rows.kept, registers / of_piece);
  if (pieces <= 0) return std::nullopt;
  return static_cast<int>(pieces);
}

std::optional<int> threads_of_cut_row(std::int64_t features, bool has_clusters,
                                      std::initializer_list<int> pieces_of_thread) {
  constexpr std::int64_t of_round = 8 * ctas_of_held_row;  // elements of a piece of a thread of every CTA
  if (!has_clusters || !ends_within_piece(features)) return std::nullopt;
  const std::int64_t pieces = (features + of_round - 1) / of_round;
  const int threads = threads_with_pieces(pieces, pieces_of_thread);
  return threads > 0 ? std::optional(threads) : std::nullopt;
}

KeptRows::KeptRows(const LongRows& c, int held, std::vector<Row> rows) : c_(c), rows_(std::move(rows)) {
  for (int i = 0; i < held; ++i) {
    std::vector<Fragment>& own = held_.emplace_back();
    for (const Row& row : rows_) {
      own.emplace_back(Fragment({c_.piece}, row.of.type()));
      copy(row.of.at(i * c_.piece), own.back());
    }
  }
}

Expr KeptRows::count() const { return ceildiv(rows_[0].of.extent(0), c_.piece); }

void KeptRows::read(const Expr& first, bool fills, const Body& body) const {
  std::vector<Fragment> values;
  for (const Row& row : rows_) {
    values.emplace_back(Fragment({c_.piece}, f32));
    copy(row.of.at(first), values.back(), {.fill = fills ? row.fill : 0});
  }
  body(first, values);
}

void KeptRows::each_held(const Body& body) const {
  for (std::size_t i = 0; i < held_.size(); ++i) {
    std::vector<Fragment> values;
    for (const Fragment& own : held_[i]) values.push_back(own.to(f32));
    body(static_cast<int>(i) * c_.piece, values);
  }
}

void KeptRows::each(const Body& body) const {
  const int held = static_cast<int>(held_.size());
  pipelined(count() - held, {.stages = c_.stages()},
            [&](Index n) { read((n + held) * c_.piece, true, body); });
  each_held(body);
}

// What was read last comes first.
void KeptRows::each_again(const Body& body) const {
  const int held = static_cast<int>(held_.size());
  pipelined(count() - held, {.stages = c_.stages()},
            [&](Index n) { read((count() - 1 - n) * c_.piece, false, body); });
  each_held(body);
}

}  // namespace tegula::ops
