// Fused groups as text.
#pragma once

#include <string>

#include "compiler/ir/expr.h"

namespace nimble::kernels {

// Aborts unless everything in a group has its type.
void require_inferred(const ir::Function& group);

std::string attr_text(const ir::AttrValue& v);

// A group as it is written, its variables numbered: what make_workload reads, and nothing else.
std::string text_of(const ir::Function& group);

}  // namespace nimble::kernels
