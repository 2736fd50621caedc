// The inside of the template "gpu_matmul": what it multiplies, its schedule, and the units that
// compute a block's tile from shared memory. Products whose rhs is no matrix in memory
// (gpu_conv_product) have all of it in common but what brings their tiles and stores their results.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/templates/matmul_operands.h"

namespace nimble::kernels::gpu {

// ---------------------------------------------------------------- the problem

class Implicit;

struct Product : MatmulOperands {
  bool lhs_along_k = true;                    // rows of the lhs lie along k, else its columns do
  bool rhs_along_k = false;                   // the same of the columns of the rhs
  std::optional<kir::WarpFragment> fragment;  // that multiplies the operands, and the target has
  std::optional<kir::GroupFragment> group;    // the same of a group of warps
  std::shared_ptr<const Implicit> implicit;   // if the rhs is none that lies in memory
  // The lengths of the operands' stored rows.
  kir::Dim lhs_pitch() const { return lhs_along_k ? k : m; }
  kir::Dim rhs_pitch() const { return rhs_along_k ? k : n; }
};
std::optional<Product> analyse_product(const Workload& w, const TargetInfo& t);
// Whether operands of such types are multiplied in that of the sums, as a unit does it.
bool has_units(const Product& p);
// The fragment of a warp that multiplies the operands, if the target has one.
std::optional<kir::WarpFragment> fragment_for(const Product& p, const TargetInfo& t);

// ---------------------------------------------------------------- the schedule

// A multiply-add for each lane and product; a fragment of a warp's lanes together; one of four
// warps, from shared memory.
enum class UnitKind { kScalar, kMatrix, kGroup };
// A value of the knob "unit", and what it says of a schedule. Boxes are no knob of their own: other
// units' tiles lie otherwise, and what was recorded of them stays theirs.
struct UnitRow {
  const char* name;
  UnitKind kind;
  bool boxes;
};
inline constexpr UnitRow kUnits[] = {{"simt", UnitKind::kScalar, false},
                                     {"mma", UnitKind::kMatrix, false},
                                     {"wgmma", UnitKind::kGroup, false},
                                     {"wgmma-tma", UnitKind::kGroup, true}};

// A block computes block_rows x block_columns of the product in steps of k_step along k, of which
// each of k_split teams of threads takes a part of its own; the teams' sums are added up in order.
// A tile is what one thread (simt), one warp (mma) or one group of warps (wgmma) of a team has of
// it.
struct Schedule {
  UnitKind unit = UnitKind::kScalar;
  int block_rows = 0, block_columns = 0, tile_rows = 0, tile_columns = 0;
  int k_step = 0, k_split = 1;
  int stages = 2;  // steps in shared memory: one that is computed, the others on their way
  // kGroup: one thread has the operands' tiles copied as boxes (kTensorCopy), each whose rows begin
  // at multiples of 16 bytes; what has others is copied by all threads, as without this.
  bool boxes = false;

  int tiles() const { return block_rows / tile_rows * (block_columns / tile_columns); }
  int of_tile() const {  // threads
    return unit == UnitKind::kScalar   ? 1
           : unit == UnitKind::kMatrix ? kir::kWarpLanes
                                       : kir::kGroupThreads;
  }
  int team() const { return tiles() * of_tile(); }
  int threads() const { return team() * k_split; }
  int slice() const { return k_step / k_split; }  // a team's part of a step
};
// The number of the thread's team, as a unit's prologue binds it.
kir::Dim team_of(const Schedule& s);
// Whether teams are warps that go through k each on its own: a team reads nothing of shared memory
// but its own slices, so that a warp that copies these itself need not wait for the others.
bool goes_apart(const Product& p, const Schedule& s);
Schedule schedule_of(const Config& c);
// What the knob "unit" says of a schedule.
const char* unit_of(const Schedule& s);
// Whether rows of an operand, of so many elements, may be copied as boxes.
bool has_boxes(const Workload& w, DType t, const kir::Dim& pitch);
// Elements of an operand that one copy takes into shared memory: of neighbours in a row as many as
// are 16 bytes, or 8 or 4, where rows begin at multiples of that; else single ones.
int copy_elements(const Workload& w, DType t, const kir::Dim& pitch);
// Whether so many are copied without waiting; fewer bytes than 4 go through registers.
bool is_copied(DType t, int elements);
// 1 where something is left, else 0.
kir::Dim any_of(const kir::Dim& left);
// Binds the symbol `name` to `d`, of which `facts` are known.
kir::StmtRef let(const std::string& name, const kir::Dim& d, const ir::SymbolFacts& facts = {});
// Bytes of a block's shared memory; nothing if the schedule is not one of this product.
std::optional<int64_t> shared_bytes_of(const Workload& w, const Product& p, const Schedule& s);

// ---------------------------------------------------------------- tiles in shared memory

// One operand's part of a block's step, `stages` times over. Its rows in shared memory lie as in
// global memory: along k (`wide` of them) or across it (k_step of them). For a group of warps they
// are cut into swizzled lines of `span` elements, and the first lines of all rows come first, then
// the second ones (kir::GroupView).
class SharedTile {
 public:
  struct Form {
    bool along_k = true;
    int wide = 0, k_step = 0, stages = 0;
    int pad = 0;     // elements between rows, against bank conflicts
    int vector = 1;  // copy_elements
    int parts = 1;   // along k, each of which threads of its own copy
    int span = 0;    // of a swizzled line; 0: rows are whole
    int outer() const { return along_k ? wide : k_step; }
    int inner() const { return along_k ? k_step : wide; }
    int pitch() const { return inner() + pad; }
    int stage() const { return outer() * pitch(); }
    int elements() const { return stages * stage(); }
    // The same of a part.
    int slice() const { return k_step / parts; }
    int part_outer() const { return along_k ? wide : slice(); }
    int part_inner() const { return along_k ? slice() : wide; }
    // Whether so many threads share the vectors of a part's stage out evenly, row by row.
    bool suits(int threads) const;
  };
  // `threads`: that copy a part, number `part` being this thread's.
  SharedTile(const Form& form, std::string name, kir::BufferRef shared, int64_t base, int threads,
             const kir::Dim& part)
      : form_(form),
        name_(std::move(name)),
        shared_(std::move(shared)),
        base_(base),
        threads_(threads),
        part_(part) {}
  virtual ~SharedTile() = default;

