// What a graph of the stand-in for cuDNN computes, by plain loops.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "vm/base/half.h"
#include "vm/library/test/standin/cudnn_state.h"

namespace standin::cudnn {

namespace {

int64_t count_of(const Shape& s) {
  int64_t n = 1;
  for (const int64_t extent : s) n *= extent;
  return n;
}

void convolve(const Operation& o, const Shape& xs, const Shape& ws, const Shape& ys, const float* x,
              const float* w, float* y) {
  const int64_t depth = ws[1], groups = xs[1] / depth, filters = ws[0] / groups;
  for (int64_t b = 0; b < ys[0]; ++b)
    for (int64_t f = 0; f < ys[1]; ++f)
      for (int64_t i = 0; i < ys[2]; ++i)
        for (int64_t j = 0; j < ys[3]; ++j) {
          float sum = 0;
          for (int64_t c = 0; c < depth; ++c)
            for (int64_t u = 0; u < ws[2]; ++u)
              for (int64_t v = 0; v < ws[3]; ++v) {
                const int64_t row = i * o.strides[0] - o.before[0] + u * o.dilations[0];
                const int64_t column = j * o.strides[1] - o.before[1] + v * o.dilations[1];
                if (row < 0 || row >= xs[2] || column < 0 || column >= xs[3]) continue;
                const int64_t channel = f / filters * depth + c;
                sum += x[((b * xs[1] + channel) * xs[2] + row) * xs[3] + column] *
                       w[((f * depth + c) * ws[2] + u) * ws[3] + v];
              }
          *y++ = sum;
        }
}

// Sums are in f32, and so are the weights.
void attend(const Operation& o, const Shape& qs, const Shape& ks, const Shape& vs,
            const uint16_t* q, const uint16_t* k, const uint16_t* v, uint16_t* y) {
  const int64_t heads = qs[1], n = qs[2], m = ks[2], d = qs[3], dv = vs[3];
  const auto value = [&](uint16_t bits) {
    return o.attention == kF16 ? nimble::f32_from_f16(bits) : nimble::f32_from_bf16(bits);
  };
  std::vector<float> weights(static_cast<size_t>(m));
  for (int64_t b = 0; b < qs[0]; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < n; ++i) {
        float most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < m; ++j) {
          float score = 0;
          for (int64_t e = 0; e < d; ++e)
            score += value(q[((b * n + i) * heads + h) * d + e]) *
                     value(k[((b * m + j) * heads + h) * d + e]);
          weights[static_cast<size_t>(j)] = score * o.scale;
          most = std::max(most, score * o.scale);
        }
        for (float& w : weights) sum += w = std::exp(w - most);
        for (int64_t e = 0; e < dv; ++e) {
          float out = 0;
          for (int64_t j = 0; j < m; ++j)
            out += weights[static_cast<size_t>(j)] * value(v[((b * m + j) * heads + h) * dv + e]);
          y[((b * n + i) * heads + h) * dv + e] = o.attention == kF16
                                                      ? nimble::f16_from_f32(out / sum)
                                                      : nimble::bf16_from_f32(out / sum);
        }
      }
}

// The tensor's id, its extents noted.
int64_t note_tensor(Descriptor* t, Execution* e) {
  const auto id = t->one<int64_t>(906);
  e->shapes[id] = t->all<int64_t>(902);
  if (t->one<bool>(907)) e->virtuals.insert(id);
  return id;
}

}  // namespace

int run(void* context) {
  const auto* e = static_cast<const Execution*>(context);
  std::map<int64_t, std::vector<float>> temporary;
  const auto memory = [&](int64_t id) -> float* {
    const Shape& shape = e->shapes.at(id);
    const auto count = static_cast<size_t>(count_of(shape));
    if (e->virtuals.contains(id)) {
      auto& t = temporary[id];
      t.resize(count);
      return t.data();
    }
    return static_cast<float*>(
        standin::driver().host_of(e->addresses.at(id), count * sizeof(float)));
  };
  if (e->workspace_bytes > 0) {
    void* space = standin::driver().host_of(e->workspace, e->workspace_bytes);
    if (!space) return 700;
    std::memset(space, 0x77, e->workspace_bytes);
  }
  for (const Operation& o : e->operations) {
    if (o.attention >= 0) {
      const auto narrow = [&](int64_t id) {
        const auto bytes = static_cast<size_t>(count_of(e->shapes.at(id))) * sizeof(uint16_t);
        return static_cast<uint16_t*>(standin::driver().host_of(e->addresses.at(id), bytes));
      };
      const uint16_t *q = narrow(o.x), *k = narrow(o.b), *v = narrow(o.v);
      uint16_t* y = narrow(o.y);
      if (!q || !k || !v || !y) return 700;
      attend(o, e->shapes.at(o.x), e->shapes.at(o.b), e->shapes.at(o.v), q, k, v, y);
      continue;
    }
    const float* x = memory(o.x);
    const float* b = o.b != 0 ? memory(o.b) : x;
    float* y = memory(o.y);
    if (!x || !b || !y) return 700;
    const Shape& ys = e->shapes.at(o.y);
    if (o.convolution) {
      convolve(o, e->shapes.at(o.x), e->shapes.at(o.b), ys, x, b, y);
      continue;
    }
    const bool by_channel = o.b != 0 && e->shapes.at(o.b) != ys;
    for (int64_t i = 0; i < count_of(ys); ++i) {
      const int64_t channel = i / (ys[2] * ys[3]) % ys[1];
      if (o.mode == 100)
        y[i] = x[i] > 0 || (o.keeps_nans && std::isnan(x[i])) ? x[i] : 0.0F;
      else
        y[i] = x[i] + b[by_channel ? channel : i];
    }
  }
  return 0;
}

