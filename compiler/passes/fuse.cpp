// Operator fusion.
//
// Groups start as single operators and grow along edges whose value has exactly one use: then the
// intermediate never needs memory, and the members form a tree, so no cycle can arise. An edge
// joins
//   element-wise or injective  -> anything   (a prologue),
//   anchor or reduction        -> element-wise of the same shape (an epilogue),
// provided that a template serves the joined group: templates alone know what they can compute,
// so the pass asks instead of guessing. A producer that costs something is not recomputed for each
// element of a larger consumer. Operators whose shape depends on data are never fused after
// others (paper, 3.2).
//
// One value of several uses joins a group nevertheless: what is converted to another element type
// before anything else reads it. The group then has two results, the value and its conversion: a
// normalisation gives its rows in f32 for the residual and in bf16 for the next product, and
// nothing passes through memory twice.
//
// And a value that one group alone reads, more than once, joins it: of x * sigmoid(x) behind a
// convolution neither x nor its sigmoid goes through memory. Only groups that have stopped growing
// show it.
//
// Bytes that are widened are different: they are small, and what is made of them is four times as
// large. All other edges come first, so that the widening joins what reads it; only then may what
// made the bytes join it, too. So a quantised convolution gives its bytes to a pooling that begins
// with floats, and takes a sum that ends in bytes. So is what was rounded to 16 bits, or such
// elements moved, and is widened for one element-wise operator: an image that is stored in bf16
// (store-images) and a residual, too, or a shortcut's, which waits for the sum.
//
// When all that is done, a reduction of rows joins what the rows become by it, x / sum(x) or
// round(x / max |x|): the group reads a row twice, the second time from the cache. What others read
// of the reduction is a result, too. So does a second reduction of the same rows, as in
// (x - min(x)) / (max(x) - min(x)). Then a normalisation joins such a group that reads its rows: a
// layer norm gives its rows in f32 for the residual, their ranges, and in bytes for the next
// product. All this comes last, so that it takes no value away from groups that need it less.
//
// A group has at most kMostMembers members: each join looks at the whole group anew, which would be
// quadratic in a long chain, and a value that goes through memory once in so many operators costs
// nothing.
//
// Where there is a GPU, each operator first gets a device: the GPU if one of its templates takes
// the operator, else, and where the host computes for itself (operator_devices.h), the CPU. Groups
// of different devices do not join, so each is served where it runs; the attribute `device` says it
// to place-devices. A view goes with its neighbours.
//
// Views that stay alone remain views; scalar code stays outside of kernels.
#include "compiler/passes/fuse.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "compiler/ir/axes.h"
#include "compiler/ir/builder.h"
#include "compiler/ir/entry.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/template.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/operator_devices.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::FusionKind;
using ir::Var;
using ir::VarRef;

constexpr size_t kMostMembers = 128;
constexpr int64_t kAnyDevice = -1;

struct Group {
  std::vector<size_t> members;  // binding indices, ascending; the last is the root
  std::vector<size_t> kept;     // members that are results, too, ahead of the root; ascending
  FusionKind kind = FusionKind::kOpaque;
  int64_t device = kAnyDevice;  // without a GPU always
};

// What is known of the function around a block.
struct Surroundings {
  UseCounts uses;
  ir::DimContext dims;
  int64_t device = kAnyDevice;             // the attribute of the function
  std::optional<OperatorDevices> devices;  // if there is a GPU
};

// What never enters a kernel.
bool stays_outside(const Expr& e) {
  const ir::OpInfo* op = e.kind == ExprKind::kCall ? ir::find_op(e.op) : nullptr;
  return !op || op->fusion == FusionKind::kOutside || is_scalar_op(e);
}

// Gives the value's elements in another type.
bool is_conversion(const ir::OpInfo& op) {
  return op.fusion == FusionKind::kElementwise && op.traits.identity;
}

bool is_cheap(const ir::OpInfo& op) {
  return op.traits.cheap || op.fusion == FusionKind::kInjective;
}