  const Form& form() const { return form_; }
  const kir::BufferRef& buffer() const { return shared_; }
  // Place of the element in row (lhs) or column (rhs) `x` of the tile and step's place `k`.
  kir::Dim at(const kir::Dim& slot, const kir::Dim& x, const kir::Dim& k) const {
    return base_ + slot * form_.stage() +
           (form_.along_k ? x * form_.pitch() + k : k * form_.pitch() + x);
  }
  // How far the next element along k is.
  int k_distance() const { return form_.along_k ? 1 : form_.pitch(); }
  // The factor of a group of warps that begins there.
  kir::GroupView view(const kir::Dim& slot, const kir::Dim& x, const kir::Dim& k) const;

  // Of the block's operand: `matrix` is the place of its first element, `first` the first row (lhs)
  // or column (rhs) of the tile out of `extent`, all symbols or constants.
  void set_source(kir::BufferRef global, const kir::Dim& matrix, const kir::Dim& first,
                  const kir::Dim& extent, const kir::Dim& k);
  // Has it copied as boxes of this map, which is made of the source: one matrix of the operand's,
  // of number `matrix` (among `matrices`, 1 where there is one). Signal number `slot` of `signals`
  // is told of a stage's bytes.
  kir::TensorMapRef use_boxes(const kir::Dim& matrices, const kir::Dim& matrix,
                              kir::BufferRef signals);
  bool in_boxes() const { return map_ != nullptr; }
  // Bytes that one fill() has copied.
  int filled_bytes() const { return form_.stage() * static_cast<int>(size_of(shared_->dtype)); }
  // Binds what copies have in common; stands once, ahead of them.
  virtual void prepare(const Workload& w, std::vector<kir::StmtRef>& out) const;
  // Copies of step number `step` into stage `slot`; what lies beyond the matrix is zeros. Of boxes
  // for one thread alone.
  virtual kir::StmtRef fill(const Workload& w, const kir::Dim& slot, const kir::Dim& step) const;
  // Whether lanes of a warp may do different things in fill(): read elements that others lack, or
  // copy rows of the last round, in which there are fewer.
  bool lanes_part() const;

 protected:
  kir::Dim symbol(const std::string& what) const { return kir::Dim::symbol(name_ + what); }
  // Rows that the threads copy at once, if each copies one vector; else a part of a row.
  int rows_at_once() const;
  // Binds which vector the thread copies first: the symbols `outer` and `inner`, its places in the
  // tile.
  void bind_copier(std::vector<kir::StmtRef>& out) const;
  // Copies one vector from global[from], of which only elements < valid are there.
  kir::StmtRef bring(const kir::Dim& to, const kir::Dim& from,
                     const std::optional<kir::Dim>& valid) const;

 private:
  kir::StmtRef fill_boxes(const kir::Dim& slot, const kir::Dim& step) const;
  // The symbol of a copier's place in lines for its row number `row` of all that it copies: rows
  // whose pieces are swizzled alike have the same.
  std::string place_of(int row) const;
  void prepare_places(const kir::Dim& outer, std::vector<kir::StmtRef>& out) const;
  // Which row the copiers of number `number` take. Short rows of neighbours would meet in their
  // banks, one row's padding apart; rows as far from one another as they are long don't.
  kir::Dim row_of(const kir::Dim& number) const;

