#include "compiler/kernels/template.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include "compiler/kernels/templates/attention.h"
#include "compiler/kernels/templates/batch_matmul.h"
#include "compiler/kernels/templates/conv2d.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/elementwise.h"
#include "compiler/kernels/templates/pool2d.h"
#include "compiler/kernels/templates/recurrent.h"
#include "compiler/kernels/templates/reduce.h"
#include "compiler/kernels/templates/scan.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace {

// Configurations are flat objects of integers and plain strings, so a reader of exactly that is
// stricter than a general one: what it accepts, to_json() writes back unchanged.
class ConfigReader {
 public:
  explicit ConfigReader(const std::string& text) : text_(text) {}

  Config read() {
    Config c;
    expect('{');
    skip();
    if (peek() == '}') {
      ++at_;
    } else {
      while (true) {
        std::string name = quoted();
        expect(':');
        skip();
        KnobValue value;
        if (peek() == '"') {
          value = quoted();
        } else {
          value = integer();
        }
        if (!c.emplace(name, std::move(value)).second)
          fail(fmt::format("\"{}\" stands twice", name));
        skip();
        if (peek() == ',') {
          ++at_;
          continue;
        }
        expect('}');
        break;
      }
    }
    skip();
    if (at_ != text_.size()) fail("text after the closing brace");
    return c;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(Status::kCorrupt, fmt::format("configuration at column {}", at_ + 1), problem,
                "give a JSON object of integers and strings, such as {\"unroll\":4}");
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() {
    while (std::isspace(static_cast<unsigned char>(peek()))) ++at_;
  }
  void expect(char c) {
    skip();
    if (peek() != c) fail(fmt::format("expected '{}'", c));
    ++at_;
  }
  std::string quoted() {
    expect('"');
    std::string out;
    while (peek() != '"') {
      const char c = peek();
      if (c == '\\' || static_cast<unsigned char>(c) < 0x20) fail("a string without its end");
      out += c;
      ++at_;
    }
    ++at_;
    return out;
  }
  int64_t integer() {
    int64_t v = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), v);
    if (error != std::errc()) fail("expected an integer or a string");
    at_ += static_cast<size_t>(end - begin);
    return v;
  }

  const std::string& text_;
  size_t at_ = 0;
};

const KnobValue& knob(const Config& c, const std::string& name) {
  const auto it = c.find(name);
  if (it == c.end())
    throw Error(Status::kInvalidArgument, "configuration " + to_json(c),
                fmt::format("has no knob \"{}\"", name), "tune this workload again");
  return it->second;
}

}  // namespace

std::string to_json(const Config& c) {
  std::string out = "{";
  for (const auto& [name, value] : c) {
    if (out.size() > 1) out += ',';
    out += fmt::format("\"{}\":", name);
    if (const auto* number = std::get_if<int64_t>(&value)) {
      out += fmt::format("{}", *number);
    } else {
      out += fmt::format("\"{}\"", std::get<std::string>(value));
    }
  }
  return out + "}";
}

Config config_from_json(const std::string& text) {
  return ConfigReader(text).read();
}

int64_t knob_int(const Config& c, const std::string& name) {
  const auto* v = std::get_if<int64_t>(&knob(c, name));
  if (v == nullptr)
    throw Error(Status::kInvalidArgument, "configuration " + to_json(c),
                fmt::format("knob \"{}\" is not an integer", name), "tune this workload again");
  return *v;
}

const std::string& knob_text(const Config& c, const std::string& name) {
  const auto* v = std::get_if<std::string>(&knob(c, name));
  if (v == nullptr)
    throw Error(Status::kInvalidArgument, "configuration " + to_json(c),
                fmt::format("knob \"{}\" is not a string", name), "tune this workload again");
  return *v;
}

const std::vector<const Template*>& all_templates() {
  static const std::vector<const Template*> all = [] {
    std::vector<const Template*> list;
#define NIMBLE_TEMPLATE(class_name)         \
  static const class_name class_name##_one; \
  list.push_back(&class_name##_one);
#include "compiler/kernels/Templates.def"
#undef NIMBLE_TEMPLATE
    return list;
  }();
  return all;
}

const Template* find_template(std::string_view name) {
  for (const Template* t : all_templates())
    if (t->name() == name) return t;
  return nullptr;
}

const Template* template_for(const Workload& w, const TargetInfo& target) {
  for (const Template* t : all_templates())
    if (t->accepts(w, target)) return t;
  return nullptr;
}

}  // namespace nimble::kernels
