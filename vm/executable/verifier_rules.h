// VerifierRules.def and PortableRules.def as data: the rules of both verifiers, and the faults that
// they report.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "vm/executable/fault.h"

namespace nimble::exec {

struct RuleInfo {
  int number;
  std::string_view sentence;     // what it asks
  std::string_view description;  // in detail
};
struct FaultInfo {
  int rule;
  std::string_view name;
  std::string_view text;  // the message, in fmt's syntax
};

#define NIMBLE_RULE(number, sentence, description)
#define NIMBLE_FAULT(rule, name, text) k##name,
enum class Fault : uint8_t {
#include "vm/executable/VerifierRules.def"
};
enum class PortableFault : uint8_t {
#include "vm/executable/PortableRules.def"
};
#undef NIMBLE_FAULT
#define NIMBLE_FAULT(rule, name, text) {rule, #name, text},
inline constexpr FaultInfo kFaults[] = {
#include "vm/executable/VerifierRules.def"
};
inline constexpr FaultInfo kPortableFaults[] = {
#include "vm/executable/PortableRules.def"
};
#undef NIMBLE_FAULT
#undef NIMBLE_RULE
#define NIMBLE_RULE(number, sentence, description) {number, sentence, description},
#define NIMBLE_FAULT(rule, name, text)
inline constexpr RuleInfo kRules[] = {
#include "vm/executable/VerifierRules.def"
};
inline constexpr RuleInfo kPortableRules[] = {
#include "vm/executable/PortableRules.def"
};
#undef NIMBLE_FAULT
#undef NIMBLE_RULE

inline constexpr int kRuleCount = std::size(kRules);
inline constexpr int kFaultCount = std::size(kFaults);
inline constexpr int kPortableRuleCount = std::size(kPortableRules);
inline constexpr int kPortableFaultCount = std::size(kPortableFaults);

constexpr const FaultInfo& info_of(Fault fault) {
  return kFaults[static_cast<size_t>(fault)];
}
constexpr const FaultInfo& info_of(PortableFault fault) {
  return kPortableFaults[static_cast<size_t>(fault)];
}
// What rule R<number> or P<number> asks, one sentence; "" if there is no such rule.
constexpr std::string_view rule_sentence(int number) {
  return number >= 1 && number <= kRuleCount ? kRules[number - 1].sentence : std::string_view();
}
constexpr std::string_view portable_rule_sentence(int number) {
  return number >= 1 && number <= kPortableRuleCount ? kPortableRules[number - 1].sentence
                                                     : std::string_view();
}

// The message of a fault, whose text is checked against the arguments by the compiler.
template <auto kFault, typename... Args>
std::string fault_message(Args&&... args) {
  constexpr std::string_view kText = info_of(kFault).text;
  return fmt::format(fmt::format_string<Args...>(kText), std::forward<Args>(args)...);
}

template <Fault kFault, typename... Args>
Finding finding(Args&&... args) {
  return {kFault, fault_message<kFault>(std::forward<Args>(args)...)};
}

namespace rules_detail {
// Rows stand in the order of their numbers, and a fault belongs to a rule that exists.
constexpr bool in_order(const RuleInfo* rules, int count, const FaultInfo* faults,
                        int fault_count) {
  for (int i = 0; i < count; ++i)
    if (rules[i].number != i + 1) return false;
  for (int i = 0; i < fault_count; ++i)
    if (faults[i].rule < 1 || faults[i].rule > count) return false;
  return true;
}
static_assert(in_order(kRules, kRuleCount, kFaults, kFaultCount));
static_assert(in_order(kPortableRules, kPortableRuleCount, kPortableFaults, kPortableFaultCount));
}  // namespace rules_detail

}  // namespace nimble::exec