class BlockFusion {
 public:
  BlockFusion(const Block& block, const Surroundings& around, bool join, PassContext& context)
      : block_(block),
        around_(around),
        uses_(around.uses),
        dims_(around.dims),
        join_(join),
        context_(context) {}

  ir::BlockRef run(const std::function<ir::BlockRef(const Block&)>& nested) {
    form_groups();
    if (join_) {
      grow();
      join_only_readers();
      join_rows(&BlockFusion::goes_back_to_rows, "fuse.rows");
      join_rows(&BlockFusion::is_beside, "fuse.rows-beside");
      join_rows(&BlockFusion::is_reduced_again, "fuse.rows-again");
    }
    return rebuild(nested);
  }

  // Of a block of one operator.
  bool is_taken(int32_t device) const {
    Group g;
    g.members = {0};
    std::vector<Atom> args;
    return served(*primitive(g, &args), device);
  }

 private:
  const Expr& expr(size_t i) const { return *block_.bindings[i].value; }

  void form_groups() {
    group_of_.assign(block_.bindings.size(), SIZE_MAX);
    for (size_t i = 0; i < block_.bindings.size(); ++i) {
      if (stays_outside(expr(i))) continue;
      const ir::OpInfo* info = ir::find_op(expr(i).op);
      group_of_[i] = groups_.size();
      groups_.push_back({{i}, {}, info->fusion});
      groups_.back().device = device_for(groups_.back());
    }
  }

  // Where a single operator runs.
  int64_t device_for(const Group& g) const {
    if (!context_.gpu || only_views(g)) return kAnyDevice;
    if (around_.device != kAnyDevice) return around_.device;
    const auto device = around_.devices->of(block_.bindings[g.members[0]].var.get());
    return device ? *device : device_that_serves(g);
  }

  int64_t device_that_serves(const Group& g) const {
    std::vector<Atom> args;
    const ir::FunctionRef f = primitive(g, &args);
    return served(*f, kCudaDevice) ? kCudaDevice : kCpuDevice;
  }

  void grow() {
    for (size_t i = 0; i < block_.bindings.size(); ++i)
      if (expr(i).kind == ExprKind::kCall)
        for (const Atom& a : expr(i).args)
          if (a.is_var()) reader_of_.try_emplace(a.var.get(), i);
    for (const bool widens : {false, true})
      for (size_t i = 0; i < block_.bindings.size(); ++i) grow_behind(i, widens);
  }

  // Joins the group of binding i with that of its first reader, if they may join; `widens`: of
  // edges that widen bytes, or an image that is stored narrow, otherwise of all others.
  void grow_behind(size_t i, bool widens) {
    if (group_of_[i] == SIZE_MAX) return;
    const Var* v = block_.bindings[i].var.get();
    auto use = uses_.find(v);
    if (use == uses_.end()) return;
    const auto consumer = reader_of_.find(v);
    if (consumer == reader_of_.end() || group_of_[consumer->second] == SIZE_MAX) return;
    const size_t reader = consumer->second;
    if ((widens_bytes(i, reader) || is_widened_for_one(i, reader)) != widens) return;
    if (use->second > 1 && (widens || !is_converted_first(i, reader))) return;
    const size_t from = group_of_[i], to = group_of_[reader];
    if (kinds_allow(groups_[from], groups_[to], reader)) try_join(from, to, use->second > 1);
  }

  // Whether binding i is of bytes, which its reader converts to a larger type.
  bool widens_bytes(size_t i, size_t reader) const {
    const ir::Type& made = block_.bindings[i].var->type;
    const ir::Type& read = block_.bindings[reader].var->type;
    return is_conversion(*ir::find_op(expr(reader).op)) && made->kind == ir::TypeKind::kTensor &&
           read->kind == ir::TypeKind::kTensor &&
           (made->dtype == DType::kU8 || made->dtype == DType::kI8) && size_of(read->dtype) > 1;
  }

