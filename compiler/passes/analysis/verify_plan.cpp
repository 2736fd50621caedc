// The verifier of memory plans. It walks a lowered function as the VM will run it and keeps, for
// each path, what is known of every name (a variable that holds a storage, a tensor or a value with
// tensors inside). Two notions carry it:
//
//   An *object* is a piece of memory: what one memory.alloc_storage makes, or what one parameter
//   brings. A name may lie in several objects (the result of an `if`), a call's result in all that
//   the call saw. Objects are never split: names in the same object are taken to overlap unless
//   their byte ranges are proved disjoint.
//
//   A name is *stale* once its bytes may have been given to another tensor, or overwritten through
//   another name. Nothing is wrong with that; reading a stale name is the fault. So no liveness is
//   needed here: the planner argues backwards from last uses, the verifier forwards from writes.
//
// A write through a row view updates the tensor viewed, which stays good (that is write_row);
// everything else in the object becomes stale. A tensor allocated in a tensor takes its memory
// over: the old name may still be read until the new one is written.
//
// Branches start from copies of the state and are joined: killed, freed and stale where any branch
// says so, ended where all do. A branch that ends in memory.fatal does not count. Functions that
// write into a parameter's memory are found as a least fixed point; at their calls the argument
// must be given away.
//
// The rules:
//   P1  a name is used only where its binding lies on every path before
//   P2  a name is not used, nor killed again, after it was killed or released
//   P3  a tensor is not used after the memory that it may lie in was freed
//   P4  what may be held elsewhere (by a tuple, a data value, a closure, a call) is not freed: such
//       storage is released; only what alloc_storage made is freed
//   P5  two tensors share bytes only if one is a declared view of the other, or takes its memory
//       over, or the other one is not read again
//   P6  a kernel writes only memory that the function allocated, or that every caller gives away
//   P7  a kernel's output overlaps an input or another output only where the kernel is
//       element-wise and both are the same elements
//   P8  a tensor fits its storage: proved, or left to the check that the VM makes at run time,
//       never refuted
//   P9  every storage and every tensor of a block ends on every path: killed, released, or given
//       out as the block's result
//   P10 a tensor that is a part of rows (attribute `part`) has the columns that it names: it begins
//       there, a kernel writes all of them and no other, reads no other, and reads what was written
#include "compiler/passes/analysis/verify_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compiler/ir/entry.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/op.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Proof;
using ir::Type;
using ir::TypeKind;
using ir::Var;

using ParameterSet = std::set<std::pair<std::string, size_t>>;

struct Object {
  const Var* storage = nullptr;  // null: a parameter's
  size_t parameter = 0;
  Dim bytes;  // of a storage
};

// Columns of rows that several tensors share.
struct Part {
  int64_t whole = 0;  // its number
  Dim pitch, first, last;
  int64_t size = 0;  // bytes of an element

  Dim count() const { return last - first; }
};

struct Name {
  std::set<size_t> objects;
  std::optional<Part> part;
  const Var* viewed = nullptr;      // the tensor that this one is a row of
  const Var* taken_over = nullptr;  // the tensor whose memory it takes
  std::optional<Dim> begin, end;    // bytes within the one object, where known
  bool exact = false;               // it begins there, rather than anywhere between

  void set_range(Dim from, const Dim& bytes) {
    end = from + bytes;
    begin = std::move(from);
    exact = true;
  }
  // The range of what lies in `whole`, from byte `offset` on if that is known.
  void set_part(const Name& whole, const std::optional<Dim>& offset, const Dim& bytes) {
    if (whole.exact && offset) return set_range(*whole.begin + *offset, bytes);
    begin = whole.begin;
    end = whole.end;
  }
};

struct State {
  std::set<const Var*> killed;  // on some path
  std::set<const Var*> ended;   // on every path
  std::map<const Var*, std::string> stale;
  std::set<size_t> freed, held;
  // Columns, by the object and the number of the whole there.
  std::map<std::pair<size_t, int64_t>, std::vector<std::pair<Dim, Dim>>> written;
  bool stopped = false;  // by memory.fatal
};

