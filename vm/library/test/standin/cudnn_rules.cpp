// What must be there, and right, where a descriptor of the stand-in for cuDNN is closed.
#include <algorithm>
#include <initializer_list>

#include "vm/library/test/standin/cudnn_state.h"

namespace standin::cudnn {

namespace {

bool has(const Descriptor& d, std::initializer_list<int> attributes) {
  return std::all_of(attributes.begin(), attributes.end(),
                     [&](int a) { return d.attributes.contains(a); });
}

int close_tensor(const Descriptor& d) {
  if (!has(d, {900, 901, 902, 903, 906})) return violate("a tensor that is not whole");
  const Shape dims = d.all<int64_t>(902), strides = d.all<int64_t>(903);
  if (dims.size() != 4 || strides.size() != 4) return violate("a tensor without four axes");
  const int type = d.one<int>(901, -1);
  if (type != kF32 && type != kF16 && type != kBF16)
    return violate("a tensor of another type", kNotSupported);
  // Of attention's heads lie side by side in a row; others are dense in their order.
  const bool heads = type != kF32;
  const size_t order[] = {0, heads ? size_t{2} : 1, heads ? size_t{1} : 2, 3};
  int64_t dense = 1;
  for (size_t i = 4; i-- > 0; dense *= dims[order[i]])
    if (dims[order[i]] < 1 || strides[order[i]] != dense)
      return violate("a tensor that is not dense");
  if (d.one<bool>(908) && (dense != 1 || d.one<bool>(907)))
    return violate("a value that is more than one number");
  const int64_t alignment = d.one<int64_t>(900);
  if (alignment < (heads ? 2 : 4) || (alignment & (alignment - 1)) != 0)
    return violate("an odd alignment");
  return kOk;
}

// As NVIDIA's header says of it, without what is not set here.
int close_attention(const Descriptor& d) {
  if (!has(d, {2800, 2801, 2802, 2803, 2805})) return violate("attention that is not whole");
  Shape dims[4];
  int type = -1;
  for (int i = 0; i < 4; ++i) {
    const Descriptor* t = find(d.one<void*>(2800 + i), kTensor);
    if (!t || t->one<bool>(907) || t->one<bool>(908))
      return violate("attention of what is no tensor in memory");
    dims[i] = t->all<int64_t>(902);
    if (i > 0 && t->one<int>(901) != type) return violate("attention of several types");
    type = t->one<int>(901);
  }
  if (type != kF16 && type != kBF16) return violate("attention of f32", kNotSupported);
  const Shape &q = dims[0], &k = dims[1], &v = dims[2], &y = dims[3];
  for (const Shape* other : {&k, &v, &y})
    if ((*other)[0] != q[0] || (*other)[1] != q[1])
      return violate("entries or heads of attention that do not match");
  if (k[3] != q[3] || v[2] != k[2] || y[2] != q[2] || y[3] != v[3])
    return violate("extents of attention that do not match");
  const Descriptor* scale = find(d.one<void*>(2805), kTensor);
  if (!scale || !scale->one<bool>(908) || scale->one<int>(901) != kF32)
    return violate("a scale that is no number of the host's");
  return kOk;
}

int close_forward(const Descriptor& d) {
  if (!has(d, {700, 701, 702, 703, 704, 705})) return violate("a convolution that is not whole");
  Descriptor* x = find(d.one<void*>(704), kTensor);
  Descriptor* w = find(d.one<void*>(703), kTensor);
  Descriptor* y = find(d.one<void*>(705), kTensor);
  Descriptor* c = find(d.one<void*>(702), kConvolution);
  if (!x || !w || !y || !c) return violate("a convolution of what is none, or not closed");
  if (d.one<float>(700) != 1 || d.one<float>(701) != 0) return violate("factors of a convolution");
  const Shape xs = x->all<int64_t>(902), ws = w->all<int64_t>(902), ys = y->all<int64_t>(902);
  const Shape before = c->all<int64_t>(105), after = c->all<int64_t>(104),
              strides = c->all<int64_t>(103), dilations = c->all<int64_t>(102);
  if (xs[1] % ws[1] != 0 || ws[0] % (xs[1] / ws[1]) != 0 || ys[0] != xs[0] || ys[1] != ws[0])
    return violate("channels of a convolution that do not match");
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach = (ws[2 + i] - 1) * dilations[i] + 1;
    if (ys[2 + i] != (xs[2 + i] + before[i] + after[i] - reach) / strides[i] + 1)
      return violate("extents of a convolution that do not match");
  }
  return kOk;
}

}  // namespace

int close(Descriptor& d) {
  switch (d.kind) {
    case kTensor:
      return close_tensor(d);
    case kConvolution:
      if (!has(d, {100, 101, 102, 103, 104, 105, 106}) || d.one<int>(101) != 1 ||
          d.one<int>(100) != 0 || d.one<int64_t>(106) != 2)
        return violate("a convolution's windows that are not whole");
      return kOk;
    case kForward:
      return close_forward(d);
    case kAttention:
      return close_attention(d);
    case kPointwise:
      if (d.attributes.contains(2) && (d.attributes.at(2).type != 10 || d.one<int>(0) != 100))
        return violate("NaN is asked for where there is no choice");
      return has(d, {0, 1}) ? kOk : violate("a pointwise operation without a mode");
    case kPointwiseOperation: {
      Descriptor* what = find(d.one<void*>(750), kPointwise);
      if (!what || !find(d.one<void*>(751), kTensor) || !find(d.one<void*>(753), kTensor))
        return violate("a pointwise operation that is not whole");
      const bool adds = what->one<int>(0) == 0;
      if (adds != (find(d.one<void*>(752), kTensor) != nullptr))
        return violate("a pointwise operation with the wrong operands");
      return kOk;
    }
    case kGraph:
      if (!state().handles.contains(d.one<void*>(800)) || d.all<void*>(801).empty())
        return violate("a graph that is not whole");
      for (void* o : d.all<void*>(801))
        if (!find(o, kForward) && !find(o, kPointwiseOperation) && !find(o, kAttention))
          return violate("a graph of what is no operation");
      return kOk;
    case kHeuristics:
      d.graph = find(d.one<void*>(201), kGraph);
      return d.graph && has(d, {200}) ? kOk : violate("rules without a graph");
    case kPlan: {
      auto* configuration = static_cast<Descriptor*>(d.one<void*>(401));
      if (!state().handles.contains(d.one<void*>(400)) ||
          !state().descriptors.contains(configuration) || configuration->kind != kConfiguration ||
          !configuration->graph)
        return violate("a plan that is not whole");
      if (configuration->engine.refused) return kNotSupported + 2;
      d.engine = configuration->engine;
      d.graph = configuration->graph;
      return kOk;
    }
    case kPack:
      if (!has(d, {1000, 1001, 1003}) || d.all<int64_t>(1000).size() != d.all<void*>(1001).size())
        return violate("a pack that is not whole");
      return kOk;
  }
  return violate("a descriptor of this kind is not closed");
}

}  // namespace standin::cudnn
