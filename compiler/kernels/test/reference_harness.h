// Checks a template against the reference interpreter: a workload's own operators are evaluated
// one by one on the data that its kernels run on. By default these run on the kernel IR's
// interpreter, which checks every access as well.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/template.h"
#include "compiler/kernels/test/argument_memory.h"
#include "compiler/reference/reference.h"
#include "vm/base/half.h"

namespace nimble::kernels {

// What runs a kernel: made once, called at many sizes.
using Execute = std::function<int32_t(std::span<const std::span<std::byte>> buffers,
                                      std::span<const int64_t> symbols, int threads)>;

// How tests run. Another program that includes them may run machine code, in fewer configurations.
struct HarnessMode {
  std::function<Execute(const kir::Function& f, const TargetInfo& target)> prepare =
      [](const kir::Function& f, const TargetInfo&) -> Execute {
    const auto interpreter = std::make_shared<kir::Interpreter>(f);
    return [interpreter](auto buffers, auto symbols, int threads) {
      return interpreter->run(buffers, symbols, threads);
    };
  };
  std::function<bool(const std::string& level)> runs = [](const std::string&) { return true; };
  int most_configurations = 50;
};
inline HarnessMode& harness_mode() {
  static HarnessMode mode;
  return mode;
}

// A random configuration that the template calls valid.
inline Config random_config(const Template& t, const Workload& w, const TargetInfo& target,
                            std::mt19937& random) {
  const std::vector<Knob> knobs = t.knobs(w, target);
  for (int attempt = 0; attempt < 10000; ++attempt) {
    Config c;
    for (const Knob& k : knobs) c[k.name] = k.choices[random() % k.choices.size()];
    if (t.valid(w, c, target)) return c;
  }
  ADD_FAILURE() << "no valid configuration in 10000 samples";
  return t.default_config(w, target);
}

class ReferenceHarness {
 public:
  ReferenceHarness(Workload w, const TargetInfo& target)
      : w_(std::move(w)), target_(target), template_(template_for(w_, target_)) {}

  const Workload& workload() const { return w_; }
  const Template* chosen() const { return template_; }

  // Lowers a configuration; its kernels must be well formed.
  void lower(const Config& c) {
    lowered_ = template_->lower(w_, c, target_, "kernel");
    ASSERT_EQ(lowered_.tails.verify(static_cast<uint32_t>(w_.contract.symbols.size()),
                                    static_cast<uint32_t>(lowered_.functions.size())),
              "");
    kernels_.clear();
    for (const kir::Function& f : lowered_.functions) {
      ASSERT_EQ(kir::verify(f), "") << kir::print(f);
      kernels_.push_back(harness_mode().prepare(f, target_));
    }
  }