  // Joins each group with the one that alone reads its result, in several places.
  void join_only_readers() {
    for (size_t i = 0; i < block_.bindings.size(); ++i) {
      const auto reader = reader_of_.find(block_.bindings[i].var.get());
      if (group_of_[i] == SIZE_MAX || reader == reader_of_.end()) continue;
      const size_t from = group_of_[i], to = group_of_[reader->second];
      if (to == SIZE_MAX || to == from || groups_[from].members.back() != i) continue;
      if (uses_.at(block_.bindings[i].var.get()) == 1 || read_behind(i, groups_[to]) != false)
        continue;
      bool allowed = true;
      for (const size_t m : groups_[to].members)
        visit_atoms(expr(m), [&](const Atom& a) {
          if (a.is_var() && a.var == block_.bindings[i].var)
            allowed &= kinds_allow(groups_[from], groups_[to], m) && reads_in_place(i, m);
        });
      if (allowed && try_join(from, to, false)) context_.count("fuse.only-reader");
    }
  }

  using Rule = bool (BlockFusion::*)(const Group& p, const Group& c, size_t reader) const;

  // Joins each group with the first reader of its result by a rule for reductions, whoever else
  // reads that behind the joined group.
  void join_rows(Rule rule, const char* counted) {
    for (size_t i = 0; i < block_.bindings.size(); ++i) {
      const auto reader = reader_of_.find(block_.bindings[i].var.get());
      if (group_of_[i] == SIZE_MAX || reader == reader_of_.end()) continue;
      const size_t from = group_of_[i], to = group_of_[reader->second];
      if (to == SIZE_MAX || to == from || groups_[from].members.back() != i ||
          !(this->*rule)(groups_[from], groups_[to], reader->second))
        continue;
      if (const auto keep = read_behind(i, groups_[to]); keep && try_join(from, to, *keep))
        context_.count(counted);
    }
  }

  // Whether each element of binding i is read once, for the element of the same index.
  bool reads_in_place(size_t i, size_t reader) const {
    return ir::find_op(expr(reader).op)->fusion == FusionKind::kElementwise &&
           block_.bindings[i].var->type->dims == block_.bindings[reader].var->type->dims;
  }

  // Whether a reduction's result is read by an element-wise operator of more elements.
  bool goes_back_to_rows(const Group& p, const Group& c, size_t reader) const {
    const ir::Type& made = block_.bindings[p.members.back()].var->type;
    const ir::Type& read = block_.bindings[reader].var->type;
    return p.kind == FusionKind::kReduction && c.kind <= FusionKind::kInjective &&
           ir::find_op(expr(reader).op)->fusion == FusionKind::kElementwise &&
           made->kind == ir::TypeKind::kTensor && read->kind == ir::TypeKind::kTensor &&
           made->dims.size() == read->dims.size() && made->dims != read->dims;
  }

  // Whether what a reduction made of a row is read where another reduction's result is worked on.
  bool is_beside(const Group& p, const Group& c, size_t reader) const {
    const ir::Type& made = block_.bindings[p.members.back()].var->type;
    const ir::Type& read = block_.bindings[reader].var->type;
    return p.kind == FusionKind::kReduction && c.kind == FusionKind::kReduction &&
           ir::find_op(expr(reader).op)->fusion == FusionKind::kElementwise &&
           made->kind == ir::TypeKind::kTensor && read->kind == ir::TypeKind::kTensor &&
           made->dims == read->dims;
  }

  // Whether a row that a reduction made, a normalisation, goes through reductions again.
  bool is_reduced_again(const Group& p, const Group& c, size_t reader) const {
    return is_beside(p, c, reader) ||
           (p.kind == FusionKind::kReduction && c.kind == FusionKind::kReduction &&
            ir::find_op(expr(reader).op)->fusion == FusionKind::kReduction);
  }

  // Whether others than the members of a group read binding i. Nothing where one of them stands
  // ahead of the group's end.
  std::optional<bool> read_behind(size_t i, const Group& g) const {
    const VarRef& v = block_.bindings[i].var;
    int64_t inside = 0;
    for (size_t at = i + 1; at <= g.members.back(); ++at) {
      int64_t reads = 0;
      visit_atoms(expr(at), [&](const Atom& a) { reads += a.is_var() && a.var == v; });
      if (reads > 0 && !std::binary_search(g.members.begin(), g.members.end(), at))
        return std::nullopt;
      inside += reads;
    }
    return static_cast<int64_t>(uses_.at(v.get())) > inside;
  }