int prepare(const Descriptor& plan, const Descriptor& pack, Execution* e, std::string* told) {
  if (!state().descriptors.contains(plan.graph)) return violate("a plan whose graph is gone");
  std::map<int64_t, int64_t> alignments;
  int64_t by_value = 0;  // the id of a number that the host has; 0: none
  for (void* o : plan.graph->all<void*>(801)) {
    if (!state().descriptors.contains(o)) return violate("a plan whose operations are gone");
    const auto& d = *static_cast<Descriptor*>(o);
    Operation operation;
    if (d.kind == kAttention) {
      for (const auto& [attribute, to] : {std::pair{2800, &operation.x},
                                          {2801, &operation.b},
                                          {2802, &operation.v},
                                          {2803, &operation.y}}) {
        Descriptor* t = find(d.one<void*>(attribute), kTensor);
        if (!t) return violate("a plan whose tensors are gone");
        *to = note_tensor(t, e);
        alignments[*to] = t->one<int64_t>(900);
        operation.attention = t->one<int>(901);
      }
      Descriptor* scale = find(d.one<void*>(2805), kTensor);
      if (!scale) return violate("a plan whose tensors are gone");
      by_value = note_tensor(scale, e);
      alignments[by_value] = scale->one<int64_t>(900);
      *told += "attention";
      e->operations.push_back(operation);
      continue;
    }
    operation.convolution = d.kind == kForward;
    const int x = operation.convolution ? 704 : 751, b = operation.convolution ? 703 : 752,
              y = operation.convolution ? 705 : 753;
    for (const auto& [attribute, to] :
         {std::pair{x, &operation.x}, {b, &operation.b}, {y, &operation.y}}) {
      Descriptor* t = find(d.one<void*>(attribute), kTensor);
      if (!t && attribute == 752) continue;
      if (!t) return violate("a plan whose tensors are gone");
      *to = note_tensor(t, e);
      alignments[*to] = t->one<int64_t>(900);
    }
    if (operation.convolution) {
      const auto& c = *static_cast<Descriptor*>(d.one<void*>(702));
      operation.before = c.all<int64_t>(105);
      operation.strides = c.all<int64_t>(103);
      operation.dilations = c.all<int64_t>(102);
      *told += "convolution";
    } else {
      const auto& what = *static_cast<Descriptor*>(d.one<void*>(750));
      operation.mode = what.one<int>(0);
      operation.keeps_nans = what.one<int>(2) == 1;
      *told += operation.mode == 100                              ? ", relu"
               : e->shapes[operation.b] == e->shapes[operation.y] ? ", add"
                                                                  : ", bias";
    }
    e->operations.push_back(operation);
  }
  const std::vector<int64_t> ids = pack.all<int64_t>(1000);
  const std::vector<uint64_t> pointers = pack.all<uint64_t>(1001);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!e->shapes.contains(ids[i]) || e->virtuals.contains(ids[i]) ||
        !e->addresses.emplace(ids[i], pointers[i]).second)
      return violate("memory of a tensor that takes none");
    if (pointers[i] % static_cast<uint64_t>(alignments[ids[i]]) != 0)
      return violate("an address that is not aligned as was promised");
  }
  if (e->addresses.size() + e->virtuals.size() != e->shapes.size())
    return violate("a tensor without memory");
  // It is read now: the host may have another there later.
  if (by_value != 0)
    std::memcpy(&e->operations.back().scale,
                reinterpret_cast<const void*>(static_cast<uintptr_t>(e->addresses.at(by_value))),
                sizeof(float));
  e->workspace = pack.one<uint64_t>(1003);
  e->workspace_bytes = plan.engine.workspace;
  if (e->workspace_bytes > 0 && e->workspace % 256 != 0)
    return violate("a workspace that is not aligned");
  return kOk;
}

}  // namespace standin::cudnn
