// The kernel of a "gpu_matmul": a block walks along k, copies of later steps under way while one is
// computed; then the teams' sums are added up, and all threads store the results with what is fused
// behind the product.
#include <algorithm>

#include "compiler/kernels/group_fragments.h"
#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/gpu_matmul.h"
#include "vm/base/error.h"

namespace nimble::kernels::gpu {

namespace kb = kir::build;
using kir::BufferRef;
using kir::Dim;
using kir::LoopKind;
using kir::StmtRef;
using kir::ValueRef;

namespace {

constexpr int kSectorBytes = 32;  // that global memory is read in

bool divides(const Workload& w, const Dim& d, int64_t by) {
  return w.facts.divisible(d, by) == ir::Proof::kYes;
}

// The largest value that the facts allow: what is known to be small is reckoned with 32 bits.
int64_t most_of(const Workload& w, const Dim& d) {
  return w.facts.range(d).high;
}

struct Forms {
  SharedTile::Form lhs, rhs;
};

Forms forms_of(const Workload& w, const Product& p, const Schedule& s) {
  Forms f;
  const int parts = goes_apart(p, s) ? s.k_split : 1;
  f.lhs = {p.lhs_along_k, s.block_rows,           s.k_step,
           s.stages,      tile_pad(p, s, false),  copy_elements(w, p.lhs->dtype, p.lhs_pitch()),
           parts,         group_span(p, s, false)};
  const int vector =
      p.implicit ? p.implicit->vector() : copy_elements(w, p.rhs->dtype, p.rhs_pitch());
  f.rhs = {p.rhs_along_k,        s.block_columns, s.k_step, s.stages,
           tile_pad(p, s, true), vector,          parts,    group_span(p, s, true)};
  return f;
}

// Threads that copy a part of the tiles.
int copiers(const Product& p, const Schedule& s) {
  return goes_apart(p, s) ? kir::kWarpLanes : s.threads();
}

SharedSums sums_of(const Product& p, const Schedule& s) {
  SharedSums sums;
  sums.rows = s.block_rows;
  sums.pitch = s.block_columns + sums_pad(p, s);
  return sums;
}

// Of one type, the sums take the place of the tiles once these are used up.
bool shares_memory(const Product& p) {
  return p.lhs->dtype == p.sum && p.rhs->dtype == p.sum;
}

BufferRef tile_buffer(const char* name, DType t, const SharedTile::Form& form) {
  kir::Buffer b = *shared_buffer(name, t, form.elements());
  if (form.span != 0)
    b.alignment =
        std::max(b.alignment, kir::kGroupLines * form.span * static_cast<int>(size_of(t)));
  return std::make_shared<const kir::Buffer>(std::move(b));
}

class TilesLowering {
 public:
  TilesLowering(const Workload& w, const Product& p, const Schedule& s)
      : w_(w), p_(p), s_(s), sums_(sums_of(p, s)), steps_(ir::ceildiv(p.k, s.k_step)) {
    const Forms forms = forms_of(w, p, s);
    const int64_t sums = int64_t{s.k_split} * sums_.rows * sums_.pitch;
    BufferRef lhs, rhs;
    int64_t rhs_base = 0;
    if (shares_memory(p)) {
      rhs_base = forms.lhs.elements();
      const int64_t tiles = rhs_base + forms.rhs.elements();
      lhs = rhs = sums_.buffer = shared_buffer("tiles", p.sum, std::max(tiles, sums));
      shared_ = {lhs};
    } else {
      lhs = tile_buffer("a_tiles", p.lhs->dtype, forms.lhs);
      rhs = tile_buffer("b_tiles", p.rhs->dtype, forms.rhs);
      sums_.buffer = shared_buffer("sums", p.sum, sums);
      shared_ = {lhs, rhs, sums_.buffer};
    }
    lhs_boxed_ = comes_in_boxes(w, p, s, forms.lhs, false);
    rhs_boxed_ = comes_in_boxes(w, p, s, forms.rhs, true);
    if (lhs_boxed_ || rhs_boxed_) {
      signals_ = shared_buffer("signals", DType::kU64, s.stages);
      shared_.push_back(signals_);
    }
    apart_ = goes_apart(p, s);
    const Dim part = apart_ ? team_of(s) : Dim(0);
    const int threads = copiers(p, s);
    lhs_ = std::make_unique<SharedTile>(forms.lhs, "a_", lhs, 0, threads, part);
    rhs_ = p.implicit ? p.implicit->tile(forms.rhs, "b_", rhs, rhs_base, threads, part)
                      : std::make_unique<SharedTile>(forms.rhs, "b_", rhs, rhs_base, threads, part);
    copies_ = (!lhs_boxed_ && is_copied(p.lhs->dtype, forms.lhs.vector)) ||
              (!rhs_boxed_ && is_copied(p.rhs->dtype, forms.rhs.vector));
    unit_ = s.unit == UnitKind::kScalar   ? scalar_unit(p, s, *lhs_, *rhs_)
            : s.unit == UnitKind::kMatrix ? matrix_unit(p, s, *lhs_, *rhs_)
                                          : group_unit(p, s, *lhs_, *rhs_);
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> body;
    if (p_.implicit) body = p_.implicit->prologue();
    place(body);
    for (StmtRef& s : unit_->prologue()) body.push_back(std::move(s));
    lhs_->prepare(w_, body);
    rhs_->prepare(w_, body);
    if (signals_) make_signals(body);
    body.push_back(unit_->zero());
    walk(body);
    if (shares_memory(p_)) body.push_back(kb::barrier(kir::Together::kBlock));
    body.push_back(unit_->keep(sums_));
    body.push_back(kb::barrier(kir::Together::kBlock));
    body.push_back(results());
    kir::Function f = launched(
        make_function(w_, p_.frame, name, {}, unit_->registers(), kb::seq(std::move(body))), grid_,
        s_.threads(), shared_);
    f.maps = maps_;
    return f;
  }