bool has_memory(const Type& t) {
  if (!t) return false;
  if (t->kind == TypeKind::kScalar) return false;
  if (t->kind != TypeKind::kTuple) return true;
  return std::any_of(t->elements.begin(), t->elements.end(), has_memory);
}

Dim bytes_of(DType dtype, const std::vector<Dim>& shape) {
  Dim bytes = static_cast<int64_t>(size_of(dtype));
  for (const Dim& d : shape) bytes = bytes * d;
  return bytes;
}
Dim bytes_of(const Expr& alloc) {
  return bytes_of(ir::attr<DType>(alloc.attrs, "dtype"),
                  ir::attr<std::vector<Dim>>(alloc.attrs, "shape"));
}

class PlanVerifier {
 public:
  explicit PlanVerifier(const ir::Module& m) : module_(m) {}

  PlanReport run() {
    size_t before;
    do {
      before = written_.size();
      for (const auto& [name, f] : module_.functions) function(name, *f);
    } while (written_.size() > before);
    report_ = {};
    reporting_ = true;
    for (const auto& [name, f] : module_.functions) function(name, *f);
    return std::move(report_);
  }

 private:
  void fault(const char* rule, const std::string& problem) {
    if (reporting_ && report_.faults.size() < 100)
      report_.faults.push_back(fmt::format("{}: {}: {}", where_, rule, problem));
  }

  void function(const std::string& name, const ir::Function& f) {
    function_ = name;
    entry_ = ir::is_entry(module_, name);
    dims_ = ir::dim_context(f);
    objects_.clear();
    names_.clear();
    visible_.clear();
    same_.clear();
    sizes_.clear();
    where_ = "@" + name;
    State state;
    for (size_t i = 0; i < f.parameters.size(); ++i) {
      const Var* p = f.parameters[i].get();
      visible_.insert(p);
      if (!has_memory(p->type)) continue;
      names_[p].objects = {objects_.size()};
      objects_.push_back({nullptr, i, 0});
      if (p->type->kind == TypeKind::kTensor)
        names_[p].set_range(0, bytes_of(p->type->dtype, p->type->dims));
    }
    block(*f.body, state);
  }

  // ---- names

  const Var* same(const Var* v) const {
    auto it = same_.find(v);
    return it == same_.end() ? v : it->second;
  }

  std::set<size_t> objects_of(const Atom& a) const {
    if (!a.is_var()) return {};
    auto it = names_.find(same(a.var.get()));
    return it == names_.end() ? std::set<size_t>{} : it->second.objects;
  }

  bool overlap(const Name& a, const Name& b) const {
    const bool common = std::any_of(a.objects.begin(), a.objects.end(),
                                    [&](size_t o) { return b.objects.count(o) > 0; });
    if (!common) return false;
    // Of the same rows; columns of others do not tell where in memory they are.
    if (a.part && b.part && a.part->whole == b.part->whole && a.part->size == b.part->size &&
        dims_.equal(a.part->pitch, b.part->pitch) == Proof::kYes)
      return dims_.less_equal(a.part->last, b.part->first) != Proof::kYes &&
             dims_.less_equal(b.part->last, a.part->first) != Proof::kYes;
    if (a.objects.size() > 1 || b.objects.size() > 1 || !a.begin || !b.begin) return true;
    return dims_.less_equal(*a.end, *b.begin) != Proof::kYes &&
           dims_.less_equal(*b.end, *a.begin) != Proof::kYes;
  }

