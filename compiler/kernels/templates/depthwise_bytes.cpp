// The template "depthwise_bytes": convolution of each channel of channels-last images of bytes with
// a filter of its own, also of bytes; sums in i32, with an element-wise epilogue.
//
// Lanes run along the channels, as in "depthwise_nhwc". The instructions for bytes sum neighbours,
// so neighbours must be taps of one channel: the bytes of up to four rows of the image, in one
// column, make a word of 32 bits for each channel, and so do the weights of that column's taps. A
// word is made of loads that widen, shifts and ors; none of that moves a lane. It serves every tap
// of the column's pixels that lies in its rows: with 3 x 3 taps and stride 1 each column's words
// are made once and multiplied three times, 6 and 3 operations for what takes f32 9 multiply-adds
// of as many loads, four times as large. Machines that sum pairs of i16 alone
// (Fragments.def) have two rows in each word, others one, which is a plain product. Quads of small
// weights (kU8S7Quads) are not taken there: nothing is promised of weights that nobody packs, and
// words are what most of the work is.
//
//   for each item, split over the threads: an image, a block of its rows, a panel of channels
//     the panel's weights as words, in a scratch of the thread
//     for each row of the result, each tile of its pixels, each vector of channels
//       for each group of rows of taps, each column that the tile's windows reach
//         the column's words times the weights of each pixel that has it in its window
//       epilogue and store
//
// Rows outside the image are read from the nearest row inside, and a mask makes zeros of what was
// read. Columns outside are left out: tiles that reach beyond the image ask for each column, in
// code of their own, others ask once.
//
// A filter that would make too much code has loops over its taps, and words for each tap.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>

#include "compiler/kernels/templates/conv_nhwc.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/operand_types.h"
#include "compiler/kernels/templates/row_tiles.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
using kir::BinaryOp;
using kir::BufferRef;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;

std::optional<ConvNhwc> analyse(const Workload& w) {
  auto p = analyse_conv_nhwc(w, /*parts=*/true);
  if (!p || !p->depthwise() || p->layout || p->fragment != kir::Fragment::kU8S8Quads ||
      p->sources.size() > 1)
    return {};
  return p;
}

int lanes_for(const ConvNhwc& p, const TargetInfo& t) {
  const auto narrow = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(p.groups)));
  return static_cast<int>(std::min<int64_t>(lanes_of(t, DType::kI32), narrow));
}

// Registers beside the sums: a column's words, what they are made of, a mask.
constexpr int kOtherRegisters = 6;

class DepthwiseBytesLowering {
 public:
  DepthwiseBytesLowering(const Workload& w, const ConvNhwc& p, const Config& c, const TargetInfo& t)
      : w_(w),
        p_(p),
        named_(w),
        fragment_(multiplying_fragment(t, *p.fragment)),
        group_(group_of(fragment_)),
        lanes_(lanes_for(p, t)),
        rows_(static_cast<int>(knob_int(c, "rows"))),
        vectors_(knob_int(c, "vectors")),
        block_(knob_int(c, "lines")),
        whole_(p.groups / lanes_),
        rest_(p.groups % lanes_),
        panels_(ir::ceildiv(whole_ + (rest_ > 0 ? 1 : 0), vectors_)),
        groups_((p.windows[0].taps + group_ - 1) / group_),
        vertical_(p.windows[0].with_extents(named_("in_height", p.in[1]),
                                            named_("out_height", p.out[1]))),
        horizontal_(
            p.windows[1].with_extents(named_("in_width", p.in[2]), named_("out_width", p.out[2]))),
        line_blocks_(named_("line_blocks", ir::ceildiv(p.out[1], block_))),
        tiles_(horizontal_.out, rows_, knob_text(c, "tails"), 0, "m_"),
        // Every row may lie outside where there is none.
        may_be_empty_(vertical_.clipped && w.facts.range(p.in[1]).low < 1) {
    accumulators_ = kb::buffer("acc", Scope::kRegister, DType::kI32, rows_, lanes_);
    taps_ = thread_scratch("taps", factor_type(), vectors_ * words_of_vector() * factors());
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> body;
    const std::vector<Dim> at =
        bind_coordinates("x", {p_.in[0], line_blocks_, panels_}, Dim::symbol("item"), body);
    image_ = at[0];
    const Dim first_line = at[1] * block_, first = at[2] * vectors_;
    const Dim line = Dim::symbol("line");
    Dim whole = panels_.is_constant(1) ? whole_ : vectors_;  // vectors of the panel without a mask
    if (!panels_.is_constant(1) && (whole_ % vectors_ != 0 || rest_ > 0)) {
      body.push_back(kb::let_index("whole", kb::index(ir::min(whole_ - first, vectors_))));
      whole = Dim::symbol("whole");
    }
    // What there is to do for each vector of channels.
    const auto each_vector = [&](const std::function<StmtRef(const Dim&)>& of) {
      std::vector<StmtRef> all;
      const Dim v = Dim::symbol("v");
      if (whole_ > 0) {
        valid_ = std::nullopt;
        channel_ = Dim::symbol("channel");
        all.push_back(
            kb::loop(LoopKind::kSerial, "v", 0, whole,
                     kb::seq({kb::let_index("channel", kb::index((first + v) * lanes_)), of(v)})));
      }
      if (rest_ > 0) {
        valid_ = Dim(rest_);
        channel_ = whole_ * lanes_;
        StmtRef last = of(whole_ - first);
        all.push_back(panels_.is_constant(1)
                          ? std::move(last)
                          : kb::if_then(kb::eq(at[2], panels_ - 1), std::move(last)));
      }
      return kb::seq(std::move(all));
    };
    body.push_back(each_vector([&](const Dim& v) { return weights(v); }));

    std::vector<StmtRef> of_line = {
        kb::let_index("y", kb::index(first_line + line)),
        kb::let_index("top", kb::index(vertical_.start(Dim::symbol("y"))))};
    if (by_columns())
      for (int64_t g = 0; g < groups_; ++g) bind_rows(g, std::to_string(g), of_line);
    of_line.push_back(tiles_.for_each(
        0, tiles_.count(),
        [&](const RowTiles::Tile& t) {
          return kb::seq({kb::let_index("left", kb::index(horizontal_.start(t.row))),
                          each_vector([&](const Dim& v) { return pixels(t.row, t.rows, v); })});
        },
        nullptr));
    body.push_back(kb::loop(LoopKind::kSerial, "line", 0,
                            ir::min(vertical_.out - first_line, block_),
                            kb::seq(std::move(of_line))));

    std::vector<StmtRef> all = named_.statements();
    for (StmtRef& s : tiles_.prologue()) all.push_back(std::move(s));
    all.push_back(kb::loop(LoopKind::kThread, "item", 0, p_.in[0] * line_blocks_ * panels_,
                           kb::seq(std::move(body))));
    return make_function(w_, p_.frame, name, {taps_}, {accumulators_}, kb::seq(std::move(all)));
  }

