// A library that answers as version 3 of oneDNN does, for tests on machines that have none:
// products of f32 by plain loops, with a bias and element-wise sums behind them, and weights that
// it wants turned round. NIMBLE_STANDIN_RUNTIME says for which threads it claims to be built.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

namespace {

struct Desc {
  int rank = 0;
  int64_t dims[12] = {}, strides[12] = {};
  int type = 0;
  bool any = false;
};
struct PostOp {
  int algorithm = 0;
  float alpha = 0, beta = 0;
  Desc operand;
  bool binary = false;
};
struct PrimitiveDesc {
  bool reorder = false, has_bias = false;
  Desc x, w, bias, y, scratchpad;
  std::vector<PostOp> steps;
};
struct Memory {
  Desc desc;
  void* data = nullptr;
};
struct Argument {
  int arg;
  Memory* memory;
};
struct Version {
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
};

int64_t offset(const Desc& d, int64_t row, int64_t column) {
  return (d.dims[0] == 1 ? 0 : row * d.strides[0]) + (d.dims[1] == 1 ? 0 : column * d.strides[1]);
}

int opaque;  // what handles without contents point to

}  // namespace

extern "C" {

const Version* dnnl_version() {
  static const Version v = {3, 2, 0, "stand-in", NIMBLE_STANDIN_RUNTIME, 0};
  return &v;
}
void omp_set_num_threads(int) {}
int omp_get_max_threads() {
  return 1;
}

int dnnl_engine_create(void** out, int, size_t) {
  return *out = &opaque, 0;
}
int dnnl_engine_destroy(void*) {
  return 0;
}
int dnnl_stream_create(void** out, void*, unsigned) {
  return *out = &opaque, 0;
}
int dnnl_stream_wait(void*) {
  return 0;
}
int dnnl_stream_destroy(void*) {
  return 0;
}

int dnnl_memory_desc_create_with_tag(Desc** out, int rank, const int64_t* dims, int type, int tag) {
  if (tag != 1) return 3;
  *out = new Desc{rank, {}, {}, type, true};
  std::memcpy((*out)->dims, dims, static_cast<size_t>(rank) * sizeof *dims);
  return 0;
}
int dnnl_memory_desc_create_with_strides(Desc** out, int rank, const int64_t* dims, int type,
                                         const int64_t* strides) {
  *out = new Desc{rank, {}, {}, type, false};
  std::memcpy((*out)->dims, dims, static_cast<size_t>(rank) * sizeof *dims);
  std::memcpy((*out)->strides, strides, static_cast<size_t>(rank) * sizeof *strides);
  return 0;
}
int dnnl_memory_desc_destroy(Desc* d) {
  return delete d, 0;
}
int dnnl_memory_desc_equal(const Desc* a, const Desc* b) {
  return a->rank == b->rank && a->type == b->type &&
         std::memcmp(a->dims, b->dims, sizeof a->dims) == 0 &&
         std::memcmp(a->strides, b->strides, sizeof a->strides) == 0;
}
size_t dnnl_memory_desc_get_size(const Desc* d) {
  size_t bytes = d->rank == 0 ? 0 : 4;
  for (int i = 0; i < d->rank; ++i) bytes *= static_cast<size_t>(d->dims[i]);
  return bytes;
}

int dnnl_post_ops_create(std::vector<PostOp>** out) {
  return *out = new std::vector<PostOp>, 0;
}
int dnnl_post_ops_destroy(std::vector<PostOp>* p) {
  return delete p, 0;
}
int dnnl_post_ops_append_binary(std::vector<PostOp>* p, int algorithm, const Desc* operand) {
  if (algorithm != 0x1fff0) return 3;
  p->push_back({algorithm, 0, 0, *operand, true});
  return 0;
}
int dnnl_post_ops_append_eltwise(std::vector<PostOp>* p, int algorithm, float alpha, float beta) {
  if (algorithm != 0x20 && algorithm != 0x26) return 3;  // relu, linear
  p->push_back({algorithm, alpha, beta, {}, false});
  return 0;
}
int dnnl_primitive_attr_create(std::vector<PostOp>** out) {
  return dnnl_post_ops_create(out);
}
int dnnl_primitive_attr_destroy(std::vector<PostOp>* a) {
  return dnnl_post_ops_destroy(a);
}
int dnnl_primitive_attr_set_scratchpad_mode(void*, int mode) {
  return mode == 1 ? 0 : 2;
}
int dnnl_primitive_attr_set_post_ops(std::vector<PostOp>* a, const std::vector<PostOp>* p) {
  return *a = *p, 0;
}

int dnnl_matmul_primitive_desc_create(PrimitiveDesc** out, void*, const Desc* x, const Desc* w,
                                      const Desc* bias, const Desc* y,
                                      const std::vector<PostOp>* attributes) {
  if (x->type != 3 || w->type != 3 || y->type != 3 || x->rank != 2) return 3;
  auto* d = new PrimitiveDesc;
  d->x = *x;
  d->w = *w;
  if (w->any) {
    d->w.any = false;
    d->w.strides[0] = 1;
    d->w.strides[1] = w->dims[0];
  }
  d->has_bias = bias != nullptr;
  if (bias) d->bias = *bias;
  d->y = *y;
  d->steps = *attributes;
  d->scratchpad = {1, {16}, {1}, 3, false};
  return *out = d, 0;
}
int dnnl_convolution_forward_primitive_desc_create(PrimitiveDesc**, void*, int, int, const Desc*,
                                                   const Desc*, const Desc*, const Desc*,
                                                   const int64_t*, const int64_t*, const int64_t*,
                                                   const int64_t*, const void*) {
  return 3;  // dnnl_unimplemented
}
int dnnl_reorder_primitive_desc_create(PrimitiveDesc** out, const Desc* from, void*, const Desc* to,
                                       void*, const void*) {
  auto* d = new PrimitiveDesc;
  d->reorder = true;
  d->x = *from;
  d->y = *to;
  return *out = d, 0;
}
int dnnl_primitive_desc_destroy(PrimitiveDesc* d) {
  return delete d, 0;
}
const Desc* dnnl_primitive_desc_query_md(const PrimitiveDesc* d, int what, int) {
  return what == 131 ? &d->w : what == 136 ? &d->scratchpad : nullptr;
}
int dnnl_primitive_create(PrimitiveDesc** out, const PrimitiveDesc* d) {
  return *out = new PrimitiveDesc(*d), 0;
}
int dnnl_primitive_destroy(PrimitiveDesc* p) {
  return delete p, 0;
}

int dnnl_memory_create(Memory** out, const Desc* d, void*, void* data) {
  return *out = new Memory{*d, data}, 0;
}
int dnnl_memory_destroy(Memory* m) {
  return delete m, 0;
}
int dnnl_memory_set_data_handle(Memory* m, void* data) {
  return m->data = data, 0;
}

// A test says which instructions there are.
int dnnl_get_effective_cpu_isa() {
  const char* isa = std::getenv("NIMBLE_STANDIN_ISA");
  return isa ? static_cast<int>(std::strtol(isa, nullptr, 16)) : 0;
}

int dnnl_primitive_execute(const PrimitiveDesc* p, void*, int count, const Argument* arguments) {
  std::map<int, float*> data;
  for (int i = 0; i < count; ++i)
    data[arguments[i].arg] = static_cast<float*>(arguments[i].memory->data);
  if (p->reorder) {
    for (int64_t i = 0; i < p->x.dims[0]; ++i)
      for (int64_t j = 0; j < p->x.dims[1]; ++j)
        data.at(17)[offset(p->y, i, j)] = data.at(1)[offset(p->x, i, j)];
    return 0;
  }
  std::memset(data.at(80), 1, 16 * sizeof(float));  // the scratchpad is ours to write
  for (int64_t i = 0; i < p->y.dims[0]; ++i)
    for (int64_t j = 0; j < p->y.dims[1]; ++j) {
      float v = p->has_bias ? data.at(41)[offset(p->bias, i, j)] : 0;
      for (int64_t k = 0; k < p->x.dims[1]; ++k)
        v += data.at(1)[offset(p->x, i, k)] * data.at(33)[offset(p->w, k, j)];
      for (size_t s = 0; s < p->steps.size(); ++s) {
        const PostOp& step = p->steps[s];
        if (step.binary)
          v += data.at(static_cast<int>(s + 1) * 32768 | 2)[offset(step.operand, i, j)];
        else if (step.algorithm == 0x20)
          v = v > 0 ? v : step.alpha * v;
        else
          v = step.alpha * v + step.beta;
      }
      data.at(17)[offset(p->y, i, j)] = v;
    }
  return 0;
}

}  // extern "C"