  // A use of a name for what it holds, or only to write it.
  void use(const Atom& a, const State& state, bool writes = false) {
    if (!a.is_var()) {
      if (a.is_global()) function_value(a.global);
      return;
    }
    const Var* v = a.var.get();
    if (!visible_.count(v))
      return fault("P1", fmt::format("%{} is used before it exists", v->name));
    v = same(v);
    auto name = names_.find(v);
    if (name == names_.end()) return;
    if (state.killed.count(v))
      return fault("P2", fmt::format("%{} is used after its life was ended", v->name));
    for (size_t o : name->second.objects)
      if (state.freed.count(o))
        return fault("P3", fmt::format("%{} is used after {} was freed", v->name,
                                       objects_[o].storage ? "%" + objects_[o].storage->name
                                                           : "an argument's memory"));
    auto stale = state.stale.find(v);
    if (stale != state.stale.end())
      fault("P5", fmt::format("%{} is used after {}", v->name, stale->second));
    if (!writes && name->second.part && !is_written(name->second, state))
      fault("P10", fmt::format("%{} is read before all of it was written", v->name));
  }

  // Whether all columns of a part were written.
  bool is_written(const Name& name, const State& state) const {
    if (name.objects.size() != 1) return false;
    const Part& part = *name.part;
    const auto it = state.written.find({*name.objects.begin(), part.whole});
    auto left = it == state.written.end() ? std::vector<std::pair<Dim, Dim>>{} : it->second;
    Dim at = part.first;
    while (dims_.less_equal(part.last, at) != Proof::kYes) {
      const auto next = std::find_if(left.begin(), left.end(), [&](const auto& columns) {
        return dims_.less_equal(columns.first, at) == Proof::kYes &&
               dims_.less_equal(at, columns.second) == Proof::kYes;
      });
      if (next == left.end()) return false;
      at = next->second;
      left.erase(next);
    }
    return true;
  }

  // A function that may be called from anywhere must leave its arguments alone.
  void function_value(const std::string& name) {
    for (const auto& [function, parameter] : written_)
      if (function == name)
        fault("P6",
              fmt::format("@{} is a value, and writes into its parameter {}", name, parameter));
  }

  // `but`: names that are parts of this whole stay good.
  void make_stale(const Var* writer, const std::string& reason, State& state,
                  std::optional<int64_t> but = {}) {
    const Name& w = names_[writer];
    for (const auto& [v, name] : names_) {
      if (but && name.part && name.part->whole == *but) continue;
      if (v == writer || v == w.viewed || !v->type || v->type->kind == TypeKind::kStorage) continue;
      if (visible_.count(v) && overlap(w, name)) state.stale.emplace(v, reason);
    }
  }

  void end_life(const Var* v, State& state) {
    if (!state.killed.insert(v).second) fault("P2", fmt::format("%{} is killed twice", v->name));
    state.ended.insert(v);
  }

  // ---- blocks

  // The objects of the block's result.
  std::set<size_t> block(const Block& b, State& state) {
    const std::string outer = where_;
    for (const Binding& binding : b.bindings) {
      const std::string at = binding.value->location.str();
      where_ =
          fmt::format("@{}:%{}{}", function_, binding.var->name, at.empty() ? "" : " (" + at + ")");
      expression(binding, state);
      visible_.insert(binding.var.get());
    }
    where_ = outer;
    if (!state.stopped) {
      use(b.result, state);
      for (const Binding& binding : b.bindings) check_end(binding, b.result, state);
    }
    std::set<size_t> result = objects_of(b.result);
    for (const Binding& binding : b.bindings) visible_.erase(binding.var.get());
    return result;
  }

  void check_end(const Binding& binding, const Atom& result, const State& state) {
    const Expr& e = *binding.value;
    if (e.kind != ExprKind::kCall || !e.op.starts_with("memory.")) return;
    const Var* v = binding.var.get();
    const TypeKind kind = v->type ? v->type->kind : TypeKind::kScalar;
    if (kind != TypeKind::kStorage && kind != TypeKind::kTensor) return;
    if (state.ended.count(v) || (result.is_var() && same(result.var.get()) == v)) return;
    fault("P9", fmt::format("%{} is still there at the end of its block", v->name));
  }

