#include "compiler/kernels/templates/knobs.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "compiler/kernels/templates/row_tiles.h"
#include "compiler/kernels/templates/tile.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

// Sends a shape to implementation `symbol mod divisor`, by bisection.
exec::DispatchTree residue_tree(const Workload& w, const std::string& symbol, int divisor) {
  const auto at = std::find(w.contract.symbols.begin(), w.contract.symbols.end(), symbol);
  NIMBLE_CHECK(at != w.contract.symbols.end(), "symbol {} is not the contract's", symbol);
  exec::DispatchFeature feature;
  feature.kind = exec::DispatchFeature::Kind::kMod;
  feature.a = static_cast<uint32_t>(at - w.contract.symbols.begin());
  feature.t = divisor;
  exec::DispatchTree tree;
  // Appends the subtree for residues [low, high]; children stand behind their parent.
  auto build = [&](auto&& self, int low, int high) -> uint32_t {
    const auto node = static_cast<uint32_t>(tree.nodes.size());
    tree.nodes.emplace_back();
    if (low == high) {
      tree.nodes[node].yes = static_cast<uint32_t>(low);
      return node;
    }
    const int middle = (low + high) / 2;
    const uint32_t yes = self(self, low, middle), no = self(self, middle + 1, high);
    tree.nodes[node] = {exec::DispatchNode::Test::kLessEqual, feature, middle, yes, no};
    return node;
  };
  build(build, 0, divisor - 1);
  return tree;
}

// What templates multiply of a configuration then has 64 bits.
constexpr int64_t kLargestNumber = int64_t{1} << 20;
// More copies of a loop's body would be code without end.
constexpr int64_t kMostUnrolled = 64;

// Fewer kernels than remainders, which a person may ask for, but no search.
bool is_fewer_residues(const Knob& k, const KnobValue& value) {
  const KnobValue all = std::string(kTailsResidue);
  const auto* text = std::get_if<std::string>(&value);
  return k.name == "tails" && text && text->starts_with(std::string(kTailsResidue) + "/") &&
         std::find(k.choices.begin(), k.choices.end(), all) != k.choices.end();
}

}  // namespace

Knob int_knob(const std::string& name, std::initializer_list<int64_t> choices) {
  Knob k;
  k.name = name;
  for (int64_t c : choices) k.choices.emplace_back(c);
  return k;
}

Knob tails_knob(bool residues) {
  Knob k{"tails", {kTailsEven}};
  if (residues) k.choices.emplace_back(kTailsResidue);
  k.choices.emplace_back(kTailsChecked);
  k.choices.emplace_back(kTailsMasked);
  return k;
}

Knob product_rows_knob(int most) {
  Knob rows{"rows", {}, /*tile=*/true};
  for (int64_t r : {1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 20, 24})
    if (r <= most && r * 4 >= most) rows.choices.emplace_back(r);
  return rows;
}

bool within(const std::vector<Knob>& knobs, const Config& c) {
  if (knobs.size() != c.size()) return false;
  return std::all_of(knobs.begin(), knobs.end(), [&](const Knob& k) {
    const auto it = c.find(k.name);
    return it != c.end() &&
           std::find(k.choices.begin(), k.choices.end(), it->second) != k.choices.end();
  });
}

bool well_formed(const std::vector<Knob>& knobs, const Config& c) {
  if (knobs.size() != c.size()) return false;
  return std::all_of(knobs.begin(), knobs.end(), [&](const Knob& k) {
    const auto it = c.find(k.name);
    if (it == c.end() || it->second.index() != k.choices.front().index()) return false;
    if (const auto* number = std::get_if<int64_t>(&it->second))
      return *number >= 0 && *number <= (k.name == "unroll" ? kMostUnrolled : kLargestNumber);
    return is_fewer_residues(k, it->second) ||
           std::find(k.choices.begin(), k.choices.end(), it->second) != k.choices.end();
  });
}

int lanes_of(const TargetInfo& t, DType dtype) {
  return std::max(1, t.vector_bits / 8 / static_cast<int>(size_of(dtype)));
}

