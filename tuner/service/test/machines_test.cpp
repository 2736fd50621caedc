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

// What happened: at most places a machine met the odd one and one other, at the rest there were
// enough others to call any difference large.
TEST(Machines, WhoMetTheOddOneMostIsNotSetAsideForIt) {
  for (const double bias : {1.5, 0.6}) {
    Machines machines;
    const auto saw = [&](const std::string& name, int place) {
      machines.saw({name, "kind"}, "place " + std::to_string(place), 100,
                   80 * (name == "odd" ? bias : 1), 1);
    };
    for (int round = 0; round < 4; ++round) {
      for (int place = 0; place < 3; ++place)
        for (const char* name : {"a", "b", "odd"}) saw(name, place);
      for (int place = 3; place < 5; ++place)
        for (const char* name : {"a", "b", "c", "d", "odd"}) saw(name, place);
    }
    for (const MachineStatus& m : machines.status())
      EXPECT_EQ(m.set_aside, m.uuid == "odd") << m.uuid << " " << m.apart << " " << bias;
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
