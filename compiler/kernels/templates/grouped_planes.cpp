#include "compiler/kernels/templates/grouped_planes.h"

#include <utility>

#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/loops.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::Dim;
using kir::StmtRef;
using kir::ValueRef;

namespace {

constexpr int kUnroll = 2;  // vectors of pixels that are copied in a body

DType unsigned_of(size_t bytes) {
  return bytes == 1 ? DType::kU8 : bytes == 2 ? DType::kU16 : DType::kU32;
}

// The groups of `lanes` pixels from pixel `at` of an image on, side by side.
ValueRef groups(const GroupedPlanes& p, const Dim& image, int64_t plane, const Slice& s) {
  const DType type = p.to->dtype;
  const auto bits = static_cast<int64_t>(8 * size_of(type));
  ValueRef all;
  for (int64_t i = 0; i < p.group; ++i) {
    const int64_t channel = plane * p.group + i;
    if (channel >= p.channels) break;
    const Dim index = (image * p.channels + channel) * p.pixels + s.at;
    ValueRef v = s.valid ? kb::load_masked(p.from, index, s.lanes, *s.valid)
                         : kb::load(p.from, index, s.lanes);
    v = kb::cast(DType::kU32,
                 kb::bitcast(unsigned_of(size_of(type)), kb::cast(type, std::move(v))));
    if (i > 0)
      v = kb::binary(kir::BinaryOp::kShl, std::move(v),
                     kb::integer(DType::kU32, i * bits, s.lanes));
    all = all ? kb::binary(kir::BinaryOp::kOr, std::move(all), std::move(v)) : std::move(v);
  }
  return kb::bitcast(type, std::move(all));
}

}  // namespace

void GroupedPlanes::make_copy(DType type, const std::string& name) {
  NIMBLE_CHECK(size_of(type) * static_cast<size_t>(group) == 4, "groups of {} {}", group,
               name_of(type));
  to = shared_scratch(name, type, images * (planes() * group) * pixels);
}

// Shares are whole lines of pixels of a plane.
std::vector<StmtRef> group_planes(const GroupedPlanes& p, int lanes) {
  constexpr int64_t kLine = 64;
  const Dim items = ir::ceildiv(p.pixels, kLine);
  const auto edge = [&](const Dim& number) {
    return ir::min(ir::floordiv(items * number, Dim::symbol("threads")) * kLine, p.pixels);
  };
  const Dim first = Dim::symbol("grouped_begin"), image = Dim::symbol("grouped_image");
  std::vector<StmtRef> out;
  out.push_back(kb::let_index("grouped_begin", kb::index(edge(Dim::symbol("thread")))));
  out.push_back(kb::let_index("grouped_count", kb::index(edge(Dim::symbol("thread") + 1) - first)));
  StmtRef pixels = vector_loop(
      "grouped_i", first, Dim::symbol("grouped_count"), lanes, kUnroll,
      [&](const Slice& s) -> std::vector<StmtRef> {
        std::vector<StmtRef> stores;
        for (int64_t plane = 0; plane < p.planes(); ++plane) {
          const Dim index = ((image * p.planes() + plane) * p.pixels + s.at) * p.group;
          ValueRef v = groups(p, image, plane, s);
          stores.push_back(s.valid ? kb::store_masked(p.to, index, std::move(v), *s.valid * p.group)
                                   : kb::store(p.to, index, std::move(v)));
        }
        return stores;
      });
  out.push_back(kb::loop(kir::LoopKind::kSerial, "grouped_image", 0, p.images, std::move(pixels)));
  out.push_back(kb::barrier());
  return out;
}

}  // namespace nimble::kernels