 private:
  // ---- words

  DType factor_type() const { return fragment_ ? kir::row_of(*fragment_).b : DType::kI32; }
  int factors() const { return lanes_ * group_; }
  int bits() const { return 32 / group_; }  // of a word for each row
  int64_t words_of_vector() const { return groups_ * horizontal_.taps; }
  int64_t tap(int64_t g, int i) const { return g * group_ + i; }

  // Elements of up to `group_` rows as words; the first row's are the lowest bits. Null: zeros.
  ValueRef word(const std::vector<ValueRef>& elements) const {
    ValueRef all;
    for (size_t i = 0; i < elements.size(); ++i) {
      if (!elements[i]) continue;
      ValueRef e = kb::cast(DType::kU32, elements[i]);
      const bool is_last = i + 1 == static_cast<size_t>(group_);
      if (is_signed_int(elements[i]->dtype) && !is_last)
        e = kb::binary(BinaryOp::kAnd, e,
                       kb::integer(DType::kU32, (int64_t{1} << bits()) - 1, lanes_));
      if (i > 0)
        e = kb::binary(BinaryOp::kShl, e,
                       kb::integer(DType::kU32, bits() * static_cast<int64_t>(i), lanes_));
      all = all ? kb::binary(BinaryOp::kOr, all, e) : e;
    }
    return all ? all : kb::integer(DType::kU32, 0, lanes_);
  }

  ValueRef product(const ValueRef& word, const ValueRef& weights, const ValueRef& sum) const {
    if (fragment_)
      return kb::dot(*fragment_, kb::bitcast(kir::row_of(*fragment_).a, word), weights, sum);
    return kb::add(sum, kb::mul(kb::bitcast(DType::kI32, word), weights));
  }

  Dim place_of(const Dim& v, const Dim& g, const Dim& j) const {
    return ((v * groups_ + g) * horizontal_.taps + j) * factors();
  }

  // The weights of a vector of channels as words.
  StmtRef weights(const Dim& v) {
    const Dim j = Dim::symbol("j");
    std::vector<StmtRef> columns;
    for (int64_t g = 0; g < groups_; ++g) {
      std::vector<ValueRef> of;
      for (int i = 0; i < group_ && tap(g, i) < vertical_.taps; ++i)
        of.push_back(
            p_.weight((tap(g, i) * horizontal_.taps + j) * p_.groups + channel_, lanes_, valid_));
      columns.push_back(kb::store(taps_, place_of(v, g, j), kb::bitcast(factor_type(), word(of))));
    }
    return kb::loop(LoopKind::kSerial, "j", 0, horizontal_.taps, kb::seq(std::move(columns)));
  }