  static void join(const std::vector<State>& ends, State& state) {
    bool any = false;
    for (const State& end : ends) {
      if (end.stopped) continue;
      if (!any) {
        state = end;
        any = true;
        continue;
      }
      state.killed.insert(end.killed.begin(), end.killed.end());
      std::erase_if(state.ended, [&](const Var* v) { return !end.ended.count(v); });
      state.stale.insert(end.stale.begin(), end.stale.end());
      for (auto& [whole, columns] : state.written)
        std::erase_if(columns, [&, number = whole](const auto& c) {
          const auto other = end.written.find(number);
          return other == end.written.end() ||
                 std::find(other->second.begin(), other->second.end(), c) == other->second.end();
        });
      state.freed.insert(end.freed.begin(), end.freed.end());
      state.held.insert(end.held.begin(), end.held.end());
    }
    if (!any) state.stopped = true;
  }

  void expression(const Binding& binding, State& state) {
    const Expr& e = *binding.value;
    const Var* v = binding.var.get();
    switch (e.kind) {
      case ExprKind::kAtom:
        use(e.args[0], state);
        if (e.args[0].is_var()) same_[v] = same(e.args[0].var.get());
        return;
      case ExprKind::kIf:
      case ExprKind::kMatch:
        return branches(binding, state);
      case ExprKind::kGetField:
        use(e.args[0], state);
        return derive(v, e);
      case ExprKind::kFunction:
      case ExprKind::kTuple:
      case ExprKind::kConstruct:
      case ExprKind::kClosure:
        for (const Atom& a : e.args) use(a, state);
        if (e.kind == ExprKind::kClosure) use(*e.callee, state);
        hold(e, state);
        return derive(v, e);
      case ExprKind::kCall:
        break;
    }
    if (e.callee) {
      call(e, state);
      derive(v, e);
    } else if (e.op == "memory.kill" || e.op == "memory.release") {
      kill(e, state);
    } else if (e.op == "memory.alloc_storage") {
      names_[v].objects = {objects_.size()};
      objects_.push_back({v, 0, ir::attr<Dim>(e.attrs, "bytes")});
    } else if (e.op == "memory.alloc_tensor") {
      alloc_tensor(v, e, state);
    } else if (e.op == "memory.invoke_mut") {
      invoke(e, state);
    } else {
      for (const Atom& a : e.args) use(a, state);
      if (e.op == "memory.fatal") state.stopped = true;
      if (e.op == "size") sizes_[v] = ir::attr<Dim>(e.attrs, "value");
      if (e.op == "memory.read_scalar" && e.attrs.contains("symbol"))
        sizes_[v] = Dim::symbol(ir::attr<std::string>(e.attrs, "symbol"));
      if (e.op == "memory.row_view" || e.op == "memory.reshape") view(v, e);
      if (e.op == "memory.storage_of") derive(v, e);
      if (e.op == "device_copy") {  // memory of its own, which nothing else has
        names_[v].objects = {objects_.size()};
        objects_.push_back({v, 0, ir::byte_size(v->type)});
      }
    }
  }

  // The value may hold what its operands hold.
  void derive(const Var* v, const Expr& e) {
    if (!has_memory(v->type)) return;
    Name& name = names_[v];
    for (const Atom& a : e.args) name.objects.merge(objects_of(a));
    if (e.callee) name.objects.merge(objects_of(*e.callee));
  }

  void hold(const Expr& e, State& state) {
    for (const Atom& a : e.args) state.held.merge(objects_of(a));
  }