 private:
  // Which part of which product the block computes. Neighbouring blocks take neighbouring rows of
  // the same columns, whose operand is usually the larger one.
  void place(std::vector<StmtRef>& out) {
    const Dim row_tiles = ir::ceildiv(p_.m, s_.block_rows);
    const Dim column_tiles = ir::ceildiv(p_.n, s_.block_columns);
    const auto columns = column_tiles.as_constant();
    const bool second_axis = columns && *columns <= kMaxBlocksAcross;
    grid_ = {row_tiles * count_of(p_.batch) * (second_axis ? Dim(1) : column_tiles),
             second_axis ? column_tiles : Dim(1), 1};
    // A number's part below `extent`; the rest of it stays for those that follow, if there are any.
    Dim rest = block(0);
    const auto take = [&](const Dim& extent, bool last) {
      const Dim own = rest;
      if (last) return own;
      if (extent.is_constant(1)) return Dim(0);
      const Dim least = ir::max(extent, 1);
      rest = ir::floordiv(own, least);
      return ir::mod(own, least);
    };
    const bool single = p_.batch.empty();
    const Dim row_tile = take(row_tiles, second_axis && single);
    const Dim column_tile =
        second_axis ? columns == 1 ? Dim(0) : block(1) : take(column_tiles, single);
    const Dim batch = single ? Dim(0) : rest;
    const auto origin = [&](const char* symbol, const Dim& tile, int size, const Dim& extent) {
      if (tile.as_constant()) return tile * size;
      out.push_back(let(symbol, tile * size, {0, most_of(w_, extent), size}));
      return Dim::symbol(symbol);
    };
    first_row_ = origin("m0", row_tile, s_.block_rows, p_.m);
    first_column_ = origin("n0", column_tile, s_.block_columns, p_.n);
    Dim lhs_at = 0, rhs_at = 0, lhs_number = 0, rhs_number = 0;
    if (!single) {
      out.push_back(let("batch", batch));
      coordinates_ = bind_coordinates("batch", p_.batch, Dim::symbol("batch"), out);
      const auto matrix = [&](const char* symbol, const std::vector<Dim>& own, const Dim& size) {
        if (own.empty()) return Dim(0);
        out.push_back(let(symbol, batch_offset(w_, own, p_.batch, coordinates_, size)));
        return Dim::symbol(symbol);
      };
      // Of boxes by its number, of other copies by its place.
      if (lhs_boxed_)
        lhs_number = matrix("a_at", p_.lhs_batch, 1);
      else
        lhs_at = matrix("a_at", p_.lhs_batch, p_.m * p_.k);
      if (rhs_boxed_)
        rhs_number = matrix("b_at", p_.rhs_batch, 1);
      else
        rhs_at = matrix("b_at", p_.rhs_batch, p_.k * p_.n);
    }
    if (p_.implicit) rhs_at = p_.implicit->origin(coordinates_);
    lhs_->set_source(p_.lhs, lhs_at, first_row_, p_.m, p_.k);
    rhs_->set_source(p_.rhs, rhs_at, first_column_, p_.n, p_.k);
    if (lhs_boxed_) maps_.push_back(lhs_->use_boxes(count_of(p_.lhs_batch), lhs_number, signals_));
    if (rhs_boxed_) maps_.push_back(rhs_->use_boxes(count_of(p_.rhs_batch), rhs_number, signals_));
  }

