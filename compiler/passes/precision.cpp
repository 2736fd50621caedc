#include "compiler/passes/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble::passes {
namespace {

template <typename Rule>
const Rule* find_rule(const std::vector<Rule>& rules, Precision policy, ir::Packs packs) {
  for (const Rule& r : rules)
    if (r.policy == policy && r.packs == packs) return &r;
  return nullptr;
}

}  // namespace

const std::vector<PrecisionInfo>& all_precisions() {
  static const std::vector<PrecisionInfo> kAll = {
#define NIMBLE_PRECISION(id, name, summary) {Precision::id, name, summary},
#include "compiler/passes/Precision.def"
  };
  return kAll;
}

std::string_view name_of(Precision p) {
  for (const PrecisionInfo& i : all_precisions())
    if (i.id == p) return i.name;
  NIMBLE_UNREACHABLE("precision {}", static_cast<int>(p));
}

Precision precision_by_name(std::string_view name) {
  std::string names;
  for (const PrecisionInfo& i : all_precisions()) {
    if (i.name == name) return i.id;
    names += (names.empty() ? "" : ", ") + std::string(i.name);
  }
  throw Error(Status::kInvalidArgument, "precision " + printable(name),
              "there is no such precision", "use one of " + names);
}

const PrecisionRule* rule_of(Precision policy, ir::Packs packs) {
  static const std::vector<PrecisionRule> kRules = {
#define NIMBLE_PRECISION_RULE(policy, packs, operands, sums) \
  {Precision::policy, ir::Packs::packs, DType::operands, DType::sums},
#include "compiler/passes/Precision.def"
  };
  return find_rule(kRules, policy, packs);
}

const StorageRule* storage_rule_of(Precision policy) {
  static const std::vector<StorageRule> kRules = {
#define NIMBLE_PRECISION_STORES(policy, packs, type) \
  {Precision::policy, ir::Packs::packs, DType::type},
#include "compiler/passes/Precision.def"
  };
  const auto rule = std::ranges::find(kRules, policy, &StorageRule::policy);
  return rule == kRules.end() ? nullptr : &*rule;
}

const ByteRule* byte_rule_of(Precision policy, ir::Packs packs) {
  static const std::vector<ByteRule> kRules = {
#define NIMBLE_PRECISION_BYTES(policy, packs, group, steps, most) \
  {Precision::policy, ir::Packs::packs, group, steps, most},
#include "compiler/passes/Precision.def"
  };
  return find_rule(kRules, policy, packs);
}

const WeightRule* weight_rule_of(Precision policy, ir::Packs packs) {
  static const std::vector<WeightRule> kRules = {
#define NIMBLE_PRECISION_WEIGHTS(policy, packs, bits, block) \
  {Precision::policy, ir::Packs::packs, bits, block},
#include "compiler/passes/Precision.def"
  };
  return find_rule(kRules, policy, packs);
}

std::string_view attribute_of(Precision policy) {
  static constexpr std::pair<Precision, std::string_view> kAllowances[] = {
#define NIMBLE_PRECISION_ALLOWS(policy, attribute) {Precision::policy, attribute},
#include "compiler/passes/Precision.def"
  };
  for (const auto& [allows, attribute] : kAllowances)
    if (allows == policy) return attribute;
  return {};
}

}  // namespace nimble::passes