  // Whether the first to read binding i is a conversion, at `reader`, that is in no group yet.
  bool is_converted_first(size_t i, size_t reader) const {
    if (!is_conversion(*ir::find_op(expr(reader).op))) return false;
    if (groups_[group_of_[reader]].members.size() > 1) return false;
    bool earlier = false;
    for (size_t between = i + 1; between < reader; ++between)
      visit_atoms(expr(between),
                  [&](const Atom& a) { earlier |= a.is_var() && a.var == block_.bindings[i].var; });
    return !earlier;
  }

  // Whether binding i was rounded, or such elements were moved, and the conversion at `reader`
  // widens it for one element-wise operator.
  bool is_widened_for_one(size_t i, size_t reader) const {
    const ir::OpInfo& made_by = *ir::find_op(expr(i).op);
    if (!is_conversion(*ir::find_op(expr(reader).op)) ||
        (!is_conversion(made_by) && made_by.fusion != FusionKind::kInjective))
      return false;
    const VarRef& wide = block_.bindings[reader].var;
    const ir::Type& made = block_.bindings[i].var->type;
    if (made->kind != ir::TypeKind::kTensor || wide->type->kind != ir::TypeKind::kTensor ||
        !is_narrow_float(made->dtype) || size_of(wide->type->dtype) <= size_of(made->dtype))
      return false;
    const auto uses = uses_.find(wide.get());
    const auto behind = reader_of_.find(wide.get());
    return uses != uses_.end() && uses->second == 1 && behind != reader_of_.end() &&
           group_of_[behind->second] != SIZE_MAX &&
           ir::find_op(expr(behind->second).op)->fusion == FusionKind::kElementwise;
  }

  // `keep`: others read the producer's value, too.
  bool try_join(size_t producer, size_t consumer, bool keep) {
    Group& p = groups_[producer];
    Group& c = groups_[consumer];
    // Readers of what p keeps may stand ahead of the joined group; and a view costs nothing.
    if (!p.kept.empty() || (keep && only_views(p))) return false;
    if (p.members.size() + c.members.size() > kMostMembers) return false;
    if (p.device != c.device && p.device != kAnyDevice && c.device != kAnyDevice) return false;
    Group joined;
    joined.device = p.device == kAnyDevice ? c.device : p.device;
    joined.members = p.members;
    joined.members.insert(joined.members.end(), c.members.begin(), c.members.end());
    std::sort(joined.members.begin(), joined.members.end());
    joined.kind = std::max(p.kind, c.kind);
    joined.kept = c.kept;
    if (keep)
      joined.kept.insert(std::upper_bound(joined.kept.begin(), joined.kept.end(), p.members.back()),
                         p.members.back());
    if (!served(joined)) return false;
    for (size_t m : p.members) group_of_[m] = consumer;
    p.members.clear();
    c = std::move(joined);
    context_.count("fuse.joined");
    return true;
  }

  bool kinds_allow(const Group& p, const Group& c, size_t reader) const {
    if (p.kind >= FusionKind::kOpaque || c.kind >= FusionKind::kOpaque) return false;
    if (ir::find_op(expr(reader).op)->shape_mode != ir::ShapeMode::kDataIndependent) return false;
    const ir::Type& made = block_.bindings[p.members.back()].var->type;
    const ir::Type& read = block_.bindings[reader].var->type;
    if (made->kind != ir::TypeKind::kTensor || read->kind != ir::TypeKind::kTensor) return false;
    if (is_row_of_parts(expr(p.members.back())) &&
        ir::find_op(expr(reader).op)->fusion == FusionKind::kReduction)
      return false;
    if (p.kind >= FusionKind::kReduction)
      return c.kind <= FusionKind::kInjective &&
             ir::find_op(expr(reader).op)->fusion == FusionKind::kElementwise &&
             made->dims == read->dims;
    return std::all_of(p.members.begin(), p.members.end(),
                       [&](size_t m) { return is_cheap(*ir::find_op(expr(m).op)); }) ||
           !has_more_elements(c, reader, made);
  }