  void branches(const Binding& binding, State& state) {
    const Expr& e = *binding.value;
    use(e.args[0], state);
    const std::vector<ir::BlockRef> nested = ir::blocks_of(e);
    std::vector<State> ends(nested.size(), state);
    std::set<size_t> results;
    for (size_t i = 0; i < nested.size(); ++i) {
      std::vector<ir::VarRef> bound;
      if (e.kind == ExprKind::kMatch) bound = ir::variables_of(e.cases[i].pattern);
      for (const ir::VarRef& p : bound) {
        visible_.insert(p.get());
        if (has_memory(p->type)) names_[p.get()].objects = objects_of(e.args[0]);
      }
      std::set<size_t> result = block(*nested[i], ends[i]);
      for (const ir::VarRef& p : bound) visible_.erase(p.get());
      if (!ends[i].stopped) results.merge(result);
    }
    join(ends, state);
    if (has_memory(binding.var->type)) names_[binding.var.get()].objects = std::move(results);
  }

  // ---- operators

  void kill(const Expr& e, State& state) {
    const Atom& a = e.args[0];
    if (!a.is_var() || !visible_.count(a.var.get()))
      return fault("P1", "what is killed does not exist");
    const Var* v = same(a.var.get());
    const bool frees = e.op == "memory.kill" && v->type && v->type->kind == TypeKind::kStorage;
    if (frees) {
      const std::set<size_t> objects = objects_of(a);
      for (size_t o : objects) {
        if (objects.size() > 1 || objects_[o].storage != v)
          fault("P4", fmt::format("%{} is freed, and may be another's memory", v->name));
        else if (state.held.count(o))
          fault("P4", fmt::format("%{} is freed, and may still be held elsewhere", v->name));
        state.freed.insert(o);
      }
    }
    end_life(v, state);
  }

  void alloc_tensor(const Var* v, const Expr& e, State& state) {
    const Atom& base = e.args[0];
    for (const Atom& a : e.args) use(a, state);
    Name name;
    name.objects = objects_of(base);
    const Dim begin = ir::attr<Dim>(e.attrs, "offset");
    const Dim end = begin + bytes_of(e);
    const Var* whole = base.is_var() ? same(base.var.get()) : nullptr;
    if (whole && whole->type && whole->type->kind == TypeKind::kTensor) {
      name.taken_over = whole;
      const Dim size = bytes_of(whole->type->dtype, whole->type->dims);
      // A part of a tensor may be as long as the run's data says: the VM compares.
      if (dims_.less_equal(end, size) == Proof::kNo)
        fault("P8", fmt::format("%{} needs {} bytes, and %{} has {}", v->name, end.str(),
                                whole->name, size.str()));
      ++(dims_.less_equal(end, size) == Proof::kYes ? report_.proved_sizes : report_.checked_sizes);
      name.set_part(names_[whole], begin, bytes_of(e));
      names_[v] = std::move(name);
      return;  // the old tensor is good until the new one is written
    }
    if (name.objects.size() == 1 && objects_[*name.objects.begin()].storage == whole) {
      fits(v, end, objects_[*name.objects.begin()].bytes);
      name.set_range(begin, bytes_of(e));
    } else {
      ++report_.checked_sizes;  // some storage: the VM compares
    }
    if (e.attrs.contains("part")) name.part = part_of(v, e);
    const auto number = name.part ? std::optional(name.part->whole) : std::nullopt;
    names_[v] = std::move(name);
    make_stale(v, fmt::format("its memory was given to %{}", v->name), state, number);
  }

