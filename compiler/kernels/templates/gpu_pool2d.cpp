// The template "gpu_pool2d": maximum and average pooling of images on a GPU, channels first or
// last.
//
// A thread has an element of the result; neighbouring threads have neighbouring columns, or
// channels where these come last, so that each tap of a warp reads neighbours or what lies a stride
// apart. Taps outside the image are cut off by the loops' bounds.
#include <array>
#include <vector>

#include "compiler/ir/image_layout.h"
#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/window.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
using kir::Dim;
using kir::StmtRef;
using kir::ValueRef;

kir::Function lower_pooling(const Workload& w, int threads, const std::string& name) {
  const Frame frame = gpu::make_gpu_frame(w);
  const ir::Expr& call = *frame.anchor->value;
  const kir::BufferRef x = parameter_buffer(w, frame, call.args[0]);
  NIMBLE_CHECK(x, "pooling of something but a parameter");
  const std::vector<Dim> in = ir::type_of(call.args[0])->dims;
  const std::vector<Dim>& out = frame.anchor->var->type->dims;
  const DType type = frame.anchor->var->type->dtype;
  // The axis of the rows; the columns' is the next.
  const size_t axis = ir::image_layout_of(call.attrs).channels_last() ? 1 : 2;
  const bool average = call.op == "avg_pool2d";
  const bool with_padding = average && ir::attr<bool>(call.attrs, "count_include_pad");
  const auto& kernel = ir::attr<std::vector<int64_t>>(call.attrs, "kernel");
  const std::array<Window, 2> windows = windows_of(
      call.attrs, {in[axis], in[axis + 1]}, {out[axis], out[axis + 1]}, {kernel[0], kernel[1]});
  const auto best = kb::buffer("best", kir::Scope::kRegister, type, 1);

  std::vector<StmtRef> body;
  const auto bind = [&](const std::string& symbol, const Dim& d) {
    if (d.as_constant()) return d;
    body.push_back(kb::let_index(symbol, kb::index(d)));
    return Dim::symbol(symbol);
  };
  const std::vector<Dim> at = bind_coordinates("x", out, Dim::symbol("element"), body);
  std::vector<Dim> place = at;
  std::array<Dim, 2> begin, end;
  Dim count = 1;
  for (size_t k = 0; k < 2; ++k) {
    const std::string suffix = std::to_string(k);
    const Dim start = bind("start" + suffix, windows[k].start(at[axis + k]));
    begin[k] = bind("begin" + suffix, windows[k].begin_tap(start));
    end[k] = bind("end" + suffix, windows[k].end_tap(start));
    place[axis + k] = start + Dim::symbol("tap" + suffix) * windows[k].dilation;
    if (average)
      count = count * bind("count" + suffix, windows[k].counted(at[axis + k], with_padding));
  }
  const ValueRef v = kb::load(x, flat_offset(in, place));
  const ValueRef so_far = kb::reg(best, 0);
  const StmtRef take = kb::set_reg(best, 0, average ? kb::add(so_far, v) : kb::max(v, so_far));
  body.push_back(kb::set_reg(best, 0, average ? kb::number(type, 0) : least_of(type, 1)));
  body.push_back(
      kb::loop(kir::LoopKind::kSerial, "tap0", begin[0], end[0] - begin[0],
               kb::loop(kir::LoopKind::kSerial, "tap1", begin[1], end[1] - begin[1], take)));
  ValueRef result = so_far;
  if (average) result = kb::div(result, kb::cast(type, kb::index(ir::max(count, 1))));
  body.push_back(kb::store(frame.results[0], flat_offset(out, at), result));

  const Dim elements = count_of(out);
  StmtRef whole =
      kb::seq({kb::let_index("element", kb::index(gpu::block() * threads + gpu::thread()),
                             ir::SymbolFacts{}),
               kb::if_then(kb::lt(Dim::symbol("element"), elements), kb::seq(std::move(body)))});
  return gpu::launched(make_function(w, frame, name, {}, {best}, std::move(whole)),
                       {ir::ceildiv(elements, threads), 1, 1}, threads);
}

}  // namespace

bool GpuPool2dTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return t.is_gpu() && (is_pooling(w, false) || is_pooling(w, true));
}

std::vector<Knob> GpuPool2dTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("threads", {64, 128, 256, 512})};
}

bool GpuPool2dTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  return within(knobs(w, t), c);
}

Config GpuPool2dTemplate::default_config(const Workload&, const TargetInfo&) const {
  return {{"threads", int64_t{128}}};
}

Lowered GpuPool2dTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                 const std::string& name) const {
  NIMBLE_CHECK(accepts(w, t) && valid(w, c, t), "configuration {} of gpu_pool2d", to_json(c));
  return gpu::one_gpu_kernel(lower_pooling(w, static_cast<int>(knob_int(c, "threads")), name));
}

}  // namespace nimble::kernels