  // Binds for a group of rows of taps, ahead of all columns, where each of its rows begins in the
  // image, "row<suffix>_<i>", and the mask of those that exist, "keep<suffix>".
  void bind_rows(const Dim& g, const std::string& suffix, std::vector<StmtRef>& out) {
    const Dim top = Dim::symbol("top");
    ValueRef keep = kb::integer(DType::kU32, 0);
    for (int i = 0; i < group_; ++i) {
      // A tap beyond the filter has no weight: what it reads does not matter.
      Dim t = g * group_ + i;
      if (const auto known = t.as_constant()) {
        if (*known >= vertical_.taps) break;
      } else {
        t = ir::min(t, vertical_.taps - 1);
      }
      Dim y = top + t * vertical_.dilation;
      if (vertical_.clipped) {
        const std::string name = fmt::format("y{}_{}", suffix, i);
        out.push_back(kb::let_index(name, kb::index(y)));
        y = Dim::symbol(name);
        const ValueRef inside =
            kb::binary(BinaryOp::kAnd, kb::compare(kir::CompareOp::kLe, kb::index(0), kb::index(y)),
                       kb::compare(kir::CompareOp::kLt, kb::index(y), kb::index(vertical_.in)));
        const int64_t ones = ((int64_t{1} << bits()) - 1) << (bits() * i);
        keep = kb::binary(
            BinaryOp::kOr, keep,
            kb::select(inside, kb::integer(DType::kU32, ones), kb::integer(DType::kU32, 0)));
        y = ir::max(ir::min(y, vertical_.in - 1), 0);
      }
      out.push_back(kb::let_index(
          fmt::format("row{}_{}", suffix, i),
          kb::index((image_ * vertical_.in + y) * horizontal_.in * p_.sources[0].pitch +
                    p_.sources[0].first)));
    }
    if (vertical_.clipped) out.push_back(kb::let("keep" + suffix, kb::broadcast(keep, lanes_)));
  }

  // The words of a column of the image, of a group whose rows are bound.
  ValueRef column_word(int64_t rows, const std::string& suffix, const Dim& column) const {
    std::vector<ValueRef> of;
    for (int64_t i = 0; i < rows; ++i) {
      const Dim at =
          Dim::symbol(fmt::format("row{}_{}", suffix, i)) + column * p_.sources[0].pitch + channel_;
      of.push_back(valid_ ? kb::load_masked(p_.image, at, lanes_, *valid_)
                          : kb::load(p_.image, at, lanes_));
    }
    ValueRef all = word(of);
    if (!vertical_.clipped) return all;
    return kb::binary(BinaryOp::kAnd, all, kb::local("keep" + suffix, DType::kU32, lanes_));
  }

  ValueRef weight_word(const Dim& v, const Dim& g, const Dim& j) const {
    return kb::load(taps_, place_of(v, g, j), factors());
  }

  // ---- pixels

  // Whether each column that a tile reaches has code of its own.
  bool by_columns() const {
    constexpr int64_t kMost = 320;  // products
    return rows_ * words_of_vector() <= kMost;
  }

  // `rows` pixels from `column` on, for vector `v` of the panel.
  StmtRef pixels(const Dim& column, int rows, const Dim& v) {
    const Dim r = Dim::symbol("r"), left = Dim::symbol("left");
    const auto each_row = [&](StmtRef s) {
      return kb::loop(LoopKind::kUnroll, "r", 0, rows, std::move(s));
    };
    ValueRef start = p_.bias(w_, channel_, lanes_, valid_);
    if (!start) start = kb::integer(DType::kI32, 0, lanes_);
    std::vector<StmtRef> all = {
        kb::let("b", std::move(start)),
        each_row(kb::set_reg(accumulators_, r, kb::local("b", DType::kI32, lanes_)))};
    StmtRef sums = by_columns() ? columns(rows, v, false) : tap_by_tap(rows, v);
    if (by_columns() && horizontal_.clipped) {
      const int64_t reach = (rows - 1) * horizontal_.stride + horizontal_.reach();
      sums = kb::if_then(kb::both(kb::le(0, left), kb::lt(left + reach, horizontal_.in)),
                         std::move(sums), columns(rows, v, true));
    }
    if (may_be_empty_) sums = kb::if_then(kb::lt(0, vertical_.in), std::move(sums));
    all.push_back(std::move(sums));
    all.push_back(each_row(store_results(w_, p_.frame, kb::reg(accumulators_, r),
                                         {image_, Dim::symbol("y"), column + r, channel_}, lanes_,
                                         valid_, "e_")));
    return kb::seq(std::move(all));
  }

  StmtRef only_inside(const Dim& column, StmtRef s) const {
    return kb::if_then(kb::both(kb::le(0, column), kb::lt(column, horizontal_.in)), std::move(s));
  }