  // Which columns of which rows the tensor is; nothing if that makes no sense, which is a fault.
  std::optional<Part> part_of(const Var* v, const Expr& e) {
    const auto& part = ir::attr<std::vector<Dim>>(e.attrs, "part");
    const auto number = part.size() == 4 ? part[0].as_constant() : std::nullopt;
    if (!number) {
      fault("P10", fmt::format("%{} has a part that is not four extents", v->name));
      return std::nullopt;
    }
    Part p{*number, part[1], part[2], part[3],
           static_cast<int64_t>(size_of(ir::attr<DType>(e.attrs, "dtype")))};
    if (dims_.equal(ir::attr<Dim>(e.attrs, "offset"), p.first * p.size) != Proof::kYes)
      fault("P10", fmt::format("%{} does not begin at its first column", v->name));
    // Beyond it the columns are the next row's first ones.
    if (dims_.less_equal(p.last, p.pitch) == Proof::kNo ||
        dims_.less_equal(p.first, p.last) == Proof::kNo)
      fault("P10", fmt::format("%{} has columns that its rows have not", v->name));
    // All of it are its columns, or its last axes are a row.
    Dim count = 1;
    bool rows = false;
    const auto& shape = ir::attr<std::vector<Dim>>(e.attrs, "shape");
    for (size_t i = shape.size(); i-- > 0;) {
      count = count * shape[i];
      rows |= dims_.equal(count, p.pitch) == Proof::kYes;
    }
    if (!rows && dims_.equal(count, p.count()) != Proof::kYes)
      fault("P10",
            fmt::format("%{} has neither its columns' extents nor those of whole rows", v->name));
    return p;
  }

  // Proved, or refuted by a witness: extents for which the tensor is larger than its memory.
  void fits(const Var* v, const Dim& needed, const Dim& there) {
    if (dims_.less_equal(needed, there) == Proof::kYes) {
      ++report_.proved_sizes;
      return;
    }
    ++report_.checked_sizes;
    std::set<std::string> symbols = needed.symbols();
    symbols.merge(there.symbols());
    for (int64_t sample : {1, 2, 3, 7, 64, 1000}) {
      int64_t shift = 0;
      std::map<std::string, int64_t> values;
      for (const std::string& s : symbols) {
        const ir::SymbolFacts facts = dims_.facts(s);
        const int64_t wanted = std::clamp(sample + shift++, facts.low, facts.high);
        values[s] = std::max(facts.low, wanted / facts.divisor * facts.divisor);
      }
      auto value = [&](const std::string& s) -> std::optional<int64_t> { return values.at(s); };
      try {
        if (needed.evaluate(value) <= there.evaluate(value)) continue;
      } catch (const Error&) {
        continue;  // no extents of a run
      }
      return fault("P8", fmt::format("%{} needs {} bytes, and there are {}", v->name, needed.str(),
                                     there.str()));
    }
  }

  // What a scalar is in terms of extents, if that is said.
  std::optional<Dim> value_of(const Atom& a) const {
    if (a.is_constant()) return Dim(a.constant->integer(0));
    const auto size = a.is_var() ? sizes_.find(same(a.var.get())) : sizes_.end();
    return size == sizes_.end() ? std::nullopt : std::optional(size->second);
  }

  void view(const Var* v, const Expr& e) {
    if (!has_memory(v->type)) return;
    Name name;
    name.objects = objects_of(e.args[0]);
    if (e.args[0].is_var()) {
      const Var* whole = same(e.args[0].var.get());
      if (e.op == "memory.row_view") {
        name.viewed = whole;
        std::optional<Dim> offset = value_of(e.args[1]);
        if (offset) offset = *offset * ir::attr<Dim>(e.attrs, "row_bytes");
        name.set_part(names_[whole], offset, bytes_of(e));
      } else {
        name.begin = names_[whole].begin;
        name.end = names_[whole].end;
        name.exact = names_[whole].exact;
      }
    }
    views_[v] = &e;
    names_[v] = std::move(name);
  }

  // ---- kernels and calls

  // The parameter's own memory, or a parameter's that every caller must then give away.
  void write(const Atom& a) {
    if (!a.is_var()) return fault("P6", "a constant is written");
    const std::set<size_t> objects = objects_of(a);
    if (objects.empty()) return fault("P6", fmt::format("%{} has no memory known", a.var->name));
    for (size_t o : objects) {
      if (objects_[o].storage) continue;
      if (entry_)
        fault("P6", fmt::format("%{} may lie in an argument of the user's", a.var->name));
      else
        written_.insert({function_, objects_[o].parameter});
    }
  }

