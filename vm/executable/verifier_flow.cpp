// Forward data flow along def-use chains.
//
// What a register holds is an element of the lattice of effects.h. Instead of a state of all
// registers at each block, there is a node for each place where something is decided anew: the
// first read of a register in a block, a merge of several writes (φ), and what an instruction makes
// of one operand. Edges lead from where a value comes from to who takes it; a change travels along
// them, and since a node climbs a lattice of height 8, each edge carries few.
//
// Nodes are found as in the construction of static single assignment form (Cytron et al. 1991):
//   1. Each block is walked once. Within it, who reads what was written in the same block is known
//      at once; what remains is, for each register, in which blocks it is read first (reads) and
//      what it holds at the end of the blocks that touch it (exits).
//   2. Per register, merges stand in the iterated dominance frontier of its exits, and what reaches
//      a place is the exit or merge of the nearest dominating block that has one: blocks are
//      numbered in preorder of the dominator tree, so that is a binary search and a climb. Only
//      merges that some read asks for become nodes: a register that is dead costs nothing.
//   3. Changes travel until none is left. Then each block is walked again to report.
//
// A read counts as a write: it leaves kUnknown where it found kFreed or kUnwritten, so that a fault
// is told once and not at every later read.
//
// All of this is linear in the code but for the frontiers, the merges and the climbs, which a
// contrived graph of jumps makes quadratic: those are charged against a budget (rule R24).
#include "vm/executable/verifier_flow.h"

#include <algorithm>
#include <numeric>

#include "vm/executable/opcodes.h"

namespace nimble::exec {

class FlowVerifier::Flow {
 public:
  Flow(const Executable& e, StepBudget* budget) : e_(e), budget_(*budget) {}

  void check(const BytecodeFunction& f, size_t limit, std::vector<Violation>* found) {
    f_ = &f;
    limit_ = limit;
    found_ = found;
    try {
      control_.build(f, &budget_);
      number_registers();
      for (uint32_t b = 0; b < control_.blocks().size(); ++b) walk(b);
      connect_registers();
      propagate();
    } catch (const OutOfSteps&) {
      found_->push_back(violation(f.name, finding<Fault::kTooManySteps>(budget_.total())));
      return;
    }
    report_all();
  }

 private:
  // Where a value comes from: a slot that is known, or a node.
  class Source {
   public:
    Source() = default;
    static Source of(Slot s) {
      return Source(kKnown | static_cast<uint32_t>(s.content) << 8 | s.device);
    }
    static Source of(uint32_t node) { return Source(node); }
    bool is_known() const { return (bits_ & kKnown) != 0; }
    uint32_t node() const { return bits_; }
    Slot slot() const {
      return {static_cast<Content>(bits_ >> 8 & 0xff), static_cast<uint8_t>(bits_ & 0xff)};
    }

   private:
    static constexpr uint32_t kKnown = 1u << 31;
    explicit Source(uint32_t bits) : bits_(bits) {}
    uint32_t bits_ = 0;
  };

  struct Node {
    enum class Kind : uint8_t { kRead, kMerge, kTensor };
    Kind kind;
    bool known = false;  // whether anything has come yet
    Slot slot{};
    uint32_t takers = kNone;  // list in takers_
  };
  struct Taker {
    uint32_t node, next;
  };
  // A register's first read in a block, or what it holds at the end of one.
  struct Mark {
    uint32_t reg, block;
    Source source;
  };
  // A block where something becomes of the register at hand.
  struct Site {
    uint32_t block;
    bool merge, has_exit;
    Source exit;            // at the block's end, if it has one; else it is the merge
    uint32_t enclosing;     // the site of the nearest dominating block
    uint32_t node = kNone;  // of the merge, once something asks for it
  };

  // --- Registers -------------------------------------------------------------------------------

  // Numbers the registers that occur, so that a frame costs what is used of it.
  void number_registers() {
    numbers_.resize(std::max<size_t>(numbers_.size(), f_->registers));
    ++epoch_;
    registers_.clear();
    nodes_.clear();
    takers_.clear();
    queue_.clear();
    reads_.clear();
    exits_.clear();
    reads_from_.assign(1, 0);
    local_.clear();
  }
  uint32_t number_of(uint32_t reg) {
    Number& n = numbers_[reg];
    if (n.epoch != epoch_) {
      n = {epoch_, static_cast<uint32_t>(registers_.size())};
      registers_.push_back(reg);
      local_.push_back({});
    }
    return n.number;
  }
  Source initial(uint32_t number) const {
    return Source::of(
        Slot{registers_[number] < f_->parameters ? Content::kUnknown : Content::kUnwritten});
  }

