// Prints how rows of tensors become shared tiles: copied in pieces of 16 bytes, or converted to another type,
// the rows found one by one or by moving from one to the next.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/cuda/element_printer.hpp"
#include "passes/cuda/plan_byte_turns.hpp"
#include "passes/cuda/plan_conversions.hpp"
#include "passes/cuda/plan_rows.hpp"

namespace tegula::codegen {

class RowPrinter : protected ElementPrinter {
 protected:
  using ElementPrinter::ElementPrinter;
  ~RowPrinter() = default;
  // The loop of a conversion, an element at a time.
  virtual void convert_elements(const ir::For& loop) = 0;

  void add_indices(const ir::For& n);

  // ---- rows of tensors to shared tiles (print_rows.cpp)
  void rows(const passes::RowCopy& plan, bool async);
  void name_rows(const ir::For& loop, const std::string& number);
  void name_column(const ir::For& loop, const std::string& number, std::int64_t pieces, int elements);
  void lookup(const ir::For& loop, const passes::RowCopy& plan);
  void rows_one_by_one(const ir::For& loop, const passes::RowCopy& plan, std::int64_t pieces, bool async);
  void rows_in_batches(const ir::For& loop, const passes::RowCopy& plan, std::int64_t pieces,
                       std::int64_t blocks);
  Texts bytes_of_pieces(const passes::RowCopy& plan, std::int64_t lanes, std::int64_t blocks);
  std::int64_t rows_at_once(const passes::RowCopy& plan, std::int64_t blocks) const;
  struct Piece {
    std::string from, exists, bytes, number;  // no bytes: all of it
  };
  using EachPiece = std::function<void(const std::function<void(const Piece&)>&)>;
  void copy_pieces(const passes::RowCopy& plan, std::int64_t count, const EachPiece& each);
  std::string held_piece_text(const Piece& piece) const;
  void copy_piece(const passes::RowCopy& plan, const std::string& from, const std::string& exists,
                  const std::string& bytes);
  GuardedAddress row_address(const passes::RowCopy& plan, bool async);
  std::string piece_bytes_text(const passes::RowCopy& plan, std::int64_t more);

  // ---- rows of tensors that become tiles of another type (print_conversions.cpp)
  std::int64_t pieces_of_thread(const passes::RowConversion& plan) const;
  void convert_rows(const passes::RowConversion& plan);
  std::vector<std::size_t> dims_asked_by_piece(const ir::For& loop, const ir::Access& from,
                                               int elements) const;
  Texts conditions_of_pieces(const passes::RowConversion& plan);
  std::vector<std::size_t> dims_of_rows(const ir::For& loop, const ir::Load& load) const;
  using PrintPieces = std::function<void(const passes::RowConversion&, const PieceRegisters&)>;
  void by_existing_rows(const passes::RowConversion& plan, const PieceRegisters& registers, bool in_ranges,
                        const PrintPieces& pieces, const std::function<void()>& otherwise);
  std::int64_t words_of_piece(const passes::RowConversion& plan) const;
  PieceRegisters registers_of_pieces(const passes::RowConversion& plan);
  std::int64_t registers_of_producer() const;
  std::int64_t words_to_convert() const;
  void each_piece(const passes::RowConversion& plan, std::int64_t count, const std::string& first,
                  const std::function<void()>& print);
  void load_pieces(const passes::RowConversion& plan, const PieceRegisters& registers);
  void make_pieces(const passes::RowConversion& plan, const PieceRegisters& registers, const Texts& places);
  void convert_in_batches(const passes::RowConversion& plan, const PieceRegisters& registers);
  void convert_batches(const passes::RowConversion& plan, const PieceRegisters& registers);
  void name_piece(const passes::RowConversion& plan, const std::string& round);
  void name_piece_of_team(const passes::RowConversion& plan, std::int64_t of_row, const std::string& round);
  void load_row(const passes::RowConversion& plan, std::size_t statement);
  GuardedAddress address_of_piece(const passes::RowConversion& plan, std::size_t statement);
  void load_piece(const passes::RowConversion& plan, const Vectors& vectors);
  Texts places_of_piece(const passes::RowConversion& plan);
  void make_piece(const passes::RowConversion& plan, Vectors vectors, const Texts& places);

  // ---- elements of 8 bits that threads turn in registers (print_byte_turns.cpp)
  using PrintPiece = std::function<void(const std::string& piece)>;
  TurnConditions conditions_of_turn(const passes::ByteTurn& plan);
  void each_turned_piece(const passes::ByteTurn& plan, const PrintPiece& print);
  void load_turned(const passes::ByteTurn& plan, const std::string& to, const std::string& piece, bool all);
  void store_turned(const passes::ByteTurn& plan, const std::string& packs, const std::string& piece);
  void turn_bytes(const passes::ByteTurn& plan, const std::function<void()>& otherwise);

  // ---- ranges of columns, where each thread has pieces of one (print_row_ranges.cpp)
  static bool only_copies(const passes::RowConversion& plan);
  static std::int64_t pieces_of_row(const passes::RowConversion& plan);
  std::vector<passes::RowConversion> ranges_of_threads(const passes::RowConversion& plan) const;
  void in_range(const passes::RowConversion& plan, const std::string& column,
                const std::function<void()>& print);
  void wait_for_copies();
  void convert_in_ranges(std::vector<passes::RowConversion> ranges);
  void copy_looked_up(const passes::RowConversion& plan);

  // ---- rows that are found by moving from one to the next (print_moving_rows.cpp)
  std::vector<MovingPieces> moving_pieces(const passes::RowConversion& plan, const PieceRegisters& registers);
  std::optional<MovingPieces> moving_range(const passes::RowConversion& plan, const passes::MovingRows& rows,
                                           const PieceRegisters& registers);
  bool moves_in_ranges(const passes::RowConversion& plan);
  bool needs_no_question(const ir::Access& from, const std::vector<std::size_t>& asked);
  std::vector<std::size_t> dims_asked_for_all(const passes::RowConversion& plan, std::size_t statement) const;
  void name_first_piece(const MovingPieces& moving);
  void declare_moving(MovingPieces& moving, std::size_t statement);
  void declare_rows(MovingPieces& moving);
  void declare_places(MovingPieces& moving);
  void load_moving(const MovingPieces& moving);
  Texts places_of_piece(const MovingPieces& moving, const std::string& piece) const;
  void convert_moving(std::vector<MovingPieces> ranges);
  void convert_range(MovingPieces& moving);
  void copy_range(MovingPieces& moving);
};

}  // namespace tegula::codegen