  void invoke(const Expr& e, State& state) {
    const auto inputs = static_cast<size_t>(ir::attr<int64_t>(e.attrs, "inputs"));
    for (size_t i = 0; i < e.args.size(); ++i) {
      use(e.args[i], state, i >= inputs);
      check_columns(e, i, inputs);
    }
    for (size_t i = inputs; i < e.args.size(); ++i) {
      const Atom& out = e.args[i];
      write(out);
      if (!out.is_var()) continue;
      const Var* w = same(out.var.get());
      for (size_t k = 0; k < e.args.size(); ++k) {
        if (k == i || !e.args[k].is_var()) continue;
        const Var* other = same(e.args[k].var.get());
        if (!names_.count(other) || !overlap(names_[w], names_[other])) continue;
        if (k >= inputs || e.args.size() != inputs + 1 || !same_elements(e, k, other, w))
          fault("P7", fmt::format("%{} is written while %{} is read or written in its place",
                                  w->name, other->name));
      }
    }
    for (size_t i = inputs; i < e.args.size(); ++i)
      if (e.args[i].is_var()) {
        const Var* w = same(e.args[i].var.get());
        make_stale(w, fmt::format("%{} was written over it", w->name), state);
        const Name& name = names_[w];
        if (name.part && name.objects.size() == 1)
          state.written[{*name.objects.begin(), name.part->whole}].emplace_back(name.part->first,
                                                                                name.part->last);
      }
  }

  // Whether a kernel keeps to the columns of argument `i`, if that is a part.
  void check_columns(const Expr& e, size_t i, size_t inputs) {
    if (!e.args[i].is_var() || !e.primitive) return;
    const Var* v = same(e.args[i].var.get());
    const auto name = names_.find(v);
    if (name == names_.end() || !name->second.part) return;
    const Part& part = *name->second.part;
    if (i >= inputs ? !writes_columns(*e.primitive, i - inputs, *v, part)
                    : !reads_columns(*e.primitive, i, *v, part))
      fault("P10",
            fmt::format("%{} is {} beyond its columns", v->name, i >= inputs ? "written" : "read"));
  }

  static const Expr* definition_in(const ir::Function& group, const Atom& a) {
    for (const Binding& b : group.body->bindings)
      if (a.is_var() && b.var == a.var) return b.value.get();
    return nullptr;
  }

  // Elements of a row of `dims` that begins at an axis.
  static Dim row_of(const std::vector<Dim>& dims, int64_t axis) {
    Dim count = 1;
    for (auto i = static_cast<size_t>(axis); i < dims.size(); ++i) count = count * dims[i];
    return count;
  }

  // Whether all elements that a tensor's type has are its columns.
  bool is_all_its_own(const Var& v, const Part& part) const {
    return dims_.equal(row_of(v.type->dims, 0), part.count()) == Proof::kYes ||
           dims_.equal(part.pitch, part.count()) == Proof::kYes;
  }

  bool writes_columns(const ir::Function& group, size_t result, const Var& v,
                      const Part& part) const {
    const Expr* all = definition_in(group, group.body->result);
    Atom a = group.body->result;
    if (all && all->kind == ExprKind::kTuple) {
      if (result >= all->args.size()) return false;
      a = all->args[result];
    }
    const Expr* made = definition_in(group, a);
    if (!made || !ir::traits_of(*made).in_out) return is_all_its_own(v, part);
    const auto axis = ir::attr<int64_t>(made->attrs, "axis");
    return dims_.equal(row_of(ir::type_of(made->args[0])->dims, axis), part.count()) ==
               Proof::kYes &&
           dims_.equal(row_of(v.type->dims, axis), part.pitch) == Proof::kYes;
  }