  // Whether it puts parts of each row side by side. A reduction would look up in which part each
  // element lies, one by one; the kernels that make the parts can store them where they go instead
  // (join-in-place), and the reduction reads vectors.
  static bool is_row_of_parts(const Expr& e) {
    return e.op == "concat" && e.args.size() > 1 &&
           ir::axis_of(e) + 1 == ir::type_of(e.args[0])->dims.size();
  }

  // Whether a member of c, `reader` or what depends on it, has more elements than `made`. (What
  // stands behind the reader has joined it already where edges are not taken in their order.)
  bool has_more_elements(const Group& c, size_t reader, const ir::Type& made) const {
    const Dim elements = ir::element_count(made);
    std::set<const Var*> dependent;
    for (const size_t m : c.members) {
      bool depends = m == reader;
      if (!dependent.empty())
        visit_atoms(expr(m), [&](const Atom& a) {
          depends |= a.is_var() && dependent.contains(a.var.get());
        });
      if (!depends) continue;
      const VarRef& v = block_.bindings[m].var;
      if (v->type->kind != ir::TypeKind::kTensor ||
          dims_.less_equal(ir::element_count(v->type), elements) != ir::Proof::kYes)
        return true;
      dependent.insert(v.get());
    }
    return false;
  }

  bool served(const Group& g) const {
    std::vector<Atom> args;
    const ir::FunctionRef f = primitive(g, &args);
    if (context_.gpu && g.device == kAnyDevice)
      return served(*f, kCudaDevice) || served(*f, kCpuDevice);
    return served(*f, g.device);
  }
  bool served(const ir::Function& f, int64_t device) const {
    return kernels::template_for(*context_.workloads->of(f), context_.target_of(device)) != nullptr;
  }

  static bool is_kept(const Group& g, size_t member) {
    return std::binary_search(g.kept.begin(), g.kept.end(), member);
  }

  bool only_views(const Group& g) const {
    return std::all_of(g.members.begin(), g.members.end(), [&](size_t m) {
      const ir::Memory memory = ir::traits_of(expr(m)).memory;
      return memory == ir::Memory::kView || (memory == ir::Memory::kPart && g.members.size() == 1);
    });
  }

  // The group as a function of its outside operands, which come back in `args`.
  ir::FunctionRef primitive(const Group& g, std::vector<Atom>* args) const {
    std::unordered_map<const Var*, Atom> inside;
    std::vector<VarRef> parameters;
    std::vector<int64_t> scalars;
    std::map<const ir::Tensor*, Atom> constants;
    ir::BlockBuilder body;
    auto operand = [&](const Atom& a, bool from_memory) -> Atom {
      if (a.is_var()) {
        auto it = inside.find(a.var.get());
        if (it != inside.end()) return it->second;
      } else if (a.is_constant()) {
        if (a.constant->elements() == 1 && !from_memory) return a;
        auto it = constants.find(a.constant.get());
        if (it != constants.end()) return it->second;
      }
      VarRef p = ir::make_var("p" + std::to_string(parameters.size()), ir::type_of(a));
      if (a.is_var() && is_scalar(p->type)) scalars.push_back(static_cast<int64_t>(args->size()));
      parameters.push_back(p);
      args->push_back(a);
      if (a.is_var())
        inside[a.var.get()] = p;
      else
        constants[a.constant.get()] = p;
      return p;
    };
    Atom result;
    std::vector<Atom> results;
    for (size_t m : g.members) {
      const Binding& b = block_.bindings[m];
      std::vector<Atom> operands;
      // Templates of products read matrices of one element, too.
      const bool anchor = ir::find_op(b.value->op)->fusion == FusionKind::kAnchor;
      for (size_t i = 0; i < b.value->args.size(); ++i)
        operands.push_back(operand(b.value->args[i], anchor && i < 2));
      VarRef v = body.call(b.value->op, std::move(operands), b.value->attrs, b.var->name,
                           b.value->location);
      v->type = b.var->type;
      inside[b.var.get()] = v;
      result = v;
      if (is_kept(g, m) || m == g.members.back()) results.push_back(v);
    }
    if (!g.kept.empty()) {
      std::vector<ir::Type> types;
      for (const Atom& a : results) types.push_back(ir::type_of(a));
      const VarRef all = body.bind(ir::make_tuple(results), "results");
      all->type = ir::tuple_type(std::move(types));
      result = all;
    }
    ir::Attrs attrs = {{"primitive", true}};
    if (!scalars.empty()) attrs["scalars"] = scalars;
    if (g.device != kAnyDevice) attrs["device"] = g.device;
    return ir::make_function_of(std::move(parameters), body.finish(result), ir::type_of(result),
                                attrs, block_.bindings[g.members.back()].value->location);
  }