  // `s` where a < b, decided now if it can be.
  StmtRef where_less(const Dim& a, const Dim& b, StmtRef s) const {
    switch (w_.facts.less(a, b)) {
      case ir::Proof::kYes:
        return s;
      case ir::Proof::kNo:
        return kb::seq({});
      default:
        return kb::if_then(kb::lt(a, b), std::move(s));
    }
  }

  // One signal for each stage, at which the thread that has boxes copied arrives.
  void make_signals(std::vector<StmtRef>& out) const {
    std::vector<StmtRef> made;
    for (int i = 0; i < s_.stages; ++i) made.push_back(kb::signal_init(signals_, i, 1));
    made.push_back(kb::proxy_fence());
    out.push_back(kb::if_then(kb::eq(thread(), 0), kb::seq(std::move(made))));
    out.push_back(kb::barrier(kir::Together::kBlock));
  }

  // Copies of step `step` as a group of their own, of no copy behind the last step.
  void copy(const Dim& slot, const Dim& step, std::vector<StmtRef>& out) const {
    std::vector<StmtRef> all, boxes;
    int bytes = 0;
    for (const SharedTile* tile : {&*lhs_, &*rhs_}) {
      (tile->in_boxes() ? boxes : all).push_back(tile->fill(w_, slot, step));
      if (tile->in_boxes()) bytes += tile->filled_bytes();
    }
    if (!boxes.empty()) {
      boxes.insert(boxes.begin(), kb::signal_arrive(signals_, slot, bytes));
      all.push_back(kb::if_then(kb::eq(thread(), 0), kb::seq(std::move(boxes))));
    }
    out.push_back(where_less(step, steps_, kb::seq(std::move(all))));
    if (copies_) out.push_back(kb::async_commit());
    // What a group does next (its fence, its wait) all lanes of its warps have to do together.
    if (s_.unit == UnitKind::kGroup && (signals_ || lhs_->lanes_part() || rhs_->lanes_part()))
      out.push_back(kb::barrier(kir::Together::kWarp));
  }

  void walk(std::vector<StmtRef>& out) const {
    const int ahead = s_.stages - 1 - unit_->behind();
    for (int i = 0; i < ahead; ++i) copy(i, i, out);
    const Dim step = Dim::symbol("step");
    std::vector<StmtRef> body;
    if (copies_) body.push_back(kb::async_wait(ahead - 1));
    if (signals_)
      body.push_back(
          kb::signal_wait(signals_, ir::mod(step, s_.stages), ir::floordiv(step, s_.stages)));
    body.push_back(unit_->ready());
    // Here all have the step's stage, and are done with the one that is filled next: that of the
    // step before this one, or of `behind` earlier ones.
    body.push_back(kb::barrier(apart_ ? kir::Together::kWarp : kir::Together::kBlock));
    copy(ir::mod(step + ahead, s_.stages), step + ahead, body);
    body.push_back(let("slot", ir::mod(step, s_.stages), {0, s_.stages - 1, 1}));
    body.push_back(unit_->step(Dim::symbol("slot")));
    out.push_back(kb::loop(LoopKind::kSerial, "step", 0, steps_, kb::seq(std::move(body))));
  }