  StmtRef columns(int rows, const Dim& v, bool clipped) {
    // The pixels and taps of each column.
    std::map<int64_t, std::vector<std::pair<int, int64_t>>> users;
    for (int r = 0; r < rows; ++r)
      for (int64_t j = 0; j < horizontal_.taps; ++j)
        users[r * horizontal_.stride + j * horizontal_.dilation].emplace_back(r, j);
    std::vector<StmtRef> all;
    for (int64_t g = 0; g < groups_; ++g) {
      const int64_t of_group = std::min<int64_t>(group_, vertical_.taps - g * group_);
      for (const auto& [c, pixels] : users) {
        const Dim column = Dim::symbol("left") + c;
        const std::string name = fmt::format("{}{}_{}", clipped ? "z" : "x", g, c);
        std::vector<StmtRef> of = {kb::let(name, column_word(of_group, std::to_string(g), column))};
        for (const auto& [r, j] : pixels)
          of.push_back(kb::set_reg(accumulators_, r,
                                   product(kb::local(name, DType::kU32, lanes_),
                                           weight_word(v, g, j), kb::reg(accumulators_, r))));
        StmtRef one = kb::seq(std::move(of));
        all.push_back(clipped ? only_inside(column, std::move(one)) : std::move(one));
      }
    }
    return kb::seq(std::move(all));
  }

  StmtRef tap_by_tap(int rows, const Dim& v) {
    const Dim g = Dim::symbol("g"), j = Dim::symbol("j");
    std::vector<StmtRef> taps;
    for (int r = 0; r < rows; ++r) {
      const Dim column = Dim::symbol("left") + r * horizontal_.stride + j * horizontal_.dilation;
      StmtRef one = kb::set_reg(accumulators_, r,
                                product(column_word(group_, "g", column), weight_word(v, g, j),
                                        kb::reg(accumulators_, r)));
      taps.push_back(horizontal_.clipped ? only_inside(column, std::move(one)) : std::move(one));
    }
    std::vector<StmtRef> body;
    bind_rows(g, "g", body);
    body.push_back(kb::loop(LoopKind::kSerial, "j", 0, horizontal_.taps, kb::seq(std::move(taps))));
    return kb::loop(LoopKind::kSerial, "g", 0, groups_, kb::seq(std::move(body)));
  }

  const Workload& w_;
  const ConvNhwc& p_;
  NamedExtents named_;
  std::optional<kir::Fragment> fragment_;  // by which the target multiplies; nothing: it does not
  int group_;                              // rows of a word
  int lanes_, rows_;
  int64_t vectors_, block_;
  int64_t whole_, rest_;  // vectors of channels without a mask; channels of the last
  Dim panels_;
  int64_t groups_;  // of rows of taps
  Window vertical_, horizontal_;
  Dim line_blocks_;
  RowTiles tiles_;  // of the pixels of a row
  bool may_be_empty_;
  BufferRef accumulators_, taps_;
  Dim image_, channel_;
  std::optional<Dim> valid_;  // channels of the vector at hand; nothing: all
};

}  // namespace

bool DepthwiseBytesTemplate::accepts(const Workload& w, const TargetInfo&) const {
  return analyse(w).has_value();
}

std::vector<Knob> DepthwiseBytesTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("rows", {1, 2, 3, 4, 5, 6, 7, 8, 10, 14}),
          int_knob("vectors", {1, 2, 4, 8}),
          int_knob("lines", {1, 2, 4, 8}),
          {"tails", {kTailsEven, kTailsChecked}}};
}

bool DepthwiseBytesTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = analyse(w);
  if (!p || !within(knobs(w, t), c)) return false;
  const int64_t vectors = knob_int(c, "vectors");
  // Vectors that no channel fills would be equal configurations under other names.
  return knob_int(c, "rows") + kOtherRegisters <= t.vector_registers &&
         (vectors == 1 || vectors / 2 * lanes_for(*p, t) < p->groups);
}

Config DepthwiseBytesTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w);
  NIMBLE_CHECK(p, "workload {} is not for depthwise_bytes", w.key);
  int64_t vectors = 4;
  while (vectors > 1 && vectors / 2 * lanes_for(*p, t) >= p->groups) vectors /= 2;
  // Widths of the usual networks are multiples of 7.
  return {{"rows", int64_t{7}}, {"vectors", vectors}, {"lines", int64_t{4}}, {"tails", kTailsEven}};
}

Lowered DepthwiseBytesTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                      const std::string& name) const {
  const auto p = analyse(w);
  NIMBLE_CHECK(p && valid(w, c, t), "configuration {} of depthwise_bytes", to_json(c));
  return one_kernel(DepthwiseBytesLowering(w, *p, c, t).run(name));
}

}  // namespace nimble::kernels
