#include "compiler/emit/source_note.h"

#include <map>

#include "compiler/kernels/template.h"

namespace nimble::emit {
namespace {

// What an expression does, in words of the model and not of its lowered form.
std::string purpose(const ir::Expr& e) {
  static const std::map<std::string, const char*> kLowered = {
      {"memory.alloc_storage", "allocation"},  {"memory.alloc_tensor", "allocation"},
      {"memory.row_view", "view of rows"},     {"memory.invoke_shape", "extents"},
      {"memory.shape_of", "extents"},          {"memory.reshape", "reshape"},
      {"memory.read_scalar", "element"},       {"memory.storage_of", "growing tensor"},
      {"memory.capacity", "growing tensor"},   {"memory.fatal", "check"},
      {"device_copy", "copy between devices"},
  };
  switch (e.kind) {
    case ir::ExprKind::kMatch:
      return "match";
    case ir::ExprKind::kIf:
      return "if";
    case ir::ExprKind::kTuple:
      return "tuple";
    case ir::ExprKind::kConstruct:
      return e.constructor;
    case ir::ExprKind::kClosure:
      return fmt::format("closure of \"{}\"", e.callee->global);
    default:
      break;
  }
  if (e.primitive) return kernels::source_of(*e.primitive);
  if (e.callee)
    return e.callee->is_global() ? fmt::format("call of \"{}\"", e.callee->global) : "call";
  const auto lowered = kLowered.find(e.op);
  return lowered == kLowered.end() ? e.op : lowered->second;
}

}  // namespace

std::string source_place(const ir::Location& at) {
  if (!at.source_name.empty()) return at.source_name;
  if (at.file.empty() || at.line <= 0) return "";
  return fmt::format("{}:{}", at.file.substr(at.file.rfind('/') + 1), at.line);
}

std::string source_note(const ir::Expr& e) {
  const std::string place = source_place(e.location);
  return place.empty() ? purpose(e) : fmt::format("{} at {}", purpose(e), place);
}

}  // namespace nimble::emit