  // All threads take vectors of the block's sums in turn.
  StmtRef results() const {
    const int most = std::min(4, s_.block_columns);
    const int lanes = p_.vector_rhs ? 1
                      : p_.implicit ? p_.implicit->columns_at_once(most)
                                    : dividing_lanes(w_, p_.n, most);
    const int across = s_.block_columns / lanes, vectors = s_.block_rows * across;
    const Dim vector = thread() + Dim::symbol("round") * s_.threads();
    const Dim at = Dim::symbol("e_at");
    // What takes divisions to know of a column is reckoned once, if the thread keeps its column.
    const bool keeps = p_.implicit && s_.threads() % across == 0;
    const Dim own_row = ir::floordiv(at, across);
    const Dim own_column = ir::mod(keeps ? thread() : at, across) * lanes;
    std::vector<StmtRef> ahead, body;
    std::vector<StmtRef>& columns = keeps ? ahead : body;
    const Dim row = Dim::symbol("row"), column = Dim::symbol("column");
    body.push_back(let("e_row", own_row, {0, s_.block_rows - 1, 1}));
    columns.push_back(let("e_column", own_column, {0, s_.block_columns - lanes, lanes}));
    body.push_back(
        let("row", first_row_ + Dim::symbol("e_row"), {0, most_of(w_, p_.m + s_.block_rows), 1}));
    columns.push_back(let("column", first_column_ + Dim::symbol("e_column"),
                          {0, most_of(w_, p_.n + s_.block_columns), lanes}));
    if (p_.implicit) p_.implicit->bind_column(column, columns);
    ValueRef value;
    for (int team = 0; team < s_.k_split; ++team) {
      ValueRef sum = kb::load(sums_.buffer,
                              sums_.at(team, Dim::symbol("e_row"), Dim::symbol("e_column")), lanes);
      value = value ? kb::add(std::move(value), std::move(sum)) : std::move(sum);
    }
    StmtRef stores = p_.implicit ? p_.implicit->store(coordinates_, row, std::move(value))
                                 : store(row, column, lanes, std::move(value));
    if (!divides(w_, p_.n, s_.block_columns))
      stores = kb::if_then(kb::lt(column, p_.n), std::move(stores));
    if (!divides(w_, p_.m, s_.block_rows))
      stores = kb::if_then(kb::lt(row, p_.m), std::move(stores));
    body.push_back(std::move(stores));
    StmtRef one = kb::seq(std::move(body));
    if (vectors % s_.threads() != 0) one = kb::if_then(kb::lt(at, vectors), std::move(one));
    const int rounds = (vectors + s_.threads() - 1) / s_.threads();
    ahead.push_back(
        kb::loop(LoopKind::kSerial, "round", 0, rounds,
                 kb::seq({let("e_at", vector, {0, rounds * s_.threads() - 1, 1}), one})));
    return kb::seq(std::move(ahead));
  }

  StmtRef store(const Dim& row, const Dim& column, int lanes, ValueRef value) const {
    std::vector<Dim> coordinates = coordinates_;
    for (const Dim& d : unflatten(row, p_.row_dims)) coordinates.push_back(d);
    if (!p_.vector_rhs) coordinates.push_back(column);
    return store_results(w_, p_.frame, std::move(value), coordinates, lanes, std::nullopt, "e_");
  }