  // --- 1. Blocks -------------------------------------------------------------------------------

  void walk(uint32_t block) {
    touched_.clear();
    for (uint32_t at = control_.blocks()[block].first; at < control_.blocks()[block].end; ++at) {
      find_effects(e_, f_->code[at], &effects_);
      Source first;
      for (size_t i = 0; i < effects_.reads.size(); ++i) {
        const Source source = read(block, effects_.reads[i].reg);
        if (i == 0) first = source;
      }
      if (effects_.writes.size() > 1) budget_.spend(effects_.writes.size());
      for (const Write& w : effects_.writes) local(block, w.reg).source = made(w, first);
    }
    for (uint32_t number : touched_) exits_.push_back({number, block, local_[number].source});
    reads_from_.push_back(static_cast<uint32_t>(reads_.size()));
  }

  struct Local {
    uint32_t block = kNone;
    Source source;
  };
  Local& local(uint32_t block, uint32_t reg) {
    const uint32_t number = number_of(reg);
    Local& l = local_[number];
    if (l.block != block) {
      l.block = block;
      touched_.push_back(number);
    }
    return l;
  }

  // What a register holds, as those see it who come after this read.
  Source read(uint32_t block, uint32_t reg) {
    const uint32_t number = number_of(reg);
    if (local_[number].block == block) {
      Source& source = local_[number].source;
      if (source.is_known()) source = Source::of(after_read(source.slot()));
      return source;
    }
    const Source source = Source::of(new_node(Node::Kind::kRead));
    local(block, reg).source = source;
    reads_.push_back({number, block, source});
    return source;
  }

  Source made(const Write& w, Source first) {
    if (w.from == Write::From::kNothing) return Source::of(w.slot);
    if (w.from == Write::From::kCopy) return first;
    const uint32_t node = new_node(Node::Kind::kTensor);
    take(first, node);
    return Source::of(node);
  }

  // --- 2. What reaches a read ------------------------------------------------------------------

  void connect_registers() {
    const size_t count = registers_.size();
    group(exits_, count, &exits_from_, &by_register_exits_);
    group(reads_, count, &reads_of_, &by_register_reads_);
    merges_at_.assign(control_.blocks().size(), kNone);
    for (uint32_t number = 0; number < count; ++number) {
      const auto reads = part(by_register_reads_, reads_of_, number);
      if (reads.empty()) continue;
      find_sites(number, part(by_register_exits_, exits_from_, number));
      asked_.clear();
      for (const Mark& r : reads) take(at_entry(number, r.block), r.source.node());
      while (!asked_.empty()) {
        const Site site = sites_[asked_.back()];
        asked_.pop_back();
        if (site.block == 0) take(initial(number), site.node);
        for (uint32_t p : control_.predecessors(site.block)) {
          budget_.spend(2);
          take(at_exit(number, p), site.node);
        }
      }
    }
  }

  // Marks by register, in the order of blocks, in which they come.
  static void group(const std::vector<Mark>& marks, size_t count, std::vector<uint32_t>* from,
                    std::vector<Mark>* out) {
    from->assign(count + 1, 0);
    out->resize(marks.size());
    for (const Mark& m : marks) ++(*from)[m.reg + 1];
    std::partial_sum(from->begin(), from->end(), from->begin());
    for (const Mark& m : marks) (*out)[(*from)[m.reg]++] = m;
    std::copy_backward(from->begin(), from->end() - 1, from->end());
    (*from)[0] = 0;
  }
  static std::span<const Mark> part(const std::vector<Mark>& marks,
                                    const std::vector<uint32_t>& from, uint32_t number) {
    return std::span(marks).subspan(from[number], from[number + 1] - from[number]);
  }

