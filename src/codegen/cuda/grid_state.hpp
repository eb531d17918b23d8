// The state while the function of one grid is printed for a GPU: the grid and its plan, where tiles and
// tensors are, and the current loop, role and branch.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codegen/cuda/block_order.hpp"
#include "codegen/cuda/box_stores.hpp"
#include "codegen/cuda/notes.hpp"
#include "codegen/cuda/places.hpp"
#include "codegen/cuda/reductions.hpp"
#include "codegen/cuda/step_writer.hpp"
#include "codegen/cuda_program.hpp"
#include "passes/cuda/cuda_plan.hpp"
#include "passes/cuda/moving_rows.hpp"
#include "passes/cuda/neighbour_loads.hpp"
#include "passes/cuda/plan_byte_turns.hpp"
#include "passes/cuda/plan_conversions.hpp"
#include "passes/cuda/row_loops.hpp"
#include "runtime/call/binding.hpp"

namespace tegula::codegen {

class GridState {
 protected:
  // The state for grid `number` of the plan.
  GridState(const Signature& signature, const passes::CudaPlan& plan, int number, CudaProgram& program)
      : signature_(signature),
        target_(plan.target),
        waits_(plan.waits),
        number_(number),
        planned_(plan.kernel.grids[static_cast<std::size_t>(number)]),
        plan_(plan.grids[static_cast<std::size_t>(number)]),
        program_(program) {}

