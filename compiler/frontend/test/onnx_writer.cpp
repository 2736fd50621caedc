#include "compiler/frontend/test/onnx_writer.h"

#include <cstring>

namespace nimble::frontend::proto {
namespace {

std::string key(uint32_t field, uint32_t type) {
  return varint(uint64_t{field} << 3 | type);
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string tensor_head(const std::string& name, const std::vector<int64_t>& dims, int type) {
  std::string out;
  for (int64_t d : dims) out += integer(1, d);
  return out + integer(2, type) + bytes(8, name);
}

}  // namespace

std::string varint(uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  return out + static_cast<char>(v);
}

std::string integer(uint32_t field, int64_t v) {
  return key(field, 0) + varint(static_cast<uint64_t>(v));
}

std::string bytes(uint32_t field, std::string_view v) {
  return key(field, 2) + varint(v.size()) + std::string(v);
}

std::string fixed32(uint32_t field, float v) {
  return key(field, 5) + std::string(reinterpret_cast<const char*>(&v), sizeof v);
}

std::string attribute(const std::string& name, int64_t v) {
  return bytes(5, bytes(1, name) + integer(3, v) + integer(20, 2));
}
std::string attribute(const std::string& name, float v) {
  return bytes(5, bytes(1, name) + fixed32(2, v) + integer(20, 1));
}
std::string attribute(const std::string& name, const std::string& v) {
  return bytes(5, bytes(1, name) + bytes(4, v) + integer(20, 3));
}
std::string attribute(const std::string& name, const std::vector<int64_t>& v) {
  std::string out = bytes(1, name);
  for (int64_t i : v) out += integer(8, i);
  return bytes(5, out + integer(20, 7));
}
std::string attribute(const std::string& name, const std::vector<std::string>& v) {
  std::string out = bytes(1, name);
  for (const std::string& s : v) out += bytes(9, s);
  return bytes(5, out + integer(20, 8));
}

static std::string graph(const GraphParts& g) {
  std::string out;
  for (const std::string& n : g.nodes) out += bytes(1, n);
  out += bytes(2, "g");
  for (const std::string& t : g.initialisers) out += bytes(5, t);
  for (const std::string& v : g.inputs) out += bytes(11, v);
  for (const std::string& v : g.outputs) out += bytes(12, v);
  return out;
}

std::string attribute(const std::string& name, const GraphParts& v) {
  return bytes(5, bytes(1, name) + bytes(6, graph(v)) + integer(20, 5));
}

std::string node(const std::string& op, const std::vector<std::string>& inputs,
                 const std::vector<std::string>& outputs, const std::string& attributes,
                 const std::string& name, const std::string& domain) {
  std::string out;
  for (const std::string& i : inputs) out += bytes(1, i);
  for (const std::string& o : outputs) out += bytes(2, o);
  if (!name.empty()) out += bytes(3, name);
  out += bytes(4, op) + attributes;
  if (!domain.empty()) out += bytes(7, domain);
  return out;
}

std::string tensor(const std::string& name, const std::vector<int64_t>& dims,
                   const std::vector<float>& values) {
  return tensor_head(name, dims, 1) + bytes(9, raw(values));
}
std::string tensor(const std::string& name, const std::vector<int64_t>& dims,
                   const std::vector<int64_t>& values) {
  return tensor_head(name, dims, 7) + bytes(9, raw(values));
}
std::string external_tensor(const std::string& name, const std::vector<int64_t>& dims,
                            const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = tensor_head(name, dims, 1);
  for (const auto& [k, v] : entries) out += bytes(13, bytes(1, k) + bytes(2, v));
  return out + integer(14, 1);
}

std::string value(const std::string& name, const std::vector<std::string>& dims, int type) {
  std::string shape;
  for (const std::string& d : dims) {
    if (d.empty())
      shape += bytes(1, "");
    else if (d[0] == '-' || std::isdigit(static_cast<unsigned char>(d[0])))
      shape += bytes(1, integer(1, std::stoll(d)));
    else
      shape += bytes(1, bytes(2, d));
  }
  return bytes(1, name) + bytes(2, bytes(1, integer(1, type) + bytes(2, shape)));
}

std::string unshaped(const std::string& name, int type) {
  return bytes(1, name) + bytes(2, bytes(1, integer(1, type)));
}

std::string model(const GraphParts& g, int64_t opset, const std::string& extra) {
  return integer(1, 8) + bytes(7, graph(g)) + bytes(8, integer(2, opset)) + extra;
}

}  // namespace nimble::frontend::proto