  // The blocks that touch the register and those where its values merge, in their order.
  void find_sites(uint32_t number, std::span<const Mark> exits) {
    merges_.clear();
    const auto add_frontier = [&](uint32_t block) {
      control_.for_each_frontier(block, [&](uint32_t b) {
        budget_.spend();
        if (merges_at_[b] == number) return;
        merges_at_[b] = number;
        merges_.push_back(b);
      });
    };
    for (const Mark& m : exits) add_frontier(m.block);
    for (size_t i = 0; i < merges_.size(); ++i) add_frontier(merges_[i]);
    std::sort(merges_.begin(), merges_.end());

    sites_.clear();
    uint32_t above = kNone;  // the last site that dominates the next one
    for (size_t i = 0, j = 0; i < exits.size() || j < merges_.size();) {
      const bool has_exit =
          i < exits.size() && (j == merges_.size() || exits[i].block <= merges_[j]);
      const uint32_t block = has_exit ? exits[i].block : merges_[j];
      const bool merge = j < merges_.size() && merges_[j] == block;
      while (above != kNone && !control_.dominates(sites_[above].block, block))
        above = sites_[above].enclosing;
      sites_.push_back({block, merge, has_exit, has_exit ? exits[i].source : Source(), above});
      above = static_cast<uint32_t>(sites_.size()) - 1;
      i += has_exit;
      j += merge;
    }
  }

  // The site of the nearest block that dominates `block`, itself included; kNone if there is none.
  uint32_t site_above(uint32_t block) {
    const auto after = std::upper_bound(sites_.begin(), sites_.end(), block,
                                        [](uint32_t b, const Site& s) { return b < s.block; });
    auto site = static_cast<uint32_t>(after - sites_.begin()) - 1;  // kNone if none is before
    while (site != kNone && !control_.dominates(sites_[site].block, block)) {
      budget_.spend();
      site = sites_[site].enclosing;
    }
    return site;
  }

  Source merged(uint32_t site) {
    Site& s = sites_[site];
    if (s.node == kNone) {
      budget_.spend(4);
      s.node = new_node(Node::Kind::kMerge);
      asked_.push_back(site);
    }
    return Source::of(s.node);
  }
  Source leaving(uint32_t number, uint32_t site) {
    if (site == kNone) return initial(number);
    return sites_[site].has_exit ? sites_[site].exit : merged(site);
  }
  Source at_exit(uint32_t number, uint32_t block) { return leaving(number, site_above(block)); }
  // Of a block that reads the register, and so is a site of its own.
  Source at_entry(uint32_t number, uint32_t block) {
    const uint32_t site = site_above(block);
    return sites_[site].merge ? merged(site) : leaving(number, sites_[site].enclosing);
  }

  // --- 3. Values -------------------------------------------------------------------------------

  uint32_t new_node(Node::Kind kind) {
    if (nodes_.size() == kMostNodes) throw OutOfSteps{};
    nodes_.push_back({kind});
    return static_cast<uint32_t>(nodes_.size()) - 1;
  }

  // `node` takes what comes from `source`.
  void take(Source source, uint32_t node) {
    if (source.is_known()) return offer(source.slot(), node);
    takers_.push_back({node, nodes_[source.node()].takers});
    nodes_[source.node()].takers = static_cast<uint32_t>(takers_.size()) - 1;
  }

  void offer(Slot slot, uint32_t node) {
    Node& n = nodes_[node];
    switch (n.kind) {
      case Node::Kind::kRead:
        break;
      case Node::Kind::kMerge:
        if (n.known) slot = join(n.slot, slot);
        break;
      case Node::Kind::kTensor:
        slot = written({0, Write::From::kTensor}, slot);
        break;
    }
    if (n.known && n.slot == slot) return;
    n.known = true;
    n.slot = slot;
    queue_.push_back(node);
  }

  // Hands on what has changed, from what became known while the edges were made.
  void propagate() {
    for (size_t i = 0; i < queue_.size(); ++i) {
      const Node& n = nodes_[queue_[i]];
      const Slot slot = n.kind == Node::Kind::kRead ? after_read(n.slot) : n.slot;
      for (uint32_t t = n.takers; t != kNone; t = takers_[t].next) {
        budget_.spend();
        offer(slot, takers_[t].node);
      }
    }
  }

  // --- Reports ---------------------------------------------------------------------------------

  void report_all() {
    order_.resize(control_.blocks().size());
    std::iota(order_.begin(), order_.end(), 0u);
    std::ranges::sort(order_, {}, [&](uint32_t b) { return control_.blocks()[b].first; });
    state_.resize(registers_.size());
    for (uint32_t block : order_) {
      for (uint32_t i = reads_from_[block]; i < reads_from_[block + 1]; ++i)
        state_[reads_[i].reg] = nodes_[reads_[i].source.node()].slot;
      for (at_ = control_.blocks()[block].first; at_ < control_.blocks()[block].end; ++at_)
        check_instruction(f_->code[at_]);
    }
  }

