// What a relation says of a call, by itself: no module around it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/op.h"
#include "vm/base/error.h"

namespace nimble::ir {

using Dims = std::vector<Dim>;
using Ints = std::vector<int64_t>;

struct Demand {
  Dim a, b;
};
struct Outcome {
  bool refused = false;
  std::string message;
  Type type;
  std::optional<Dims> contents;
  std::vector<Demand> demands;
};

inline Outcome relate(const std::string& op, std::vector<Type> inputs, Attrs attrs = {},
                      std::map<size_t, Dims> contents = {}) {
  Outcome out;
  std::vector<Atom> args;
  for (const Type& t : inputs) args.push_back(Atom(make_var("x", t)));
  const ExprRef call = make_call(op, args, attrs);
  const OpInfo* info = find_op(op);
  EXPECT_NE(info, nullptr) << op;
  EXPECT_EQ(check_call(*info, *call), "");
  DimContext facts;
  RelationContext c{*call,
                    inputs,
                    facts,
                    [&](size_t i) -> const Dims* {
                      auto it = contents.find(i);
                      return it == contents.end() ? nullptr : &it->second;
                    },
                    [&](const Dim& a, const Dim& b, const std::string& what) {
                      const Proof p = facts.equal(a, b);
                      if (p == Proof::kNo) throw Error(Status::kInvalidArgument, "", what);
                      if (p == Proof::kUnknown) {
                        out.demands.push_back({a, b});
                        facts.assume_equal(a, b);
                      }
                    },
                    [] { return Dim::symbol(fresh_symbol()); }};
  try {
    RelationResult r = info->relation(c);
    out.type = r.type;
    out.contents = r.contents;
  } catch (const Error& e) {
    out.refused = true;
    out.message = e.what();
  }
  return out;
}

inline Type f32(Dims dims) {
  return tensor_type(std::move(dims), DType::kF32);
}
inline Type i64(Dims dims) {
  return tensor_type(std::move(dims), DType::kI64);
}

}  // namespace nimble::ir
