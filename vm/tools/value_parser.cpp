// Reads values. A value of data types may be a list of a million cells, so constructors that are
// open stand on a stack of the parser's own; nothing recurses.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "vm/base/error.h"
#include "vm/base/file.h"
#include "vm/tools/tensor_reader.h"
#include "vm/tools/value_text.h"

namespace nimble {
namespace {

using api::Type;
using api::Value;

class Parser : public TensorReader {
 public:
  Parser(std::string_view text, const std::string& place, const std::string& folder,
         const std::vector<Type>& types)
      : TensorReader(text, place, folder), types_(types) {}

  Value value(uint32_t root) {
    labels_.clear();
    std::vector<Open> open;
    uint32_t type = root;
    while (true) {  // a value of `type` begins here
      skip();
      const std::optional<Label> label = read_label();
      Value v;
      if (label && !label->defines) {
        v = labelled(*label, type);
      } else if (types_[type].kind == NIMBLE_TYPE_TENSOR) {
        v = tensor(types_[type]);
        if (label) define(*label, type, v);
      } else {
        Open next{type, at_, read_tag(types_[type]), {}, label};
        const size_t fields = constructor(next).fields.size();
        const bool parenthesis = peek() == '(';
        if (parenthesis) ++at_;
        if (fields > 0) {
          if (!parenthesis)
            fail(at_, fmt::format("{} has {} fields", name_of(next), fields),
                 fmt::format("write \"(\" and the fields at once after it: {}", shape_of(next)));
          type = constructor(next).fields[0];
          open.push_back(std::move(next));
          continue;
        }
        if (parenthesis) close(next);
        v = Value::data(next.tag);
        if (label) define(*label, type, v);
      }
      // `v` is complete, and with it perhaps what it is a part of.
      while (true) {
        if (open.empty()) return v;
        Open& top = open.back();
        top.fields.push_back(std::move(v));
        skip();
        const std::vector<uint32_t>& wanted = constructor(top).fields;
        if (top.fields.size() < wanted.size()) {
          if (peek() != ',')
            fail(at_,
                 at_ == text_.size()
                     ? fmt::format("the text ends inside {} of {}", name_of(top), where(top.begin))
                     : fmt::format("after field {} of {} stands {}", top.fields.size(),
                                   name_of(top), next_text()),
                 fmt::format("write {}", shape_of(top)));
          ++at_;
          type = wanted[top.fields.size()];
          break;
        }
        if (peek() == ',') ++at_;  // as in "(x,)"
        close(top);
        v = Value::data(top.tag, top.fields);
        if (top.label) define(*top.label, top.type, v);
        open.pop_back();
      }
    }
  }

 private:
  struct Label {
    int64_t number;
    bool defines;
    size_t begin;
  };
  // A constructor or tuple whose fields are being read.
  struct Open {
    uint32_t type;
    size_t begin;
    int64_t tag;
    std::vector<Value> fields;
    std::optional<Label> label;
  };

  const Type::Constructor& constructor(const Open& o) const {
    return types_[o.type].constructors[static_cast<size_t>(o.tag)];
  }
  std::string name_of(const Open& o) const {
    const std::string& name = constructor(o).name;
    return name.empty() ? "the tuple" : name;
  }
  std::string shape_of(const Type::Constructor& c) const {
    std::string fields;
    for (uint32_t f : c.fields) fields += (fields.empty() ? "" : ", ") + types_[f].name;
    if (c.name.empty()) return "(" + fields + (c.fields.size() == 1 ? ",)" : ")");
    return c.name + (fields.empty() ? "" : "(" + fields + ")");
  }
  std::string shape_of(const Open& o) const { return shape_of(constructor(o)); }

  void close(const Open& o) {
    skip();
    if (peek() != ')') {
      const size_t fields = constructor(o).fields.size();
      fail(at_,
           at_ == text_.size()
               ? fmt::format("the text ends inside {} of {}", name_of(o), where(o.begin))
               : fmt::format("after the {} of {} stands {}",
                             fields == 1 ? "one field" : fmt::format("{} fields", fields),
                             name_of(o), next_text()),
           fmt::format("write {}", shape_of(o)));
    }
    ++at_;
  }

  // The tag of the constructor whose name stands here; of a tuple 0, and its "(" is left.
  int64_t read_tag(const Type& type) {
    const size_t begin = at_;
    const std::string_view name = identifier();
    for (size_t tag = 0; tag < type.constructors.size(); ++tag)
      if (type.constructors[tag].name == name && (!name.empty() || peek() == '('))
        return static_cast<int64_t>(tag);
    at_ = begin;
    std::string all;
    for (const Type::Constructor& c : type.constructors)
      all += (all.empty() ? "" : " or ") + shape_of(c);
    fail(begin, fmt::format("{} stands where {} belongs", next_text(), type.name), "write " + all);
  }

  // ---- labels ------------------------------------------------------------------------------

  std::optional<Label> read_label() {
    if (peek() != '#') return std::nullopt;
    const size_t begin = at_++;
    const int64_t number = whole(INT64_MAX);
    const bool defines = peek() == '=';
    if (defines) ++at_, skip();
    return Label{number, defines, begin};
  }
  void define(const Label& label, uint32_t type, const Value& v) {
    if (!labels_.try_emplace(label.number, type, v).second)
      fail(label.begin, fmt::format("label #{} has a value already", label.number),
           "take another number");
  }
  Value labelled(const Label& label, uint32_t type) const {
    const auto found = labels_.find(label.number);
    if (found == labels_.end())
      fail(label.begin, fmt::format("nothing before is labelled #{}", label.number),
           fmt::format("write #{}= before the part that is meant", label.number));
    if (found->second.first != type)
      fail(label.begin,
           fmt::format("#{} is a {} where {} belongs", label.number,
                       types_[found->second.first].name, types_[type].name),
           "use a label for values of one type");
    return found->second.second;
  }

  const std::vector<Type>& types_;
  std::map<int64_t, std::pair<uint32_t, Value>> labels_;  // of the value being read
};

}  // namespace

std::vector<api::Value> parse_values(std::string_view text, const std::string& place,
                                     const std::string& folder, const std::vector<api::Type>& types,
                                     int32_t type) {
  Parser parser(text, place, folder, types);
  std::vector<api::Value> all;
  while (!parser.at_end()) all.push_back(parser.value(static_cast<uint32_t>(type)));
  return all;
}

std::vector<api::Value> read_values(const std::string& reference,
                                    const std::vector<api::Type>& types, int32_t type) {
  std::string path = reference;
  std::optional<size_t> index;
  if (const size_t bracket = path.rfind('['); path.ends_with("]")) {
    size_t n = 0;
    const char* end = path.data() + path.size() - 1;
    const auto [stop, code] = std::from_chars(path.data() + bracket + 1, end, n);
    if (code == std::errc() && stop == end) {
      index = n;
      path.resize(bracket);
    }
  }
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  std::vector<api::Value> all = parse_values(read_text_file(path), path, folder, types, type);
  if (all.empty())
    throw Error(Status::kInvalidArgument, path, "it holds no value",
                fmt::format("write values of the type {}", types[static_cast<size_t>(type)].name));
  if (!index) return all;
  if (*index >= all.size())
    throw Error(Status::kInvalidArgument, path, fmt::format("it has no value {}", *index),
                fmt::format("give an index from 0 to {}", all.size() - 1));
  return {all[*index]};
}

}  // namespace nimble
