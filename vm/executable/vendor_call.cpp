#include "vm/executable/vendor_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "vm/base/checked.h"
#include "vm/base/error.h"
#include "vm/base/printable.h"
#include "vm/executable/contract.h"

namespace nimble::exec {
namespace {

using Json = nlohmann::json;

constexpr const char* kSpellings[] = {
#define NIMBLE_VENDOR_OP(name, spelling, ...) spelling,
#include "vm/executable/VendorOps.def"
#undef NIMBLE_VENDOR_OP
};
constexpr bool kHasOperand[] = {
#define NIMBLE_VENDOR_OP(name, spelling, op, has_operand, ...) has_operand,
#include "vm/executable/VendorOps.def"
#undef NIMBLE_VENDOR_OP
};

// Which numbers an operator has: alpha, beta.
constexpr bool kHasNumbers[][2] = {
#define NIMBLE_VENDOR_OP(name, spelling, op, has_operand, alpha, beta) \
  {sizeof(alpha) > 1 || VendorOp::k##name == VendorOp::kLinear,        \
   sizeof(beta) > 1 || VendorOp::k##name == VendorOp::kLinear},
#include "vm/executable/VendorOps.def"
#undef NIMBLE_VENDOR_OP
};

// No extent, stride or padding of a model is larger. Products are checked.
constexpr int64_t kLargest = int64_t{1} << 31;
constexpr size_t kMostSteps = 32;

[[noreturn]] void corrupt(const std::string& problem) {
  throw Error(Status::kCorrupt, "configuration of a vendor's routine", problem,
              "compile the model again");
}

int64_t number(const Json& j, const char* name, int64_t least, int64_t most) {
  const auto it = j.find(name);
  if (it == j.end() || !it->is_number_integer()) corrupt(fmt::format("it has no number {}", name));
  const auto v = it->get<int64_t>();
  if (v < least || v > most) corrupt(fmt::format("{} is {}", name, v));
  return v;
}

template <size_t N>
std::array<int64_t, N> numbers(const Json& j, const char* name, int64_t least) {
  const auto it = j.find(name);
  if (it == j.end() || !it->is_array() || it->size() != N)
    corrupt(fmt::format("it has no {} numbers {}", N, name));
  std::array<int64_t, N> out{};
  for (size_t i = 0; i < N; ++i) {
    if (!(*it)[i].is_number_integer()) corrupt(fmt::format("{} has no numbers", name));
    out[i] = (*it)[i].get<int64_t>();
    if (out[i] < least || out[i] > kLargest) corrupt(fmt::format("{} has {}", name, out[i]));
  }
  return out;
}

float real(const Json& j, const char* name) {
  const auto it = j.find(name);
  if (it == j.end()) return 0;
  if (!it->is_number()) corrupt(fmt::format("{} is no number", name));
  const auto v = it->get<double>();
  if (!(std::abs(v) <= std::numeric_limits<float>::max()))
    corrupt(fmt::format("{} is {}, beyond f32", name, v));
  return static_cast<float>(v);
}

bool flag(const Json& j, const char* name) {
  const auto it = j.find(name);
  if (it == j.end()) return false;
  if (!it->is_boolean()) corrupt(fmt::format("{} is neither true nor false", name));
  return it->get<bool>();
}

std::string text(const Json& j, const char* name) {
  const auto it = j.find(name);
  if (it == j.end() || !it->is_string()) corrupt(fmt::format("it has no text {}", name));
  return it->get<std::string>();
}

VendorStep step_of(const Json& j) {
  if (!j.is_object()) corrupt("a step is no object");
  const std::string name = text(j, "op");
  for (int i = 0; i < kVendorOps; ++i) {
    if (name != kSpellings[i]) continue;
    VendorStep out;
    out.op = static_cast<VendorOp>(i);
    if (kHasOperand[i]) out.tensor = static_cast<uint32_t>(number(j, "tensor", 0, UINT16_MAX));
    const auto number_of = [&](const char* which, bool has) -> float {
      // The library might take it for what the operator has not, such as a slope of relu.
      if (!has && j.contains(which)) corrupt(fmt::format("{} takes no {}", name, which));
      return has ? real(j, which) : 0;
    };
    out.alpha = number_of("alpha", kHasNumbers[i][0]);
    out.beta = number_of("beta", kHasNumbers[i][1]);
    return out;
  }
  corrupt(
      fmt::format("it asks for an operator {} that this runtime does not know", printable(name)));
}

VendorCall read(const Json& j) {
  if (!j.is_object()) corrupt("it is no object");
  VendorCall out;
  out.routine = text(j, "routine");
  out.library = text(j, "library");
  out.x = static_cast<uint32_t>(number(j, "x", 0, UINT16_MAX));
  out.w = static_cast<uint32_t>(number(j, "w", 0, UINT16_MAX));
  out.y = static_cast<uint32_t>(number(j, "y", 0, UINT16_MAX));
  const int64_t least = j.contains("panel") || j.contains("image") ? 1 : 0;
  out.k = number(j, "k", least, kLargest);
  out.n = number(j, "n", least, kLargest);
  out.transpose_x = flag(j, "transpose_x");
  out.transpose_w = flag(j, "transpose_w");
  if ((out.transpose_x || out.transpose_w) && least == 1)
    corrupt("only a product of plain matrices is transposed");
  out.tf32 = flag(j, "tf32");
  if (out.tf32 && least == 1)
    corrupt("only factors of a product of plain matrices are rounded to tf32");
  if (j.contains("panel")) {
    const auto panel = numbers<2>(j, "panel", 1);
    if (panel[0] > 4096 || panel[1] > 4096) corrupt("its panels are too wide");
    out.panel = VendorCall::Panel{panel[0], panel[1]};
  }
  if (const auto it = j.find("image"); it != j.end()) {
    if (!it->is_object()) corrupt("image is no object");
    VendorCall::Image image;
    image.kernel = numbers<2>(*it, "kernel", 1);
    image.strides = numbers<2>(*it, "strides", 1);
    image.dilations = numbers<2>(*it, "dilations", 1);
    image.pads = numbers<4>(*it, "pads", 0);
    image.groups = number(*it, "groups", 1, kLargest);
    image.channels_first = it->value("channels_first", false);
    const auto taps = try_mul(image.kernel[0], image.kernel[1]);
    if (!taps || out.k % *taps != 0 || out.n % image.groups != 0)
      corrupt("its windows and groups do not divide its weights");
    out.image = image;
  }
  if (const auto it = j.find("attention"); it != j.end()) {
    if (!it->is_object()) corrupt("attention is no object");
    if (least == 1 || out.k != 0 || out.n != 0 || out.transpose_x || out.transpose_w || out.tf32 ||
        j.contains("then"))
      corrupt("attention is neither a product nor a convolution, and nothing follows it");
    out.attention = VendorCall::Attention{static_cast<uint32_t>(number(*it, "v", 0, UINT16_MAX)),
                                          number(*it, "heads", 1, kLargest), real(*it, "scale")};
  }
  if (const auto it = j.find("then"); it != j.end()) {
    if (!it->is_array() || it->size() > kMostSteps) corrupt("then is no list of a few steps");
    for (const Json& step : *it) out.then.push_back(step_of(step));
  }
  if (out.k > 0 && out.n > 0 && !out.weight_elements()) corrupt("its weights are too many");
  return out;
}

}  // namespace

const char* name_of(VendorOp op) {
  return kSpellings[static_cast<size_t>(op)];
}

bool has_operand(VendorOp op) {
  return kHasOperand[static_cast<size_t>(op)];
}

std::optional<int64_t> VendorCall::weight_elements() const {
  if (k == 0 || n == 0) return std::nullopt;
  if (!panel) return try_mul(k, n);
  const int64_t groups = image ? image->groups : 1;
  const int64_t panels = (n / groups + panel->width - 1) / panel->width;
  const int64_t rows = (k + panel->group - 1) / panel->group * panel->group;
  const auto columns = try_mul(panels * panel->width, groups);
  return columns ? try_mul(*columns, rows) : std::nullopt;
}

std::string to_json(const VendorCall& c) {
  Json j = {{"routine", c.routine},
            {"library", c.library},
            {"x", c.x},
            {"w", c.w},
            {"y", c.y},
            {"k", c.k},
            {"n", c.n}};
  if (c.transpose_x) j["transpose_x"] = true;
  if (c.transpose_w) j["transpose_w"] = true;
  if (c.tf32) j["tf32"] = true;
  if (c.panel) j["panel"] = {c.panel->width, c.panel->group};
  if (c.image) {
    j["image"] = {{"kernel", c.image->kernel},
                  {"strides", c.image->strides},
                  {"dilations", c.image->dilations},
                  {"pads", c.image->pads},
                  {"groups", c.image->groups}};
    if (c.image->channels_first) j["image"]["channels_first"] = true;
  }
  if (c.attention)
    j["attention"] = {
        {"v", c.attention->v}, {"heads", c.attention->heads}, {"scale", c.attention->scale}};
  for (const VendorStep& s : c.then) {
    Json step = {{"op", name_of(s.op)}};
    if (has_operand(s.op)) step["tensor"] = s.tensor;
    if (s.alpha != 0) step["alpha"] = s.alpha;
    if (s.beta != 0) step["beta"] = s.beta;
    j["then"].push_back(std::move(step));
  }
  return j.dump();
}

std::string fault_of_types(const VendorCall& call, DType x, DType w, DType y) {
  const bool f32 = x == DType::kF32 && w == DType::kF32 && y == DType::kF32;
  const bool bf16 =
      x == DType::kBF16 && w == DType::kBF16 && (y == DType::kF32 || y == DType::kBF16);
  const bool int8 = x == DType::kU8 && w == DType::kI8 && (y == DType::kF32 || y == DType::kI32);
  if (!f32 && !bf16 && !int8)
    return fmt::format("it multiplies no {} and {} to {}", name_of(x), name_of(w), name_of(y));
  // Steps are computed in f32, which has not all values of i32.
  if (y == DType::kI32 && !call.then.empty())
    return "it computes in f32 what follows its sums, which are integers to the end";
  return {};
}

std::string fault_of_groups(const VendorCall& call, const KernelContract& contract) {
  if (!call.image || call.image->groups == 1 || call.image->groups == call.n) return {};
  uint32_t number = 0;
  for (const KernelArgument& a : contract.arguments) {
    if (a.kind != KernelArgument::Kind::kTensor) continue;
    for (const VendorStep& s : call.then)
      if (has_operand(s.op) && s.tensor == number && a.dims.size() > 1)
        return "it is wrong about tensors behind a convolution in groups";
    ++number;
  }
  return {};
}

VendorCall vendor_call_of(const std::string& json) {
  try {
    return read(Json::parse(json));
  } catch (const Json::exception&) {  // its text quotes the file's, at any length
    corrupt("it is no valid JSON, or a value of it has another type");
  }
}

std::vector<uint8_t> unpack_panels(const VendorCall& call, DType type, const uint8_t* packed) {
  NIMBLE_CHECK(call.panel, "weights that are in no panels");
  const auto size = static_cast<int64_t>(size_of(type));
  const int64_t groups = call.image ? call.image->groups : 1, per_group = call.n / groups;
  const int64_t width = call.panel->width, side = call.panel->group;
  const int64_t panels = (per_group + width - 1) / width;
  const int64_t panel_elements = (call.k + side - 1) / side * side * width;
  std::vector<uint8_t> out(static_cast<size_t>(call.k * call.n * size));
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t first = p * width, count = std::min(width, per_group - first);
      const uint8_t* panel = packed + (g * panels + p) * panel_elements * size;
      for (int64_t row = 0; row < call.k; ++row) {
        uint8_t* to = out.data() + (row * call.n + g * per_group + first) * size;
        const uint8_t* from = panel + (row / side * width * side + row % side) * size;
        if (side == 1)
          std::memcpy(to, from, static_cast<size_t>(count * size));
        else
          for (int64_t c = 0; c < count; ++c)
            std::memcpy(to + c * size, from + c * side * size, static_cast<size_t>(size));
      }
    }
  return out;
}

}  // namespace nimble::exec
