// Which machines are set aside.
#include "tuner/service/machines.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nimble::tuner::plan {
namespace {

// Of three machines one disagrees, to either side: each of the others sees it as half of the rest,
// and is not set aside for it.
TEST(Machines, OneOfThreeThatDisagreesMakesNoOtherDisagree) {
  for (const double bias : {1.5, 0.6})
    for (const std::vector<std::string>& order :
         {std::vector<std::string>{"a", "b", "odd"}, {"odd", "a", "b"}, {"b", "odd", "a"}}) {
      Machines machines;
      for (int round = 0; round < 8; ++round)
        for (const std::string& name : order)
          machines.saw({name, "kind"}, "place " + std::to_string(round % 4), 100,
                       80 * (name == "odd" ? bias : 1), 1);
      for (const MachineStatus& m : machines.status())
        EXPECT_EQ(m.set_aside, m.uuid == "odd") << m.uuid << " " << m.apart << " " << bias;
      EXPECT_TRUE(machines.set_aside("odd"));
    }
}

TEST(Machines, OneThatAgreesAgainIsNoLongerSetAside) {
  Machines machines;
  const auto go_on = [&](double bias) {
    for (int round = 0; round < 24; ++round)
      for (const char* name : {"a", "b", "odd"})
        machines.saw({name, "kind"}, "place " + std::to_string(round % 4), 100,
                     80 * (name == std::string("odd") ? bias : 1), 1);
  };
  go_on(1.5);
  EXPECT_TRUE(machines.set_aside("odd"));
  go_on(1);
  EXPECT_FALSE(machines.set_aside("odd"));
}

}  // namespace
}  // namespace nimble::tuner::plan