  ir::BlockRef rebuild(const std::function<ir::BlockRef(const Block&)>& nested) {
    ir::BlockBuilder out;
    for (size_t i = 0; i < block_.bindings.size(); ++i) {
      const Binding& b = block_.bindings[i];
      if (group_of_[i] == SIZE_MAX) {
        out.append({b.var, map_blocks(b.value, [&](const ir::BlockRef& x) { return nested(*x); })});
        continue;
      }
      Group& g = groups_[group_of_[i]];
      if (only_views(g)) {
        out.append(b);
        continue;
      }
      if (g.members.back() != i) continue;
      if (context_.gpu && g.device == kAnyDevice) g.device = device_that_serves(g);
      std::vector<Atom> args;
      ir::FunctionRef f = primitive(g, &args);
      if (g.members.size() == 1 && !served(*f, g.device)) {
        out.append(b);
        continue;
      }
      const ir::ExprRef call = ir::make_call_primitive(f, std::move(args), b.value->location);
      if (!g.kept.empty()) {
        const VarRef all = out.bind(call, "results");
        all->type = f->result_type;
        int64_t field = 0;
        for (const size_t m : g.kept)
          out.append({block_.bindings[m].var, ir::make_get_field(all, field++, b.value->location)});
        out.append({b.var, ir::make_get_field(all, field, b.value->location)});
        context_.count("fuse.kept");
      } else {
        out.append({b.var, call});
      }
      context_.count("fuse.groups");
    }
    return out.finish(block_.result);
  }

  const Block& block_;
  const Surroundings& around_;
  const UseCounts& uses_;
  const ir::DimContext& dims_;
  bool join_;  // false: groups stay single operators
  PassContext& context_;
  std::vector<Group> groups_;
  std::vector<size_t> group_of_;
  std::unordered_map<const Var*, size_t> reader_of_;  // the first call of this block that reads it
};

bool is_taken(const Binding& b, int32_t device, const Surroundings& around, PassContext& context) {
  Block alone;
  alone.bindings = {b};
  return BlockFusion(alone, around, false, context).is_taken(device);
}

ir::Module fused(const ir::Module& m, bool join, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    Surroundings around{
        count_uses(*f->body), ir::dim_context(*f), ir::attr_or(f->attrs, "device", kAnyDevice), {}};
    if (context.gpu)
      around.devices.emplace(*f, ir::is_entry(m, name), [&](const Binding& b, int32_t device) {
        return is_taken(b, device, around, context);
      });
    std::function<ir::BlockRef(const Block&)> run = [&](const Block& b) {
      return BlockFusion(b, around, join, context).run(run);
    };
    auto copy = std::make_shared<ir::Function>(*f);
    copy->body = run(*f->body);
    f = copy;
  }
  return out;
}

}  // namespace

ir::Module fuse(const ir::Module& m, PassContext& context) {
  return fused(m, true, context);
}

ir::Module fuse_nothing(const ir::Module& m, PassContext& context) {
  return fused(m, false, context);
}

}  // namespace nimble::passes
