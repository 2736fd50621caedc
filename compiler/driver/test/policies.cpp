#include "compiler/driver/test/policies.h"

#include <algorithm>
#include <random>

#include "compiler/ir/infer.h"
#include "compiler/kernels/targets.h"
#include "vm/base/cpu.h"

namespace nimble::driver::testing {

ir::TensorRef tensor(const std::vector<int64_t>& shape, unsigned seed, float scale) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> real(-scale, scale);
  int64_t elements = 1;
  for (int64_t d : shape) elements *= d;
  std::vector<float> values;
  for (int64_t i = 0; i < elements; ++i) values.push_back(real(random));
  return ir::Tensor::of(DType::kF32, shape, values);
}

Configuration under(passes::Precision policy) {
  Configuration c{"default"};
  c.precision = policy;
  return c;
}

std::vector<Configuration> ways_to_compile(passes::Precision policy) {
  std::vector<Configuration> all;
  const auto add = [&](std::string name) -> Configuration& {
    Configuration& c = all.emplace_back(under(policy));
    c.name = std::move(name);
    return c;
  };
  add("default");
  add("two threads").threads = 2;
  add("no native").no_native = true;
  add("without packing").disabled_pass = "pack-weights";
  Configuration& again = add("reserialised");
  again.reserialise = again.round_trip = true;
  for (const std::string& level : kernels::machine_levels())
    if (host_cpu().has(level)) add(level).target = level;
  for (Configuration& c : all) c.name += fmt::format(" in {}", passes::name_of(policy));
  return all;
}

ir::Module rounded(const ir::Module& m, const Configuration& c, const std::string& last) {
  passes::PassContext context;
  context.target = kernels::target_by_name(c.target);
  context.precision = c.precision;
  passes::PipelineOptions options;
  const auto end = std::find(options.passes.begin(), options.passes.end(), last);
  EXPECT_NE(end, options.passes.end());
  options.passes.erase(end + 1, options.passes.end());
  return ir::infer_types(passes::run_pipeline(ir::infer_types(m), context, options));
}

}  // namespace nimble::driver::testing