  template <Fault kFault, typename... Args>
  void report(Args&&... args) {
    if (limit_ == 0) return;
    --limit_;
    found_->push_back(violation(fmt::format("{}@{}", f_->name, at_),
                                finding<kFault>(std::forward<Args>(args)...)));
  }

  void check_instruction(const Instruction& in) {
    find_effects(e_, in, &effects_);
    if (in.op == Opcode::kInvokePacked) {
      const Kernel& kernel = e_.kernels[static_cast<size_t>(in.operands[0])];
      const size_t wanted = kernel.contract.arguments.size();
      const size_t given = in.operands.size() - 2;  // behind the kernel and their count
      if (given != wanted) return report<Fault::kKernelArguments>(given, kernel.name, wanted);
    }
    Slot first;
    for (size_t i = 0; i < effects_.reads.size(); ++i) {
      const Slot slot = check_read(in, effects_.reads[i]);
      if (i == 0) first = slot;
    }
    for (const Write& w : effects_.writes) state_[number_of(w.reg)] = written(w, first);
  }

  Slot check_read(const Instruction& in, const Read& r) {
    Slot& slot = state_[number_of(r.reg)];
    const Content content = slot.content;
    if (content == Content::kUnwritten) report<Fault::kReadUnwritten>(r.reg);
    if (content == Content::kFreed) report<Fault::kReadFreed>(r.reg);
    slot = after_read(slot);
    if (!is_unknown(slot.content) && !fits(r.need, content)) {
      if (r.argument)
        report<Fault::kWrongArgumentKind>(r.reg, name_of(content), name_of(r.need));
      else
        report<Fault::kWrongKind>(r.reg, name_of(content), name_of(r.need));
    }
    if (r.written && content == Content::kConstant)
      report<Fault::kWritesConstant>(kernel_of(in).name, r.reg);
    if (r.device != kAnyDevice && slot.device != kAnywhere && slot.device != r.device)
      report<Fault::kWrongDevice>(r.reg, slot.device,
                                  in.op == Opcode::kInvokePacked ? "kernel " + kernel_of(in).name
                                                                 : std::string(name_of(in.op)),
                                  r.device);
    return slot;
  }
  const Kernel& kernel_of(const Instruction& in) const {
    return e_.kernels[static_cast<size_t>(in.operands[0])];
  }

  static constexpr size_t kMostNodes = size_t{1} << 31;  // Source has no bits for more
  struct Number {
    uint32_t epoch = 0, number = 0;
  };

  const Executable& e_;
  StepBudget& budget_;
  const BytecodeFunction* f_ = nullptr;
  size_t limit_ = 0;
  std::vector<Violation>* found_ = nullptr;

  ControlFlow control_;
  std::vector<Number> numbers_;  // by register
  uint32_t epoch_ = 0;
  std::vector<uint32_t> registers_;  // by number
  std::vector<Local> local_;         // by number: in the block being walked
  std::vector<uint32_t> touched_;    // numbers, in the block being walked
  Effects effects_;
  std::vector<Node> nodes_;
  std::vector<Taker> takers_;
  std::vector<Mark> reads_, exits_;   // by block
  std::vector<uint32_t> reads_from_;  // by block
  std::vector<Mark> by_register_reads_, by_register_exits_;
  std::vector<uint32_t> reads_of_, exits_from_;  // by number
  std::vector<uint32_t> merges_at_;  // by block: number of the register last merged there
  std::vector<uint32_t> merges_, asked_;
  std::vector<Site> sites_;
  std::vector<uint32_t> queue_;  // nodes whose takers are to be told
  std::vector<uint32_t> order_;
  std::vector<Slot> state_;  // by number, at instruction at_
  uint32_t at_ = 0;
};

FlowVerifier::FlowVerifier(const Executable& executable, StepBudget* budget)
    : flow_(std::make_unique<Flow>(executable, budget)) {}
FlowVerifier::~FlowVerifier() = default;

void FlowVerifier::check(const BytecodeFunction& function, size_t limit,
                         std::vector<Violation>* found) {
  flow_->check(function, limit, found);
}

}  // namespace nimble::exec