  const Signature& signature_;
  const passes::CudaTarget& target_;
  const std::vector<passes::GridWait>& waits_;  // of all grids
  const int number_;                            // of the grid
  const ir::Grid& planned_;
  const passes::GridPlan& plan_;  // and what was decided about it
  CudaProgram& program_;
  Notes notes_{program_.notes};
  StepWriter out_;
  Names names_{"_"};
  Expressions values_{names_, out_};
  ir::Facts& facts_ = values_.facts;
  BlockOrder order_{values_, names_, out_};
  std::unordered_map<const ir::Buffer*, std::string> tensors_;
  std::unordered_map<const ir::Buffer*, int> memory_of_;  // tensors that may share bytes have one number
  std::unordered_set<const ir::Buffer*> written_;         // tensors that the grid writes
  std::unordered_set<const ir::Variable*> moved_;         // 8-bit floats whose bytes are stored as they are
  std::unordered_set<const ir::Buffer*> multiplied_plainly_;  // tiles that products by multiply-add read
  std::unordered_map<const ir::Buffer*, SharedTile> shared_;
  std::vector<CarriedOperand> carried_;
  std::string step_apart_;  // the index of a step whose products find their operands on their own
  int apart_ = 0;           // the number of the last one that did
  std::string nothing_;     // what it adds to them; empty: it does not
  std::unordered_map<const ir::Buffer*, FragmentTile> fragments_;
  passes::Layouts layouts_;
  SharedMemory memory_;
  std::int64_t ahead_bytes_ = 0;  // of that, what a plan with fewer slots does without
  int blocks_ = 1;                // that share a processor
  Team team_;
  bool any_products_ = false;            // in any grid of the kernel
  bool copies_rows_ = false;             // between a workspace and rows that may begin anywhere
  const ir::Buffer* aligned_ = nullptr;  // the tensor whose address is printed, if it is known to be aligned
  std::vector<std::size_t> unlimited_;   // dimensions of it whose limits are asked elsewhere
  std::string team_barrier_ = "tg::block_sync();";
  // The CTAs that the block is spread over, the shared memory of the running one, and why it cannot be
  // spread.
  int ctas_ = 1;
  std::string own_memory_ = "shared_memory";
  const ir::StmtNode* first_meeting_ = nullptr;  // before which all CTAs must have begun
  passes::Reason not_spread_;
  bool is_crowded_ = false;  // loops of the body load more of tiles than a thread has registers
  std::int64_t words_in_flight_ = 0;
  std::optional<ElementLoop> loop_;
  const Vectors* vectors_ = nullptr;  // of the loop that is printed
  // What its iterations load by whole pieces, and the names of those that have been loaded.
  passes::PieceLoads pieces_;
  std::vector<std::string> piece_names_;
  // Loads of it that stand in front of all its elements, and pieces: what they are in the lines of an
  // element.
  std::unordered_map<const ir::StmtNode*, std::string> in_front_;
  std::vector<std::string> pieces_in_front_;
  // What it finds for each row before the row's elements, and the condition under which the row is written.
  const passes::RowLoop* rows_found_ = nullptr;
  std::string row_exists_;
  const passes::Roles* roles_ = nullptr;
  const ir::Grid* grid_ = nullptr;  // of the roles
  std::vector<RingText> rings_;
  std::vector<int> cursors_;                         // of each ring, as the first ring that has it
  std::vector<const passes::CopyRing*> copy_rings_;  // of the loops that are being printed
  std::int64_t ring_bytes_ = 0;                      // of their slots
  bool is_ahead_ = false;                            // what is printed begins copies and does not await them
  // A loop over elements that threads read a step ahead: pieces of rows that it converts, or an element each.
  struct HeldLoop {
    ir::Stmt stmt, loop;  // as events have it, and over elements
    std::optional<passes::RowConversion> rows = {};
    PieceRegisters registers = {};
    std::int64_t count = 1;                   // of a thread's pieces
    std::string element = {};                 // the name of it
    std::vector<ir::VariablePtr> ahead = {};  // what else is read a step ahead, and tells where it is
  };
  // What a thread knows of rows that it converts one after the other.
  struct MovingPieces {
    struct Pointer {
      std::string name, step;
    };
    passes::MovingRows moving;
    std::int64_t rows = 0, pieces = 0, held = 0;  // that all threads take at once, of a thread, under way
    std::int64_t phases = 1;                      // rows with exchanges of their own, before they recur
    std::unordered_map<const ir::StmtNode*, Pointer> pointers = {};
    std::vector<std::string> kept = {};  // of a row: what each register gets
    std::string to = {};                 // places of its first pieces
    PieceRegisters registers = {};
  };
  struct TurnConditions {
    std::vector<std::string> pieces, all;
  };
  struct Part {
    int first = 0, last = 16;
    bool is_all() const { return first == 0 && last == 16; }
  };
  struct Brought {
    ir::View tile, from;
  };
  std::vector<Brought> brought_;  // copies that have begun and are not awaited yet
  std::optional<Partial> partial_;
  std::deque<SharedTile> kept_;                             // where parts of the last reductions met
  std::unordered_map<const ir::Buffer*, int> alternating_;  // tiles in two halves, and the rings that count
  bool in_branch_ = false;  // the innermost loop or branch is a branch, all of whose products are awaited
  std::unordered_set<int> in_loops_;                 // rings: see ConsumerProgram
  std::unordered_set<const ir::Buffer*> lane_sums_;  // whose lanes hold parts for now
  // Variables for which warps and warp groups have a choice; they are kept alive because names refer to their
  // addresses.
  std::vector<ir::VariablePtr> own_;
  std::unordered_map<const ir::Variable*, StepRead> step_reads_;
  std::vector<HeldLoop> held_;          // of the producer's loop that is printed
  const ir::For* held_step_ = nullptr;  // that loop, if it is pipelined
  std::vector<FragmentTile> factors_;   // fragments of exponentials
  Part part_;                           // of the elements of the loop that is printed
  bool is_consumer_ = false;            // of the roles
  bool is_transposer_ = false;
  // The number of the thread's warp group; among consumers ptxas knows that it is the same for a whole warp.
  std::string warp_group() const { return is_consumer_ ? "warp_group" : team_.thread + " / 128"; }
  // The number of the warp group that runs the program, where steps are dealt.
  ir::VariablePtr dealt_group() const {
    return is_consumer_ && roles_->dealt ? roles_->dealt->group : nullptr;
  }
  bool is_message(const ir::Buffer& tile) const {
    return roles_ && roles_->dealt && roles_->dealt->messages.contains(&tile);
  }
  const std::string& ring_name(int ring) const { return rings_[static_cast<std::size_t>(ring)].name; }
  bool awaits_producer() const { return is_consumer_ || is_transposer_; }
  bool in_existing_rows_ = false;    // pieces are printed for tiles all of whose rows exist
  bool warps_decide_ = false;        // about some branches
  std::string tile_, tiles_;         // the number of the block, and of all
  bool has_tile_ = false;            // tile_ is in scope
  std::string leave_ = "return;";    // what ends a block
  std::int64_t next_slot_ = -1;      // of the number of the next block, among the producer's threads
  std::int64_t store_staging_ = -1;  // in shared memory
  // Where consumers leave sums to threads of the producer's warps that add them in turn, and what these do.
  static constexpr int handover_bytes = 64;
  std::int64_t handover_ = -1;
  bool hands_over() const { return handover_ >= 0; }
  std::string adders_;
  std::optional<OpenStore> store_;
  bool has_timeline_ = false;
  std::deque<Flight> flights_;  // products that run
};

}  // namespace tegula::codegen
