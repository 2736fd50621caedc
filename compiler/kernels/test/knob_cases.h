// Configurations that a template must refuse: it would lower them to something else.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "compiler/kernels/template.h"

namespace nimble::kernels::testing {

// A knob is missing, has a value of another kind, or is one that the template does not know.
inline void expect_refuses_other_knobs(const Template& t, const Workload& w,
                                       const TargetInfo& target) {
  const Config config = t.default_config(w, target);
  ASSERT_TRUE(t.valid(w, config, target)) << to_json(config);
  for (const auto& [name, value] : config) {
    Config other = config;
    other.erase(name);
    EXPECT_FALSE(t.valid(w, other, target)) << to_json(other);
    other[name] = "a name of no choice";
    EXPECT_FALSE(t.valid(w, other, target)) << to_json(other);
  }
  Config more = config;
  more["more"] = int64_t{1};
  EXPECT_FALSE(t.valid(w, more, target)) << to_json(more);
}

// Each of `bad`, a knob and its value, in place of the default one. A GPU's template serves no CPU.
inline void expect_refuses_on_gpu(const char* name, const Workload& w,
                                  const std::vector<std::pair<const char*, int64_t>>& bad) {
  const TargetInfo gpu = target_by_name("sm_90a");
  const Template& t = *find_template(name);
  const Config config = t.default_config(w, gpu);
  ASSERT_TRUE(t.valid(w, config, gpu)) << to_json(config);
  EXPECT_NE(template_for(w, target_by_name("x86-64-v4")), &t);
  for (const auto& [knob, value] : bad) {
    Config other = config;
    other[knob] = value;
    EXPECT_FALSE(t.valid(w, other, gpu)) << to_json(other);
  }
}

}  // namespace nimble::kernels::testing
