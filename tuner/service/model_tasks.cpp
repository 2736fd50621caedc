#include "tuner/service/model_tasks.h"

#include <algorithm>

#include "compiler/ir/infer.h"
#include "compiler/passes/pipeline.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/tuned/policy_class.h"
#include "db/store/host_records.h"
#include "vm/base/device_number.h"
#include "vm/base/error.h"

namespace nimble::tuner {

void require_cpu(const kernels::TargetInfo& target, const std::string& what) {
  if (target.is_gpu())
    throw Error(Status::kUnsupported, "--target " + target.level, what + " for CPUs alone",
                "run nimble tune --target " + target.level + " on a machine that has the GPU");
}

int64_t last_cache_of(const CampaignOptions& options, const db::Hardware& hardware) {
  return options.last_cache_bytes > 0 ? options.last_cache_bytes : db::last_cache_bytes(hardware);
}

ModelTasks tasks_of_model(const CampaignOptions& options, const kernels::TargetInfo& target,
                          std::vector<std::string>* skipped) {
  ModelTasks out = tasks_of_model(
      options, target,
      [&](const ir::Module& typed) {
        PointOptions points;
        if (!options.trace.empty()) points.trace = read_trace(options.trace, model_symbols(typed));
        points.symbols = options.trace_symbols;
        points.fixed = options.fixed;
        points.representative = options.representative;
        points.largest = std::max(points.largest, 4 * options.representative);
        points.seed = static_cast<uint64_t>(options.seed);
        return model_points(typed, points);
      },
      skipped);
  for (TuningTask& t : out.tasks) choose_representatives(t, options.search_shapes);
  return out;
}

ModelTasks tasks_of_model(const CampaignOptions& options, const kernels::TargetInfo& target,
                          const PointsOf& points, std::vector<std::string>* skipped) {
  const ir::Module typed = ir::infer_types(frontend::import_model(options.model, options.import));
  passes::PassContext context;
  context.target = target.is_gpu() ? kernels::detect_host() : target;
  if (target.is_gpu() && !options.beside.empty())
    throw Error(Status::kInvalidArgument, "--beside " + options.beside,
                fmt::format("are kernels of a CPU, and {} is a GPU's target", target.level),
                "leave --target out, or name the CPU's");
  if (target.is_gpu()) context.gpu = target;
  if (!options.beside.empty()) context.gpu = kernels::target_by_name(options.beside);
  if (context.gpu) context.device = kCudaDevice;
  context.precision = options.precision;
  context.winograd = options.winograd;
  const ir::Module lowered = passes::run_pipeline(typed, context);
  ModelTasks out;
  out.policy = options.policy;
  out.policy.choose_class(options.policy_class.empty()
                              ? tuned::implied_policy(passes::constant_bytes(lowered),
                                                      last_cache_of(options, db::host_hardware()))
                              : options.policy_class);
  const std::vector<WeightedPoint> met = points(typed);
  out.tasks = tuning_tasks(lowered, met, target, skipped);
  if (target.is_gpu()) out.cpu_kernels = tuning_tasks(lowered, met, context.target, nullptr).size();
  if (out.tasks.empty())
    throw Error(Status::kUnsupported, options.model, "it has no workload that can be tuned",
                "nimble check shows what it consists of");
  return out;
}

}  // namespace nimble::tuner
