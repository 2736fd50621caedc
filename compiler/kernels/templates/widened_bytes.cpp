#include "compiler/kernels/templates/widened_bytes.h"

#include <utility>

#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/loops.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::Dim;
using kir::StmtRef;
using kir::ValueRef;

namespace {

constexpr int kUnroll = 4;  // vectors that are widened in a body

}  // namespace

bool is_widened(std::optional<kir::Fragment> fragment, DType lhs) {
  return fragment && lhs != kir::row_of(*fragment).a;
}

StmtRef widen(const BufferRef& from, const Dim& first, const BufferRef& to, const Dim& place,
              const Dim& count, int lanes, const std::string& var) {
  return vector_loop(var, 0, count, lanes, kUnroll, [&](const Slice& s) -> std::vector<StmtRef> {
    const Dim source = first + s.at, target = place + s.at;
    if (!s.valid)
      return {kb::store(to, target, kb::cast(to->dtype, kb::load(from, source, lanes)))};
    ValueRef last = kb::cast(to->dtype, kb::load_masked(from, source, lanes, *s.valid));
    return {kb::store_masked(to, target, std::move(last), *s.valid)};
  });
}

void Widened::make_copy(DType type, const std::string& name) {
  to = shared_scratch(name, type, rows * width);
}

// A loop that threads share would say that no more of them than it has iterations have something to
// do. Rows that are read whole are one stretch, whose shares are whole lines of bytes, so that all
// vectors lie at multiples of their size.
std::vector<StmtRef> widen_together(const std::vector<Widened>& all, int lanes) {
  constexpr int64_t kLine = 64;
  const Dim thread = Dim::symbol("thread"), threads = Dim::symbol("threads");
  std::vector<StmtRef> out;
  for (size_t i = 0; i < all.size(); ++i) {
    const Widened& w = all[i];
    const auto named = [&](const char* what) { return what + std::to_string(i); };
    const std::string begin = named("widened_begin"), count = named("widened_count");
    const Dim first = Dim::symbol(begin), share = Dim::symbol(count);
    const bool whole = w.width == w.pitch;
    const Dim items = whole ? ir::ceildiv(w.rows * w.pitch, kLine) : w.rows;
    const auto edge = [&](const Dim& number) {
      const Dim item = ir::floordiv(items * number, threads);
      return whole ? ir::min(item * kLine, w.rows * w.pitch) : item;
    };
    out.push_back(kb::let_index(begin, kb::index(edge(thread))));
    out.push_back(kb::let_index(count, kb::index(edge(thread + 1) - first)));
    if (whole) {
      out.push_back(widen(w.from, first, w.to, first, share, lanes, named("widened_i")));
      continue;
    }
    const std::string row = named("widened_row");
    const Dim r = Dim::symbol(row);
    out.push_back(kb::loop(kir::LoopKind::kSerial, row, first, share,
                           widen(w.from, r * w.pitch + w.first, w.to, r * w.width, w.width, lanes,
                                 named("widened_i"))));
  }
  out.push_back(kb::barrier());
  return out;
}

}  // namespace nimble::kernels
