// The table Precision.def: what is computed in narrower numbers, by policy.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/ir/traits.h"
#include "vm/base/dtype.h"

namespace nimble::passes {

enum class Precision {
#define NIMBLE_PRECISION(id, name, summary) id,
#include "compiler/passes/Precision.def"
};

struct PrecisionInfo {
  Precision id;
  std::string_view name, summary;
};
const std::vector<PrecisionInfo>& all_precisions();
std::string_view name_of(Precision p);
// Error(kInvalidArgument) if there is none of the name.
Precision precision_by_name(std::string_view name);

struct PrecisionRule {
  Precision policy;
  ir::Packs packs;
  DType operands, sums;
};
// Null where the policy leaves such operators as they are.
const PrecisionRule* rule_of(Precision policy, ir::Packs packs);

struct StorageRule {
  Precision policy;
  ir::Packs packs;
  DType type;
};
// How images between operators are stored, and which operators read them so. Null where the policy
// leaves them as they are.
const StorageRule* storage_rule_of(Precision policy);

struct ByteRule {
  Precision policy;
  ir::Packs packs;
  int64_t group;        // terms of a sum that share a scale
  int64_t steps, most;  // of a group of a row, and of one of a column on either side of 0
};
// The same of operands that become whole numbers of a byte.
const ByteRule* byte_rule_of(Precision policy, ir::Packs packs);

struct WeightRule {
  Precision policy;
  ir::Packs packs;
  int64_t bits, block;
};
// The same of weights that are kept in few bits.
const WeightRule* weight_rule_of(Precision policy, ir::Packs packs);
// The attribute that operators on a GPU get under the policy; "" if none.
std::string_view attribute_of(Precision policy);

}  // namespace nimble::passes
