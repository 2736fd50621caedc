// Run-time values of the reference interpreter: how they are made, let go and printed.
#include "compiler/ir/text.h"
#include "compiler/reference/reference.h"

namespace nimble::reference {
namespace {

std::string text_of(const Value& v, int depth) {
  constexpr int kMaxDepth = 500;
  if (depth > kMaxDepth) return "…";
  if (v.failure) return "failed";
  if (v.tensor) return ir::print(*v.tensor);
  if (v.function) return "fn";
  std::string fields;
  for (const ValueRef& f : v.fields)
    fields += (fields.empty() ? "" : ", ") + text_of(*f, depth + 1);
  if (v.constructor.empty()) return "(" + fields + (v.fields.size() == 1 ? ",)" : ")");
  return v.constructor + (v.fields.empty() ? "" : "(" + fields + ")");
}

}  // namespace

ValueRef value_of(ir::TensorRef t) {
  auto v = std::make_shared<Value>();
  v->tensor = std::move(t);
  return v;
}

ValueRef tuple_of(std::vector<ValueRef> fields) {
  auto v = std::make_shared<Value>();
  v->fields = std::move(fields);
  return v;
}

ValueRef construct(std::string constructor, std::vector<ValueRef> fields) {
  auto v = std::make_shared<Value>();
  v->constructor = std::move(constructor);
  v->fields = std::move(fields);
  return v;
}

// The last owner of a long list would otherwise recurse once per element.
Value::~Value() {
  std::vector<ValueRef> orphans;
  auto take = [&](Value& v) {
    for (auto* list : {&v.fields, &v.first}) {
      for (ValueRef& x : *list) orphans.push_back(std::move(x));
      list->clear();
    }
    for (auto& [var, x] : v.captured) orphans.push_back(std::move(x));
    v.captured.clear();
  };
  take(*this);
  while (!orphans.empty()) {
    ValueRef v = std::move(orphans.back());
    orphans.pop_back();
    // Nobody else can see it: it is taken apart before its own destructor runs.
    if (v && v.use_count() == 1) take(const_cast<Value&>(*v));
  }
}

std::string str(const ValueRef& v) {
  return text_of(*v, 0);
}

}  // namespace nimble::reference