 protected:
  Form form_;
  std::string name_;
  kir::BufferRef shared_, global_;
  int64_t base_;
  int threads_;
  kir::Dim part_;
  kir::Dim matrix_, first_, extent_, k_;
  kir::TensorMapRef map_;
  kir::BufferRef signals_;
  kir::Dim matrix_number_;
};

// Whether an operand's tile, of this form, comes as boxes.
bool comes_in_boxes(const Workload& w, const Product& p, const Schedule& s,
                    const SharedTile::Form& form, bool rhs);

// What a product has instead of a rhs in memory and of a matrix for its result. Its symbols are
// bound by prologue().
class Implicit {
 public:
  virtual ~Implicit() = default;
  // Elements of the rhs that one copy takes.
  virtual int vector() const = 0;
  // Stands ahead of all else.
  virtual std::vector<kir::StmtRef> prologue() const = 0;
  // Where in the rhs's buffer what belongs to one product of the batch begins.
  virtual kir::Dim origin(const std::vector<kir::Dim>& batch) const = 0;
  // The tile of the rhs; its operands are SharedTile's.
  virtual std::unique_ptr<SharedTile> tile(const SharedTile::Form& form, std::string name,
                                           kir::BufferRef shared, int64_t base, int threads,
                                           const kir::Dim& part) const = 0;
  // Columns, up to `most`, of which a row's results are stored at once.
  virtual int columns_at_once(int most) const = 0;
  // Binds where the results of a column belong, for store() of any row there. Columns beyond the
  // last one may be asked for.
  virtual void bind_column(const kir::Dim& column, std::vector<kir::StmtRef>& out) const = 0;
  // Stores the results of a row in the column that is bound, of which the product is `value`.
  virtual kir::StmtRef store(const std::vector<kir::Dim>& batch, const kir::Dim& row,
                             kir::ValueRef value) const = 0;
};

// ---------------------------------------------------------------- the units

// The teams' sums in shared memory, each block_rows x block_columns.
struct SharedSums {
  kir::BufferRef buffer;
  int rows = 0, pitch = 0;
  kir::Dim at(const kir::Dim& team, const kir::Dim& row, const kir::Dim& column) const {
    return (team * rows + row) * pitch + column;
  }
};

// What computes a team's part of the block. Its symbols are bound by prologue().
class Unit {
 public:
  virtual ~Unit() = default;
  virtual std::vector<kir::BufferRef> registers() const = 0;
  virtual std::vector<kir::StmtRef> prologue() const = 0;
  virtual kir::StmtRef zero() const = 0;
  // Steps whose products may still read their stages when the next one begins.
  virtual int behind() const { return 0; }
  // Stands between a stage's copies and the barrier ahead of its step.
  virtual kir::StmtRef ready() const { return kir::build::seq({}); }
  // Adds the products of stage `slot`.
  virtual kir::StmtRef step(const kir::Dim& slot) const = 0;
  virtual kir::StmtRef keep(const SharedSums& sums) const = 0;
};
std::unique_ptr<Unit> scalar_unit(const Product& p, const Schedule& s, const SharedTile& lhs,
                                  const SharedTile& rhs);
std::unique_ptr<Unit> matrix_unit(const Product& p, const Schedule& s, const SharedTile& lhs,
                                  const SharedTile& rhs);
std::unique_ptr<Unit> group_unit(const Product& p, const Schedule& s, const SharedTile& lhs,
                                 const SharedTile& rhs);
// Whether that computes such tiles, and the lines that an operand has for it (0: none do).
bool suits_group(const Product& p, const Schedule& s);
int group_span(const Product& p, const Schedule& s, bool rhs);
// Registers of a thread beside sums and operands: what addresses and copies take.
inline constexpr int kOtherRegisters = 64;
// What finding an implicit operand's elements takes besides.
inline constexpr int kGatherRegisters = 32;
// Whether a block of the schedule's threads may have so many each.
bool has_registers(const Schedule& s, int registers);
// A part of the block by its number, as units bind it where the schedule has several.
kir::StmtRef let_team(const Schedule& s);
// Padding of an operand's rows in shared memory, and of the sums', in elements.
int tile_pad(const Product& p, const Schedule& s, bool rhs);
int sums_pad(const Product& p, const Schedule& s);
// Columns of a thread's or a warp's tile, at most. A knob has the same choices whatever the unit:
// what is offered for a group's tiles beyond these is no more to search of the others.
inline constexpr int kWidestTile = 64;
// Whether the unit computes such tiles.
bool suits_unit(const Product& p, const Schedule& s);

// ---------------------------------------------------------------- configurations

// Those of a product's template.
std::vector<Knob> knobs_of(const Workload& w, const Product& p, const TargetInfo& t);
bool suits(const Workload& w, const Product& p, const Config& c, const TargetInfo& t);
// By rule, of the units that a GPU has shown to be good.
Config default_of(const Workload& w, const Product& p, const TargetInfo& t);

// ---------------------------------------------------------------- the kernel

kir::Function lower_tiles(const Workload& w, const Product& p, const Schedule& s,
                          const std::string& name);

}  // namespace nimble::kernels::gpu