  bool reads_columns(const ir::Function& group, size_t i, const Var& v, const Part& part) const {
    if (is_all_its_own(v, part)) return true;
    if (i >= group.parameters.size()) return false;
    const Var* p = group.parameters[i].get();
    const auto is_p = [&](const Atom& a) { return a.is_var() && a.var.get() == p; };
    if (is_p(group.body->result)) return false;
    for (const Binding& b : group.body->bindings) {
      const Expr& e = *b.value;
      if (std::none_of(e.args.begin(), e.args.end(), is_p)) continue;
      if (e.op != "slice" || e.args.size() != 1) return false;
      const auto& axes = ir::attr<std::vector<int64_t>>(e.attrs, "axes");
      const auto starts = ir::attr_or<std::vector<Dim>>(e.attrs, "starts", {});
      if (axes.size() != 1 || starts != std::vector<Dim>{0} || e.attrs.contains("steps"))
        return false;
      if (dims_.equal(row_of(v.type->dims, axes[0]), part.pitch) != Proof::kYes ||
          dims_.less_equal(row_of(b.var->type->dims, axes[0]), part.count()) != Proof::kYes)
        return false;
    }
    return true;
  }

  // Whether element i of input `k` is where element i of the output goes (or nowhere near it), and
  // the kernel reads no other element of it for output i.
  bool same_elements(const Expr& e, size_t k, const Var* in, const Var* out) {
    if (!e.primitive || k >= e.primitive->parameters.size()) return false;
    for (const Binding& b : e.primitive->body->bindings) {
      if (b.value->kind == ExprKind::kAtom) continue;
      const ir::OpInfo* op = b.value->kind == ExprKind::kCall ? ir::find_op(b.value->op) : nullptr;
      if (!op || op->fusion != ir::FusionKind::kElementwise) return false;
    }
    if (in == out || in->type->dtype != out->type->dtype ||
        in->type->dims.size() != out->type->dims.size())
      return false;
    for (size_t d = 0; d < in->type->dims.size(); ++d)
      if (dims_.equal(in->type->dims[d], out->type->dims[d]) != Proof::kYes) return false;
    if (names_[out].taken_over == in) return true;
    auto a = views_.find(in), b = views_.find(out);
    return a != views_.end() && b != views_.end() && a->second->op == "memory.row_view" &&
           b->second->op == "memory.row_view" &&
           dims_.equal(ir::attr<Dim>(a->second->attrs, "row_bytes"),
                       ir::attr<Dim>(b->second->attrs, "row_bytes")) == Proof::kYes;
  }

  void call(const Expr& e, State& state) {
    if (e.callee->is_var()) use(*e.callee, state);
    for (const Atom& a : e.args) use(a, state);
    hold(e, state);
    if (!e.callee->is_global()) return;
    for (size_t k = 0; k < e.args.size(); ++k) {
      if (!written_.count({e.callee->global, k})) continue;
      write(e.args[k]);
      if (!e.args[k].is_var()) continue;
      const Var* given = same(e.args[k].var.get());
      for (size_t i = 0; i < e.args.size(); ++i)
        if (i != k && e.args[i].is_var() && names_.count(same(e.args[i].var.get())) &&
            overlap(names_[given], names_[same(e.args[i].var.get())]))
          fault("P6", fmt::format("%{} is given away to @{} and passed to it again", given->name,
                                  e.callee->global));
      const std::string reason = fmt::format("it was given away to @{}", e.callee->global);
      make_stale(given, reason, state);
      state.stale.emplace(given, reason);
    }
  }

  const ir::Module& module_;
  PlanReport report_;
  ParameterSet written_;  // parameters whose memory their function writes
  bool reporting_ = false;

  // Of the function at hand.
  std::string function_, where_;
  bool entry_ = false;
  ir::DimContext dims_;
  std::vector<Object> objects_;
  std::map<const Var*, Name> names_;
  std::map<const Var*, const Var*> same_;  // copies share their source's register
  std::map<const Var*, Dim> sizes_;        // scalars that an extent is
  std::map<const Var*, const Expr*> views_;
  std::set<const Var*> visible_;
};

}  // namespace

PlanReport verify_plan(const ir::Module& m) {
  return PlanVerifier(m).run();
}

}  // namespace nimble::passes
