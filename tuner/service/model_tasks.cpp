#include "tuner/service/model_tasks.h"

#include <algorithm>

#include "compiler/ir/infer.h"
#include "compiler/passes/pipeline.h"
#include "compiler/tuned/policy_class.h"
#include "vm/base/error.h"

namespace nimble::tuner {

ModelTasks tasks_of_model(const CampaignOptions& options, const kernels::TargetInfo& target,
                          std::vector<std::string>* skipped) {
  const ir::Module typed = ir::infer_types(frontend::import_model(options.model, options.import));
  PointOptions points;
  if (!options.trace.empty()) points.trace = read_trace(options.trace, model_symbols(typed));
  points.symbols = options.trace_symbols;
  points.fixed = options.fixed;
  points.representative = options.representative;
  points.largest = std::max(points.largest, 4 * options.representative);
  points.seed = static_cast<uint64_t>(options.seed);
  passes::PassContext context;
  context.target = target;
  const ir::Module lowered = passes::run_pipeline(typed, context);
  ModelTasks out;
  out.policy = options.policy;
  out.policy.choose_class(options.policy_class.empty()
                              ? tuned::implied_policy(driver::constant_bytes(lowered))
                              : options.policy_class);
  out.tasks = tuning_tasks(lowered, model_points(typed, points), target, skipped);
  if (out.tasks.empty())
    throw Error(Status::kUnsupported, options.model, "it has no workload that can be tuned",
                "nimble check shows what it consists of");
  return out;
}

}  // namespace nimble::tuner
