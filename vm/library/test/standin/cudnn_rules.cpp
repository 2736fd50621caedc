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
  int64_t dense = 1;
  for (size_t i = 4; i-- > 0; dense *= dims[i])
    if (dims[i] < 1 || strides[i] != dense) return violate("a tensor that is not dense");
  if (d.one<int>(901, -1) != 0) return violate("a tensor that is not f32", kNotSupported);
  const int64_t alignment = d.one<int64_t>(900);
  if (alignment < 4 || (alignment & (alignment - 1)) != 0) return violate("an odd alignment");
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
        if (!find(o, kForward) && !find(o, kPointwiseOperation))
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