  // Runs on random data with these values of the contract's symbols and compares all results.
  // Floats are drawn from -most to most, other numbers from all, but weights as an operator
  // promises of them (max_weight).
  void run(const std::vector<int64_t>& symbols, int threads, unsigned seed, double tolerance = 2e-5,
           float most = 1) {
    std::string trace = "threads " + std::to_string(threads) + ",";
    for (size_t i = 0; i < symbols.size(); ++i)
      trace += " " + w_.contract.symbols[i] + " = " + std::to_string(symbols[i]);
    SCOPED_TRACE(trace);
    ASSERT_EQ(symbols.size(), w_.contract.symbols.size());
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> distribution(-most, most);
    std::vector<ir::TensorRef> inputs;
    std::vector<ArgumentMemory> memory;
    int64_t promised = 128;
    for (const ir::Binding& b : w_.group->body->bindings)
      promised = std::min(promised, ir::attr_or(b.value->attrs, "max_weight", promised));
    for (size_t i = 0; i < w_.contract.arguments.size(); ++i) {
      const exec::KernelArgument& a = w_.contract.arguments[i];
      const bool input = i < w_.group->parameters.size();
      if (a.kind == exec::KernelArgument::Kind::kScalar) {
        if (input) inputs.push_back(ir::Tensor::scalar_i64(symbols[a.symbol]));
        continue;
      }
      std::vector<int64_t> shape;
      for (const exec::DimProgram& d : a.dims) shape.push_back(d.evaluate1(symbols));
      uint8_t* data = nullptr;
      const auto tensor = ir::Tensor::make(a.dtype, shape, &data);
      for (int64_t e = 0; e < tensor->elements(); ++e) {
        const float value = input ? distribution(random) : std::nanf("");
        if (a.dtype == DType::kF32)
          reinterpret_cast<float*>(data)[e] = value;
        else if (a.dtype == DType::kF64)
          reinterpret_cast<double*>(data)[e] = value;
        else if (a.dtype == DType::kBF16)
          reinterpret_cast<uint16_t*>(data)[e] = bf16_from_f32(value);
        else if (a.dtype == DType::kF16)
          reinterpret_cast<uint16_t*>(data)[e] = f16_from_f32(value);
        else if (a.dtype == DType::kI8 && input && promised < 128)
          data[e] =
              static_cast<uint8_t>(static_cast<int64_t>(random()) % (2 * promised + 1) - promised);
        else if (size_of(a.dtype) == 1)
          data[e] = input ? static_cast<uint8_t>(random()) : 0xaa;
        else
          ASSERT_FALSE(input) << "no way to fill " << name_of(a.dtype);
      }
      memory.emplace_back(tensor->bytes.size());
      if (!memory.back().empty()) std::memcpy(memory.back().data(), data, tensor->bytes.size());
      if (input) inputs.push_back(tensor);
    }
    const std::vector<std::span<std::byte>> buffers(memory.begin(), memory.end());
    const uint32_t choice = lowered_.tails.choose(symbols, threads);
    ASSERT_EQ(kernels_[choice](buffers, symbols, threads), 0);

    const std::vector<ir::TensorRef> expected = reference(inputs, symbols);
    ASSERT_LE(expected.size(), memory.size());
    for (size_t r = 0; r < expected.size(); ++r) {
      const auto& bytes = memory[memory.size() - expected.size() + r];
      ASSERT_EQ(bytes.size(), expected[r]->bytes.size());
      uint8_t* data = nullptr;
      const auto got = ir::Tensor::make(expected[r]->dtype, expected[r]->shape, &data);
      if (!bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
      // Sums in another order may be rounded to the neighbour of a storage format.
      const double allowed = got->dtype == DType::kBF16 ? tolerance + 1.0 / 128 : tolerance;
      for (int64_t e = 0; e < expected[r]->elements(); ++e) {
        const double want = expected[r]->value(e);
        const double most = is_float(got->dtype) ? allowed * std::max(1.0, std::abs(want)) : 0;
        ASSERT_NEAR(got->value(e), want, most) << "result " << r << " element " << e;
      }
    }
  }

 private:
  std::vector<ir::TensorRef> reference(const std::vector<ir::TensorRef>& inputs,
                                       const std::vector<int64_t>& symbols) const {
    reference::Symbols values;
    for (size_t i = 0; i < symbols.size(); ++i) values[w_.contract.symbols[i]] = symbols[i];
    std::map<const ir::Var*, std::vector<ir::TensorRef>> known;
    for (size_t i = 0; i < inputs.size(); ++i) known[w_.group->parameters[i].get()] = {inputs[i]};
    for (const ir::Binding& b : w_.group->body->bindings) {
      if (b.value->kind == ir::ExprKind::kGetField) {
        const auto& tuple = known.at(b.value->args[0].var.get());
        known[b.var.get()] = {tuple.at(static_cast<size_t>(b.value->index))};
        continue;
      }
      std::vector<ir::TensorRef> args;
      for (const ir::Atom& a : b.value->args)
        args.push_back(a.is_constant() ? a.constant : known.at(a.var.get()).at(0));
      known[b.var.get()] = b.value->kind == ir::ExprKind::kTuple
                               ? args
                               : reference::evaluate_op(*b.value, args, values);
    }
    return known.at(w_.group->body->result.var.get());
  }

  Workload w_;
  TargetInfo target_;
  const Template* template_;
  Lowered lowered_;
  std::vector<Execute> kernels_;
};

}  // namespace nimble::kernels
