// A library that answers as cuBLASLt does, on the memory and in the streams of the stand-in for
// NVIDIA's driver (vm/runtime/test/standin/cuda.cpp), for tests on machines that have no GPU.
//
// Products are computed when their stream comes to them, by plain loops in column-major order as
// the library's documentation defines them, and only then is their memory looked at. Each call is
// checked as far as the rules say what is right: handles, the sizes of attributes, extents, what
// the search was promised of alignments, the workspace. What is not is noted (violations()) and
// refused. The environment's NIMBLE_STANDIN_CUBLASLT_VERSION is the version that it says it is of.
#include "vm/library/test/standin/cublaslt.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "vm/library/test/standin/gpu_library.h"

namespace {

constexpr int kOk = 0, kNotInitialized = 1, kInvalidValue = 7, kExecutionFailed = 13,
              kNotSupported = 15;
constexpr int kF32 = 0, kBF16 = 14;
constexpr int kComputeTf32 = 77;

struct Handle {};
struct Layout {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0, stride = 0;
  int32_t batch = 1;
};
struct Product {
  int compute = 68;
  int32_t transpose_a = 0, transpose_b = 0;
  uint32_t epilogue = 1;
  uint64_t bias = 0;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t alignments[4] = {256, 256, 256, 256};
};
struct Algorithm {
  uint64_t data[8];
};
constexpr uint64_t kMark = 0x5eed;  // of an algorithm: mark, workspace, alignments
struct Found {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

struct State {
  StandInCalls calls;
  int unusable = 0, usable = 1;
  size_t workspace = 0;
  std::set<void*> handles, layouts, products, preferences;
  std::string log;
};
State& state() {
  static State& s = *new State;
  return s;
}

int violate(const std::string& what, int status = kInvalidValue) {
  return state().calls.violate(what, status);
}

template <class T>
int make(std::set<void*>& all, void** out, T value) {
  all.insert(*out = new T(value));
  return kOk;
}
template <class T>
int destroy(std::set<void*>& all, void* what, const char* kind) {
  if (all.erase(what) == 0) return violate(std::string("destroyed twice or never made: ") + kind);
  delete static_cast<T*>(what);
  return kOk;
}
template <class T>
int assign(T& to, const void* from, size_t bytes) {
  if (bytes != sizeof to) return violate("an attribute of another size");
  std::memcpy(&to, from, sizeof to);
  return kOk;
}

float value(const void* data, int type, int64_t at) {
  if (type == kF32) return static_cast<const float*>(data)[at];
  const uint32_t bits = uint32_t{static_cast<const uint16_t*>(data)[at]} << 16;
  float out = 0;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}
void store(void* data, int type, int64_t at, float v) {
  if (type == kF32) {
    static_cast<float*>(data)[at] = v;
    return;
  }
  uint32_t bits = 0;
  std::memcpy(&bits, &v, sizeof bits);
  static_cast<uint16_t*>(data)[at] =
      static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Under TF32 the bits behind ten of fraction are cut off: an engine may do so.
float factor(const Product& p, float v) {
  if (p.compute != kComputeTf32) return v;
  uint32_t bits = 0;
  std::memcpy(&bits, &v, sizeof bits);
  bits &= ~uint32_t{0x1fff};
  std::memcpy(&v, &bits, sizeof bits);
  return v;
}

size_t size_of(int type) {
  return type == kF32 ? 4 : 2;
}
size_t bytes_of(const Layout& l) {
  const int64_t one =
      l.leading * (static_cast<int64_t>(l.columns) - 1) + static_cast<int64_t>(l.rows);
  return static_cast<size_t>(one + std::abs(l.stride) * (l.batch - 1)) * size_of(l.type);
}

// A product in a stream.
struct Started {
  Product what;
  Layout a, b, c, d;
  uint64_t at_a = 0, at_b = 0, at_c = 0, at_d = 0, workspace = 0;
  size_t workspace_bytes = 0;
  float alpha = 1, beta = 0;
};

int run(void* context) {
  const auto* s = static_cast<const Started*>(context);
  const auto memory = [](uint64_t address, size_t bytes) {
    return standin::driver().host_of(address, bytes);
  };
  const void* a = memory(s->at_a, bytes_of(s->a));
  const void* b = memory(s->at_b, bytes_of(s->b));
  const void* c = memory(s->at_c, bytes_of(s->c));
  void* d = memory(s->at_d, bytes_of(s->d));
  const auto rows = static_cast<int64_t>(s->d.rows), columns = static_cast<int64_t>(s->d.columns);
  const bool biased = (s->what.epilogue & 4) != 0;
  const void* bias =
      biased ? memory(s->what.bias, static_cast<size_t>(rows) * size_of(s->d.type)) : d;
  void* workspace = s->workspace_bytes > 0 ? memory(s->workspace, s->workspace_bytes) : d;
  if (!a || !b || !c || !d || !bias || !workspace) return 700;
  if (s->workspace_bytes > 0) std::memset(workspace, 0x77, s->workspace_bytes);
  const auto inner = static_cast<int64_t>(s->what.transpose_a ? s->a.rows : s->a.columns);
  for (int32_t i = 0; i < s->d.batch; ++i)
    for (int64_t col = 0; col < columns; ++col)
      for (int64_t row = 0; row < rows; ++row) {
        float sum = 0;
        for (int64_t k = 0; k < inner; ++k) {
          const int64_t of_a =
              s->what.transpose_a ? k + row * s->a.leading : row + k * s->a.leading;
          const int64_t of_b =
              s->what.transpose_b ? col + k * s->b.leading : k + col * s->b.leading;
          sum += factor(s->what, value(a, s->a.type, of_a + i * s->a.stride)) *
                 factor(s->what, value(b, s->b.type, of_b + i * s->b.stride));
        }
        float v = s->alpha * sum;
        const int64_t at = row + col * s->d.leading + i * s->d.stride;
        if (s->beta != 0)
          v += s->beta * value(c, s->c.type, row + col * s->c.leading + i * s->c.stride);
        if (biased) v += value(bias, s->d.type, row);
        if (s->what.epilogue & 2) v = std::max(v, 0.0F);
        if (s->what.epilogue & 32)
          v = 0.5F * v * (1 + std::tanh(0.7978845608F * (v + 0.044715F * v * v * v)));
        store(d, s->d.type, at, v);
      }
  return 0;
}

// ---- what tests ask

void reset() {
  State& s = state();
  s.unusable = 0;
  s.usable = 1;
  s.workspace = 0;
  s.calls.reset();
  s.log.clear();
}
void set(int unusable, int usable, size_t workspace) {
  State& s = state();
  s.unusable = unusable;
  s.usable = usable;
  s.workspace = workspace;
}
void fail(const char* function, int nth, int status) {
  state().calls.fail(function, nth, status);
}
int calls(const char* function) {
  return state().calls.count(function);
}
const char* violations() {
  return state().calls.violations();
}
size_t alive() {
  State& s = state();
  return s.handles.size() + s.layouts.size() + s.products.size() + s.preferences.size();
}
const char* products() {
  return state().log.c_str();
}

// Whether these make a product: op(A) op(B), as large as C and D.
bool fits(const Product& p, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const auto rows = [](const Layout& l, int32_t turned) { return turned ? l.columns : l.rows; };
  const auto columns = [](const Layout& l, int32_t turned) { return turned ? l.rows : l.columns; };
  for (const Layout* l : {&a, &b, &c, &d})
    if (l->rows == 0 || l->columns == 0 || l->leading < static_cast<int64_t>(l->rows) ||
        l->batch != d.batch || (l->type != kF32 && l->type != kBF16))
      return false;
  return rows(a, p.transpose_a) == d.rows && columns(b, p.transpose_b) == d.columns &&
         columns(a, p.transpose_a) == rows(b, p.transpose_b) && c.rows == d.rows &&
         c.columns == d.columns && a.type == b.type && c.type == d.type &&
         (d.type == kF32 || a.type == kBF16) && (p.compute != kComputeTf32 || a.type == kF32);
}

}  // namespace

extern "C" {

const StandInCublasLt* standin_cublaslt_table() {
  static const StandInCublasLt table = {{reset, fail, calls, violations, alive}, set, products};
  return &table;
}

size_t cublasLtGetVersion() {
  return standin::version_of("NIMBLE_STANDIN_CUBLASLT_VERSION", 130002);
}
const char* cublasLtGetStatusString(int status) {
  static thread_local std::string text;
  return standin::text_of(status, &text);
}
int cublasLtCreate(void** handle) {
  ENTER;
  return make(state().handles, handle, Handle{});
}
int cublasLtDestroy(void* handle) {
  ENTER;
  return destroy<Handle>(state().handles, handle, "handle");
}
int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns,
                               int64_t leading) {
  ENTER;
  Layout l;
  l.type = type;
  l.rows = rows;
  l.columns = columns;
  l.leading = leading;
  return make(state().layouts, layout, l);
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  ENTER;
  return destroy<Layout>(state().layouts, layout, "layout");
}
int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  ENTER;
  if (!state().layouts.contains(layout)) return violate("a layout that is none");
  auto& l = *static_cast<Layout*>(layout);
  if (attribute == 5) return assign(l.batch, value, bytes);
  if (attribute == 6) return assign(l.stride, value, bytes);
  return violate("an attribute of a layout that is unknown here");
}
int cublasLtMatmulDescCreate(void** product, int compute, int scale) {
  ENTER;
  if ((compute != 68 && compute != kComputeTf32) || scale != kF32)
    return violate("sums of another type");
  Product p;
  p.compute = compute;
  return make(state().products, product, p);
}
int cublasLtMatmulDescDestroy(void* product) {
  ENTER;
  return destroy<Product>(state().products, product, "product");
}
int cublasLtMatmulDescSetAttribute(void* product, int attribute, const void* value, size_t bytes) {
  ENTER;
  if (!state().products.contains(product)) return violate("a product that is none");
  auto& p = *static_cast<Product*>(product);
  switch (attribute) {
    case 3:
      return assign(p.transpose_a, value, bytes);
    case 4:
      return assign(p.transpose_b, value, bytes);
    case 7:
      return assign(p.epilogue, value, bytes);
    case 8:
      return assign(p.bias, value, bytes);
  }
  return violate("an attribute of a product that is unknown here");
}
int cublasLtMatmulPreferenceCreate(void** preference) {
  ENTER;
  return make(state().preferences, preference, Preference{});
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  ENTER;
  return destroy<Preference>(state().preferences, preference, "preference");
}
int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value,
                                         size_t bytes) {
  ENTER;
  if (!state().preferences.contains(preference)) return violate("a preference that is none");
  auto& p = *static_cast<Preference*>(preference);
  if (attribute == 1) return assign(p.workspace, value, bytes);
  if (attribute == 3) return assign(p.reductions, value, bytes);
  if (attribute >= 5 && attribute <= 8) return assign(p.alignments[attribute - 5], value, bytes);
  return violate("an attribute of a preference that is unknown here");
}
int cublasLtMatmulAlgoGetHeuristic(void* handle, void* product, void* a, void* b, void* c, void* d,
                                   void* preference, int most, Found* found, int* count) {
  ENTER;
  State& s = state();
  *count = 0;
  if (!s.handles.contains(handle)) return violate("a handle that is none", kNotInitialized);
  if (!s.products.contains(product) || !s.preferences.contains(preference))
    return violate("a search with what is none");
  for (void* l : {a, b, c, d})
    if (!s.layouts.contains(l)) return violate("a layout that is none");
  const auto& p = *static_cast<Preference*>(preference);
  if (p.reductions != 2) violate("sums may be added in a narrower type");
  const auto layout = [](void* l) -> const Layout& { return *static_cast<Layout*>(l); };
  if (!fits(*static_cast<Product*>(product), layout(a), layout(b), layout(c), layout(d)))
    return violate("extents or types that are no product's", kNotSupported);
  for (int i = 0; i < std::min(most, s.unusable + s.usable); ++i) {
    found[i] = {};
    found[i].state = i < s.unusable ? kNotSupported : kOk;
    found[i].workspace = s.workspace;
    found[i].algorithm = {{kMark, s.workspace, p.alignments[0], p.alignments[1], p.alignments[2],
                           p.alignments[3], 0, 0}};
    if (i < s.unusable) found[i].algorithm.data[0] = 0;
    ++*count;
  }
  return *count > 0 ? kOk : kNotSupported;
}
int cublasLtMatmul(void* handle, void* product, const void* alpha, uint64_t at_a, void* a,
                   uint64_t at_b, void* b, const void* beta, uint64_t at_c, void* c, uint64_t at_d,
                   void* d, const Algorithm* algorithm, uint64_t workspace, size_t workspace_bytes,
                   void* stream) {
  ENTER;
  State& s = state();
  if (!s.handles.contains(handle)) return violate("a handle that is none", kNotInitialized);
  if (!s.products.contains(product)) return violate("a product that is none");
  for (void* l : {a, b, c, d})
    if (!s.layouts.contains(l)) return violate("a layout that is none");
  if (algorithm->data[0] != kMark) return violate("an algorithm that was not found");
  if (workspace_bytes < algorithm->data[1] || (workspace_bytes > 0 && workspace % 256 != 0))
    return violate("a workspace that is too small or not aligned");
  const uint64_t addresses[] = {at_a, at_b, at_c, at_d};
  for (int i = 0; i < 4; ++i)
    if (addresses[i] % algorithm->data[2 + i] != 0)
      return violate("an address that is not aligned as was promised");
  auto started = std::make_unique<Started>();
  started->what = *static_cast<Product*>(product);
  started->a = *static_cast<Layout*>(a);
  started->b = *static_cast<Layout*>(b);
  started->c = *static_cast<Layout*>(c);
  started->d = *static_cast<Layout*>(d);
  started->at_a = at_a;
  started->at_b = at_b;
  started->at_c = at_c;
  started->at_d = at_d;
  started->workspace = workspace;
  started->workspace_bytes = workspace_bytes;
  std::memcpy(&started->alpha, alpha, sizeof(float));
  std::memcpy(&started->beta, beta, sizeof(float));
  if (!fits(started->what, started->a, started->b, started->c, started->d))
    return violate("extents or types that are no product's", kNotSupported);
  const Started& p = *started;
  s.log += std::to_string(p.d.rows) + " x " + std::to_string(p.d.columns) + " by " +
           std::to_string(p.what.transpose_a ? p.a.rows : p.a.columns) + ", batch " +
           std::to_string(p.d.batch) + ", epilogue " + std::to_string(p.what.epilogue) +
           (p.beta != 0 ? ", added" : "") + (p.what.compute == kComputeTf32 ? ", tf32" : "") + "\n";
  const auto drop = [](void* what) { delete static_cast<Started*>(what); };
  if (standin::driver().add_work(stream, run, drop, started.release()) != 0)
    return kExecutionFailed;
  return kOk;
}

}  // extern "C"
