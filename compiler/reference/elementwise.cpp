// Reference functions of the element-wise operators: one line of mathematics each.
#include <algorithm>
#include <cmath>
#include <map>

#include "compiler/reference/operand.h"

namespace nimble::reference {
namespace {

using Unary = double (*)(double);

uint64_t u(int64_t x) {
  return static_cast<uint64_t>(x);
}

double gelu(double x) {
  return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
}
double gelu_tanh(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

const std::map<std::string, Unary>& unary_table() {
  static const std::map<std::string, Unary> kTable = {
      {"neg", [](double x) { return -x; }},
      {"abs", [](double x) { return std::fabs(x); }},
      {"exp", [](double x) { return std::exp(x); }},
      {"log", [](double x) { return std::log(x); }},
      {"sqrt", [](double x) { return std::sqrt(x); }},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
      {"reciprocal", [](double x) { return 1 / x; }},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"erf", [](double x) { return std::erf(x); }},
      {"relu", [](double x) { return x > 0           ? x
                                     : std::isnan(x) ? x
                                                     : 0.0; }},
      {"gelu", gelu},
      {"gelu_tanh", gelu_tanh},
      {"softplus", [](double x) { return x > 30 ? x : std::log1p(std::exp(x)); }},
      {"floor", [](double x) { return std::floor(x); }},
      {"ceil", [](double x) { return std::ceil(x); }},
      {"round", [](double x) { return std::nearbyint(x); }},
      {"sin", [](double x) { return std::sin(x); }},
      {"cos", [](double x) { return std::cos(x); }},
      {"atan", [](double x) { return std::atan(x); }},
      {"trunc", [](double x) { return std::trunc(x); }},
  };
  return kTable;
}

std::vector<Array> unary(const OpCall& c) {
  Array y = c.result();
  Unary f = unary_table().at(c.e.op);
  for (int64_t k = 0; k < y.size(); ++k) {
    auto s = static_cast<size_t>(k);
    if (y.floating()) {
      y.f[s] = f(c.in[0].number(k));
    } else {  // integers: exact for those operators that keep integers
      const int64_t x = c.in[0].i[s];
      const bool negative = x < 0 && y.dtype != DType::kU64;
      const auto minus_x = static_cast<int64_t>(0 - u(x));
      y.i[s] = c.e.op == "neg"    ? minus_x
               : c.e.op == "abs"  ? (negative ? minus_x : x)
               : c.e.op == "relu" ? (negative ? 0 : x)
                                  : static_cast<int64_t>(f(static_cast<double>(x)));
    }
  }
  return {y};
}

std::vector<Array> leaky_relu(const OpCall& c) {
  Array y = c.result();
  auto alpha = ir::attr<double>(c.e.attrs, "alpha");
  for (int64_t k = 0; k < y.size(); ++k) {
    double x = c.in[0].number(k);
    y.f[static_cast<size_t>(k)] = x >= 0 ? x : alpha * x;
  }
  return {y};
}

int64_t to_integer(double x, DType t) {
  if (std::isnan(x)) return 0;
  int bits = static_cast<int>(size_of(t)) * 8;
  double low = is_unsigned_int(t) ? 0 : -std::ldexp(1.0, bits - 1);
  double high = std::ldexp(1.0, is_unsigned_int(t) ? bits : bits - 1);
  if (x <= low)
    return is_unsigned_int(t) ? 0 : bits == 64 ? INT64_MIN : -(int64_t{1} << (bits - 1));
  if (x >= high)
    return bits == 64 ? (is_unsigned_int(t) ? -1 : INT64_MAX)
                      : (int64_t{1} << (is_unsigned_int(t) ? bits : bits - 1)) - 1;
  if (t == DType::kU64) return static_cast<int64_t>(static_cast<uint64_t>(x));
  return static_cast<int64_t>(x);
}

std::vector<Array> clip(const OpCall& c) {
  Array y = c.result();
  double low = ir::attr_or<double>(c.e.attrs, "min", -INFINITY);
  double high = ir::attr_or<double>(c.e.attrs, "max", INFINITY);
  for (int64_t k = 0; k < y.size(); ++k) {
    const auto at = static_cast<size_t>(k);
    if (y.floating())
      y.f[at] = std::min(std::max(c.in[0].number(k), low), high);
    else if (is_unsigned_int(y.dtype))  // not by way of doubles, which have 53 bits
      y.i[at] = static_cast<int64_t>(std::min(
          std::max(u(c.in[0].i[at]), u(to_integer(low, y.dtype))), u(to_integer(high, y.dtype))));
    else
      y.i[at] =
          std::min(std::max(c.in[0].i[at], to_integer(low, y.dtype)), to_integer(high, y.dtype));
  }
  return {y};
}

std::vector<Array> cast(const OpCall& c) {
  Array y = c.result();
  const Array& x = c.in[0];
  for (int64_t k = 0; k < y.size(); ++k) {
    auto s = static_cast<size_t>(k);
    if (y.floating())
      y.f[s] =
          x.dtype == DType::kU64 ? static_cast<double>(static_cast<uint64_t>(x.i[s])) : x.number(k);
    else if (y.dtype == DType::kBool)
      y.i[s] = x.number(k) != 0;
    else
      y.i[s] = x.floating() ? to_integer(x.f[s], y.dtype) : x.i[s];
  }
  return {y};
}

std::vector<Array> logical_not(const OpCall& c) {
  Array y = c.result();
  for (size_t k = 0; k < y.i.size(); ++k) y.i[k] = c.in[0].i[k] == 0;
  return {y};
}

// What a binary operator does to floats, to integers that a signed one of 64 bits holds, and to
// u64.
struct BinaryRule {
  double (*number)(double, double);
  int64_t (*integer)(int64_t, int64_t);
  uint64_t (*natural)(uint64_t, uint64_t);
};

// The rule that a generic lambda gives.
template <class F>
BinaryRule rule_of(F) {
  return {[](double a, double b) { return static_cast<double>(F{}(a, b)); },
          [](int64_t a, int64_t b) { return static_cast<int64_t>(F{}(a, b)); },
          [](uint64_t a, uint64_t b) { return static_cast<uint64_t>(F{}(a, b)); }};
}

// Integers wrap.
double wrapping(double x) {
  return x;
}
uint64_t wrapping(int64_t x) {
  return u(x);
}
uint64_t wrapping(uint64_t x) {
  return x;
}

double divide(double a, double b) {
  return a / b;
}
uint64_t divide(uint64_t a, uint64_t b) {
  return b == 0 ? 0 : a / b;
}
int64_t divide(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? static_cast<int64_t>(0 - u(a)) : a / b;
}

double modulo(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
uint64_t modulo(uint64_t a, uint64_t b) {
  return b == 0 ? 0 : a % b;
}
int64_t modulo(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

double power(double a, double b) {
  return std::pow(a, b);
}
uint64_t power(uint64_t a, uint64_t b) {
  uint64_t out = 1;
  for (; b; b >>= 1, a *= a)
    if (b & 1) out *= a;
  return out;
}
int64_t power(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  return static_cast<int64_t>(power(u(a), u(b)));
}

const std::map<std::string, BinaryRule>& binary_table() {
  static const std::map<std::string, BinaryRule> kTable = {
      {"add", rule_of([](auto a, auto b) { return wrapping(a) + wrapping(b); })},
      {"sub", rule_of([](auto a, auto b) { return wrapping(a) - wrapping(b); })},
      {"mul", rule_of([](auto a, auto b) { return wrapping(a) * wrapping(b); })},
      {"div", rule_of([](auto a, auto b) { return divide(a, b); })},
      {"mod", rule_of([](auto a, auto b) { return modulo(a, b); })},
      {"pow", rule_of([](auto a, auto b) { return power(a, b); })},
      {"maximum", rule_of([](auto a, auto b) { return a > b || a != a ? a : b; })},
      {"minimum", rule_of([](auto a, auto b) { return a < b || a != a ? a : b; })},
      {"equal", rule_of([](auto a, auto b) { return a == b; })},
      {"not_equal", rule_of([](auto a, auto b) { return a != b; })},
      {"less", rule_of([](auto a, auto b) { return a < b; })},
      {"less_equal", rule_of([](auto a, auto b) { return a <= b; })},
      {"greater", rule_of([](auto a, auto b) { return a > b; })},
      {"greater_equal", rule_of([](auto a, auto b) { return a >= b; })},
      {"and", rule_of([](auto a, auto b) { return a != 0 && b != 0; })},
      {"or", rule_of([](auto a, auto b) { return a != 0 || b != 0; })},
  };
  return kTable;
}

std::vector<Array> binary(const OpCall& c) {
  Array y = c.result();
  const BinaryRule& rule = binary_table().at(c.e.op);
  const Array &a = c.in[0], &b = c.in[1];
  for_each(y.shape, [&](const Shape& at, int64_t flat) {
    int64_t ka = broadcast_offset(a.shape, at), kb = broadcast_offset(b.shape, at);
    auto to = static_cast<size_t>(flat);
    if (a.floating()) {
      double v = rule.number(a.number(ka), b.number(kb));
      if (y.floating())
        y.f[to] = v;
      else
        y.i[to] = static_cast<int64_t>(v);
    } else {
      const int64_t p = a.i[static_cast<size_t>(ka)], q = b.i[static_cast<size_t>(kb)];
      y.i[to] = a.dtype == DType::kU64 ? static_cast<int64_t>(rule.natural(u(p), u(q)))
                                       : rule.integer(p, q);
    }
  });
  return {y};
}

std::vector<Array> bitwise(const OpCall& c) {
  Array y = c.result();
  const Array &a = c.in[0], &b = c.in[1];
  const auto width = static_cast<uint64_t>(8 * size_of(y.dtype));
  const std::string& op = c.e.op;
  for_each(y.shape, [&](const Shape& at, int64_t flat) {
    const int64_t x = a.i[static_cast<size_t>(broadcast_offset(a.shape, at))];
    const int64_t k = b.i[static_cast<size_t>(broadcast_offset(b.shape, at))];
    const bool gone = u(k) >= width;
    const uint64_t v = op == "bitwise_and"      ? u(x) & u(k)
                       : op == "bitwise_or"     ? u(x) | u(k)
                       : op == "bitwise_xor"    ? u(x) ^ u(k)
                       : op == "shift_left"     ? (gone ? 0 : u(x) << k)
                       : is_signed_int(y.dtype) ? u(x >> (gone ? 63 : k))
                                                : (gone ? 0 : u(x) >> k);
    y.i[static_cast<size_t>(flat)] = static_cast<int64_t>(v);
  });
  return {y};
}

// Philox 4x32-10, as published: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1,
// 2, 3", SC11.
uint64_t philox(uint64_t index, uint64_t stream, uint64_t key) {
  uint32_t x[] = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                  static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  uint32_t k[] = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * x[0], b = uint64_t{0xCD9E8D57} * x[2];
    const uint32_t next[] = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ k[0], static_cast<uint32_t>(b),
                             static_cast<uint32_t>(a >> 32) ^ x[3] ^ k[1],
                             static_cast<uint32_t>(a)};
    std::copy(std::begin(next), std::end(next), x);
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return x[0] | uint64_t{x[1]} << 32;
}

std::vector<Array> random_bits(const OpCall& c) {
  Array y = c.result();
  const auto key = static_cast<uint64_t>(ir::attr<int64_t>(c.e.attrs, "key"));
  for_each(y.shape, [&](const Shape& at, int64_t flat) {
    const auto operand = [&](size_t k) {
      return u(c.in[k].i[static_cast<size_t>(broadcast_offset(c.in[k].shape, at))]);
    };
    y.i[static_cast<size_t>(flat)] = static_cast<int64_t>(philox(operand(0), operand(1), key));
  });
  return {y};
}

std::vector<Array> where(const OpCall& c) {
  Array y = c.result();
  for_each(y.shape, [&](const Shape& at, int64_t flat) {
    bool yes = c.in[0].i[static_cast<size_t>(broadcast_offset(c.in[0].shape, at))] != 0;
    const Array& from = c.in[yes ? 1 : 2];
    y.copy(flat, from, broadcast_offset(from.shape, at));
  });
  return {y};
}

std::vector<Array> batch_norm(const OpCall& c) {
  Array y = c.result();
  auto epsilon = ir::attr<double>(c.e.attrs, "epsilon");
  for_each(y.shape, [&](const Shape& at, int64_t flat) {
    auto ch = static_cast<size_t>(at[1]);
    double x = c.in[0].f[static_cast<size_t>(flat)];
    y.f[static_cast<size_t>(flat)] =
        (x - c.in[3].f[ch]) / std::sqrt(c.in[4].f[ch] + epsilon) * c.in[1].f[ch] + c.in[2].f[ch];
  });
  return {y};
}

std::vector<Array> full(const OpCall& c) {
  Array y = c.result();
  double value = ir::attr_or<double>(c.e.attrs, "value", 0.0);
  for (int64_t k = 0; k < y.size(); ++k) {
    auto s = static_cast<size_t>(k);
    if (!c.in.empty())
      y.floating()
          ? void(y.f[s] = c.in[0].number(0))
          : void(y.i[s] = c.in[0].floating() ? static_cast<int64_t>(c.in[0].f[0]) : c.in[0].i[0]);
    else
      y.floating() ? void(y.f[s] = value) : void(y.i[s] = static_cast<int64_t>(value));
  }
  return {y};
}

}  // namespace

ReferenceFunction find_elementwise(const std::string& op) {
  if (unary_table().count(op)) return unary;
  if (binary_table().count(op)) return binary;
  static const std::map<std::string, ReferenceFunction> kOthers = {
      {"leaky_relu", leaky_relu},  {"clip", clip},           {"cast", cast},
      {"not", logical_not},        {"where", where},         {"batch_norm", batch_norm},
      {"bitwise_and", bitwise},    {"bitwise_or", bitwise},  {"bitwise_xor", bitwise},
      {"shift_left", bitwise},     {"shift_right", bitwise}, {"full", full},
      {"random_bits", random_bits}};
  auto it = kOthers.find(op);
  return it == kOthers.end() ? nullptr : it->second;
}

}  // namespace nimble::reference