  const Workload& w_;
  const Product& p_;
  Schedule s_;
  SharedSums sums_;
  Dim steps_;
  std::unique_ptr<SharedTile> lhs_, rhs_;
  std::unique_ptr<Unit> unit_;
  std::vector<BufferRef> shared_;
  bool apart_ = false;   // goes_apart
  bool copies_ = false;  // any of them: else all goes through registers, or as boxes
  bool lhs_boxed_ = false, rhs_boxed_ = false;
  BufferRef signals_;  // where either is
  std::vector<kir::TensorMapRef> maps_;
  std::array<Dim, 3> grid_;
  Dim first_row_, first_column_;
  std::vector<Dim> coordinates_;  // of the block's product, one per axis of Product::batch
};

}  // namespace

// ---------------------------------------------------------------- tiles in shared memory

bool is_copied(DType t, int elements) {
  return static_cast<int>(size_of(t)) * elements >= 4;
}

Dim any_of(const Dim& left) {
  return ir::max(ir::min(left, 1), 0);
}

StmtRef let(const std::string& name, const Dim& d, const ir::SymbolFacts& facts) {
  return kb::let_index(name, kb::index(d), facts);
}

bool SharedTile::Form::suits(int threads) const {
  if (part_inner() % vector != 0) return false;
  const int vectors = part_inner() / vector;
  if (span != 0) {
    // Of lines a thread copies one vector of each of its rows, and knows a few places that those
    // are swizzled to, which come again in turn: a swizzle's pattern is to be so many rounds of the
    // threads, or a round so many patterns (place_of).
    if (threads % vectors != 0 || span % vector != 0) return false;
    const int rows = threads / vectors;
    return kir::kGroupLines % rows == 0 || rows % kir::kGroupLines == 0;
  }
  return threads % vectors == 0 || vectors % threads == 0;
}

void SharedTile::set_source(BufferRef global, const Dim& matrix, const Dim& first,
                            const Dim& extent, const Dim& k) {
  global_ = std::move(global);
  matrix_ = matrix;
  first_ = first;
  extent_ = extent;
  k_ = k;
}

int SharedTile::rows_at_once() const {
  return std::max(1, threads_ * form_.vector / form_.part_inner());
}

bool SharedTile::lanes_part() const {
  if (in_boxes()) return false;
  return !is_copied(shared_->dtype, form_.vector) || form_.part_outer() % rows_at_once() != 0;
}

std::string SharedTile::place_of(int row) const {
  const int rows = rows_at_once(), kinds = std::max(1, kir::kGroupLines / rows);
  return fmt::format("place{}", row / rows % kinds);
}

// Of a row's vector its line and its place there; of the row where that is among the first ones
// that the threads copy at once. Lines of one row are as far apart as all rows have lines.
void SharedTile::prepare_places(const Dim& outer, std::vector<StmtRef>& out) const {
  const int size = static_cast<int>(size_of(shared_->dtype)), span = form_.span;
  const int piece = kir::kPieceBytes / size, pieces = span / piece;
  const int rows = rows_at_once(), kinds = std::max(1, kir::kGroupLines / rows);
  const Dim in_line = ir::mod(symbol("inner"), span);
  const int64_t most =
      int64_t{form_.inner() / span - 1} * form_.outer() * span + rows * span - form_.vector;
  for (int kind = 0; kind < kinds; ++kind) {
    const Dim line = ir::mod(outer + kind * rows, kir::kGroupLines);
    const std::string swizzled = name_ + fmt::format("piece{}", kind);
    out.push_back(
        kb::let_index(swizzled,
                      kb::binary(kir::BinaryOp::kXor, kb::index(ir::floordiv(in_line, piece)),
                                 kb::index(ir::floordiv(line, kir::kPhaseBytes / (span * size)))),
                      ir::SymbolFacts{0, pieces - 1, 1}));
    out.push_back(let(name_ + place_of(kind * rows),
                      ir::floordiv(symbol("inner"), span) * (form_.outer() * span) + outer * span +
                          Dim::symbol(swizzled) * piece + ir::mod(in_line, piece),
                      {0, most, form_.vector}));
  }
}

kir::GroupView SharedTile::view(const Dim& slot, const Dim& x, const Dim& k) const {
  const Dim inner = form_.along_k ? k : x, outer = form_.along_k ? x : k;
  const int lines = form_.outer() * form_.span;
  return {shared_,
          base_ + slot * form_.stage() + ir::floordiv(inner, form_.span) * lines +
              outer * form_.span + ir::mod(inner, form_.span),
          form_.along_k, form_.span, form_.along_k ? 0 : lines};
}

void SharedTile::bind_copier(std::vector<StmtRef>& out) const {
  const int vectors = form_.part_inner() / form_.vector;
  const bool rows_shared_out = threads_ % vectors == 0;
  const Dim copier = form_.parts == 1 ? thread() : lane();
  const Dim outer = rows_shared_out ? row_of(ir::floordiv(copier, vectors)) : Dim(0);
  const Dim inner = rows_shared_out ? ir::mod(copier, vectors) : copier;
  const Dim from_part = part_ * form_.slice();
  const int64_t rows = std::max(1, threads_ / vectors), skipped = form_.k_step - form_.slice();
  out.push_back(let(name_ + "outer", form_.along_k ? outer : from_part + outer,
                    {0, rows - 1 + (form_.along_k ? 0 : skipped), 1}));
  out.push_back(let(name_ + "inner",
                    form_.along_k ? from_part + inner * form_.vector : inner * form_.vector,
                    {0, form_.inner() - form_.vector, form_.vector}));
}

void SharedTile::prepare(const Workload& w, std::vector<StmtRef>& out) const {
  if (in_boxes()) return;
  bind_copier(out);
  if (form_.span != 0) prepare_places(symbol("outer"), out);
  const Dim pitch = form_.along_k ? k_ : extent_;
  const Dim from = form_.along_k ? (first_ + symbol("outer")) * pitch + symbol("inner")
                                 : symbol("outer") * pitch + first_ + symbol("inner");
  // Matrices are whole rows, and these whole vectors.
  const int64_t most =
      matrix_.is_constant(0)
          ? most_of(w, (extent_ + form_.wide + threads_) * (k_ + form_.k_step + threads_))
          : INT64_MAX;
  out.push_back(let(name_ + "from", matrix_ + from, {0, most, form_.vector}));
}

Dim SharedTile::row_of(const Dim& number) const {
  constexpr int kPlaces = 8;  // of 16 bytes, that the banks are
  const int places = form_.part_inner() * static_cast<int>(size_of(shared_->dtype)) / kAccessBytes;
  const int rows = places > 1 && places < kPlaces && kPlaces % places == 0 ? kPlaces / places : 1;
  if (form_.parts == 1 || !form_.along_k || rows == 1 ||
      threads_ * form_.vector % (kPlaces * form_.part_inner()) != 0)
    return number;
  const Dim eighth = ir::mod(number, kPlaces);
  return number - eighth + ir::mod(eighth, rows) * places + ir::floordiv(eighth, rows);
}

StmtRef SharedTile::bring(const Dim& to, const Dim& from, const std::optional<Dim>& valid) const {
  if (is_copied(shared_->dtype, form_.vector))
    return kb::async_copy(shared_, to, global_, from, form_.vector, valid);
  return kb::store(shared_, to,
                   valid ? kb::load_masked(global_, from, form_.vector, *valid)
                         : kb::load(global_, from, form_.vector));
}

StmtRef SharedTile::fill(const Workload& w, const Dim& slot, const Dim& step) const {
  if (in_boxes()) return fill_boxes(slot, step);
  const int vectors = form_.part_inner() / form_.vector;
  const bool rows_shared_out = threads_ % vectors == 0;
  // A round of the threads is so many rows, or a part of one.
  const int rows = rows_shared_out ? threads_ / vectors : 1;
  const int parts = rows_shared_out ? 1 : vectors / threads_;
  const Dim pitch = form_.along_k ? k_ : extent_;
  const Dim outer_extent = form_.along_k ? extent_ : k_;
  const Dim inner_extent = form_.along_k ? k_ : extent_;
  const Dim done = step * form_.k_step;
  const Dim outer_first = form_.along_k ? first_ : done;
  const Dim inner_first = form_.along_k ? done : first_;
  const bool whole_rows = divides(w, inner_extent, form_.inner());
  const bool all_rows = divides(w, outer_extent, form_.outer());
  const Dim ahead = done * (form_.along_k ? Dim(1) : pitch);
  std::vector<StmtRef> all;
  for (int row = 0; row < form_.part_outer(); row += rows)
    for (int part = 0; part < parts; ++part) {
      const Dim outer = symbol("outer") + row;
      const Dim inner = symbol("inner") + part * threads_ * form_.vector;
      const Dim from = symbol("from") + ahead + row * pitch + part * threads_ * form_.vector;
      const Dim to = base_ + slot * form_.stage() +
                     (form_.span != 0 ? symbol(place_of(row)) + row * form_.span
                                      : outer * form_.pitch() + inner);
      const Dim in_row = whole_rows ? Dim(form_.vector) : inner_extent - inner_first - inner;
      std::optional<Dim> valid;
      if (!all_rows)
        valid = in_row * any_of(outer_extent - outer_first - outer);
      else if (!whole_rows)
        valid = in_row;
      StmtRef one = bring(to, from, valid);
      if (row + rows > form_.part_outer())
        one = kb::if_then(
            kb::lt(outer, form_.along_k ? Dim(form_.outer()) : (part_ + 1) * form_.slice()),
            std::move(one));
      all.push_back(std::move(one));
    }
  return kb::seq(std::move(all));
}

// ---------------------------------------------------------------- the kernel

bool goes_apart(const Product& p, const Schedule& s) {
  if (s.team() != kir::kWarpLanes) return false;
  // Rows along k are read in whole sectors, or by warps together.
  const auto sectors = [&](DType t, bool along_k) {
    return !along_k || s.slice() * static_cast<int>(size_of(t)) % kSectorBytes == 0;
  };
  return sectors(p.lhs->dtype, p.lhs_along_k) && sectors(p.rhs->dtype, p.rhs_along_k);
}

int copy_elements(const Workload& w, DType t, const Dim& pitch) {
  const auto bytes = static_cast<int>(size_of(t));
  for (int copied = kAccessBytes; copied >= 4; copied /= 2)
    if (copied >= bytes && divides(w, pitch, copied / bytes)) return copied / bytes;
  return 1;
}

std::optional<int64_t> shared_bytes_of(const Workload& w, const Product& p, const Schedule& s) {
  if (!suits_unit(p, s)) return {};
  const Forms forms = forms_of(w, p, s);
  const int threads = copiers(p, s);
  const bool lhs_boxed = comes_in_boxes(w, p, s, forms.lhs, false),
             rhs_boxed = comes_in_boxes(w, p, s, forms.rhs, true);
  if (s.boxes && !lhs_boxed && !rhs_boxed) return {};
  if ((!lhs_boxed && !forms.lhs.suits(threads)) || (!rhs_boxed && !forms.rhs.suits(threads)))
    return {};
  // Rows in shared memory begin at whole accesses.
  const auto aligned = [](const SharedTile::Form& form, DType t) {
    return form.pitch() * static_cast<int>(size_of(t)) % kAccessBytes == 0;
  };
  if (!aligned(forms.lhs, p.lhs->dtype) || !aligned(forms.rhs, p.rhs->dtype)) return {};
  const SharedSums sums = sums_of(p, s);
  const int64_t kept = int64_t{s.k_split} * sums.rows * sums.pitch;
  if (shares_memory(p))
    return shared_bytes(
        {{p.sum, std::max<int64_t>(kept, forms.lhs.elements() + forms.rhs.elements())}});
  std::vector<SharedPart> parts = {
      {p.lhs->dtype, forms.lhs.elements()}, {p.rhs->dtype, forms.rhs.elements()}, {p.sum, kept}};
  if (s.boxes) parts.push_back({DType::kU64, s.stages});
  return shared_bytes(parts);
}

kir::Function lower_tiles(const Workload& w, const Product& p, const Schedule& s,
                          const std::string& name) {
  return TilesLowering(w, p, s).run(name);
}

}  // namespace nimble::kernels::gpu
