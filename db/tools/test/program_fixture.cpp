#include "db/tools/test/program_fixture.h"

namespace nimble::db {

CommandResult ProgramTest::run(const std::string& arguments) {
  return run_command(std::string(NIMBLE_DB_PROGRAM) + " " + arguments);
}

void ProgramTest::fill() {
  auto store = open();
  World world(*store);
  world.tried(*store, 8, 64, 120);
  world.tried(*store, 16, 64, 80);
  world.tried(*store, 16, 37, 60, Role::kCross);
  store->activate(store->create_table(world.draft(*store, 16)), "tuned");
  Hardware untuned = world.hardware;
  untuned.model_name = "another";
  store->tell_shapes(store->identity(),
                     {{world.workload_hash, world.hardware_hash, {{"m", 64}}, 7},
                      {world.workload_hash, store->put(untuned), {{"m", 5}}, 1}});
  campaign = world.campaign;
}

}  // namespace nimble::db