int max_tile_vectors(const TargetInfo& t) {
  return t.vector_registers >= 32 ? 4 : 3;
}

int max_tile_rows(const TargetInfo& t, int64_t vectors) {
  if (t.multiplies_by_lane)  // beside the sums a register of each row
    return static_cast<int>(std::max<int64_t>(1, (t.vector_registers - vectors) / (vectors + 1)));
  return static_cast<int>(std::max<int64_t>(1, (t.vector_registers - vectors - 1) / vectors));
}

std::span<const double> panel_costs(const TargetInfo& t) {
  // 32 registers: measured with 512 bits at 16-128 rows; 16: with 256 bits.
  static constexpr double kOf32[] = {1.5, 1.04, 1.0, 1.05}, kOf16[] = {1.3, 1.0, 1.02};
  // By lanes: registers loaded for a multiply-add of the largest tile (15 x 1, 10 x 2, 7 x 3, 5 x
  // 4: a quarter of a row's and the vectors), as half of a multiply-add each.
  static constexpr double kByLane[] = {1.16, 1.11, 1.11, 1.13};
  if (t.multiplies_by_lane) return kByLane;
  if (t.vector_registers >= 32) return kOf32;
  return kOf16;
}

int default_tile_rows(const TargetInfo& t, int64_t vectors) {
  // 8 rows never exceed the ways of L1; narrower panels need more rows for enough arithmetic.
  return std::min(max_tile_rows(t, vectors), vectors >= 3 ? 8 : vectors == 2 ? 12 : 16);
}

namespace {

bool has_shares(const kir::Stmt& s) {
  return (s.kind == kir::StmtKind::kFor && s.loop == kir::LoopKind::kThread) ||
         std::any_of(s.body.begin(), s.body.end(),
                     [](const kir::StmtRef& inner) { return has_shares(*inner); });
}

// The most iterations of a loop that threads share; nothing if there is none, or one whose
// iterations are not known: the kernel may split its work by other means.
std::optional<int64_t> most_shares(const kir::Stmt& s) {
  if (s.kind == kir::StmtKind::kFor && s.loop == kir::LoopKind::kThread)
    return kir::trip_count(s).as_constant();
  std::optional<int64_t> most;
  for (const kir::StmtRef& inner : s.body) {
    if (!has_shares(*inner)) continue;
    const auto shares = most_shares(*inner);
    if (!shares) return {};
    most = std::max(most.value_or(0), *shares);
  }
  return most;
}

}  // namespace

Lowered one_kernel(kir::Function f, int max_threads) {
  Lowered out;
  // A region of more threads than shares would wake the rest for nothing, and give the one share
  // of a single row to the last of them.
  constexpr int64_t kAny = std::numeric_limits<int>::max();
  const int64_t shares = std::clamp<int64_t>(most_shares(*f.body).value_or(kAny), 1, kAny);
  if (shares < (max_threads > 0 ? max_threads : kAny)) max_threads = static_cast<int>(shares);
  out.functions.push_back(std::move(f));
  out.tails = exec::DispatchTree::single(0);
  out.max_threads = max_threads;
  return out;
}

bool has_tails(const Config& c, const kir::Dim& m) {
  if (!knob_text(c, "tails").starts_with(kTailsResidue)) return true;
  return m.as_symbol().has_value() &&
         residue_kernels(knob_text(c, "tails"), knob_int(c, "rows")) > 0;
}

Lowered kernels_of_tails(
    const Workload& w, const Config& c, const kir::Dim& m, const std::string& name,
    const std::function<kir::Function(int residue, const std::string& name)>& lower) {
  if (!knob_text(c, "tails").starts_with(kTailsResidue)) return one_kernel(lower(0, name));
  Lowered out;
  const int kernels = residue_kernels(knob_text(c, "tails"), knob_int(c, "rows"));
  for (int r = 0; r < kernels; ++r)
    out.functions.push_back(lower(r, name + "_r" + std::to_string(r)));
  out.tails = residue_tree(w, *m.as_symbol(), kernels);
  return out;
}

}  // namespace nimble::kernels
