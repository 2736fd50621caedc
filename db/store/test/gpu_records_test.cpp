// A GPU's record: what tells one kind from another, and from a CPU.
#include "db/store/gpu_records.h"

#include <gtest/gtest.h>

#include "db/store/hash.h"
#include "db/store/host_records.h"

namespace nimble::db {
namespace {

GpuFacts h100() {
  return {"NVIDIA H100 80GB HBM3",  90,        132, 232448, 50 << 20,
          uint64_t{85'017'100'000}, 2'619'000, 5120};
}

TEST(GpuRecords, SayWhatMattersToTimes) {
  const Hardware h = gpu_hardware(h100());
  EXPECT_EQ(h.vendor, "NVIDIA");
  EXPECT_EQ(h.family, 9);
  EXPECT_EQ(h.model, 0);
  EXPECT_EQ(h.model_name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(h.isa, "sm_90");
  EXPECT_EQ(h.caches, "L2 51200K/132");
  EXPECT_EQ(h.topology, "132 multiprocessors, 79 GiB, 2619 MHz x 5120 bits");
  EXPECT_FALSE(h.virtualised);
  EXPECT_EQ(last_cache_bytes(h), 50 << 20);
  EXPECT_EQ(gpu_capability(h), 90);
  EXPECT_FALSE(gpu_capability(host_hardware()));
}

TEST(GpuRecords, AnythingElseIsOtherHardware) {
  const Hash key = key_of(gpu_hardware(h100()));
  GpuFacts same = h100();
  same.memory_bytes -= 1 << 20;  // another driver keeps more for itself
  EXPECT_EQ(key_of(gpu_hardware(same)), key);
  const auto differs = [&](auto change) {
    GpuFacts other = h100();
    change(other);
    return key_of(gpu_hardware(other)) != key;
  };
  // Cards and drivers are none of the kind.
  same.slot = "0000:5e:00";
  same.driver = 13010;
  EXPECT_EQ(key_of(gpu_hardware(same)), key_of(gpu_hardware(h100())));
  EXPECT_TRUE(differs([](GpuFacts& g) { g.name = "NVIDIA H200"; }));
  EXPECT_TRUE(differs([](GpuFacts& g) { g.capability = 89; }));
  EXPECT_TRUE(differs([](GpuFacts& g) { g.multiprocessors = 114; }));
  EXPECT_TRUE(differs([](GpuFacts& g) { g.memory_khz = 1'593'000; }));
  EXPECT_TRUE(differs([](GpuFacts& g) { g.bus_bits = 6144; }));
  GpuFacts quiet = h100();
  quiet.l2_bytes = quiet.memory_khz = 0;  // a driver that does not say
  EXPECT_EQ(gpu_hardware(quiet).topology, "132 multiprocessors, 79 GiB");
  EXPECT_EQ(last_cache_bytes(gpu_hardware(quiet)), 0);
}

// Hosts may share a name and cards move, and one card is met by several programs.
TEST(GpuRecords, AMachineIsTheCardWhereverItIsMet) {
  GpuFacts card = h100();
  card.slot = "0000:3b:00";
  card.uuid = "6f1c2a50-0000-4000-8000-000000000001";
  const Machine m = gpu_machine(card);
  EXPECT_TRUE(is_uuid(m.uuid)) << m.uuid;
  EXPECT_EQ(m.hostname, host_machine().hostname + " GPU 0000:3b:00");
  EXPECT_EQ(m.hardware, key_of(gpu_hardware(card)));
  GpuFacts moved = card;
  moved.slot = "0000:5e:00";
  moved.driver = 13010;
  EXPECT_EQ(gpu_machine(moved).uuid, m.uuid);
  GpuFacts another = card;  // at the same place of a host of the same name
  another.uuid.back() = '2';
  EXPECT_EQ(gpu_machine(another).hostname, m.hostname);
  EXPECT_NE(gpu_machine(another).uuid, m.uuid);
  GpuFacts part = card;  // what its driver shows of it has changed: other hardware
  part.multiprocessors = 66;
  EXPECT_NE(gpu_machine(part).uuid, m.uuid);
}

TEST(GpuRecords, AMachineWithoutAUuidIsItsName) {
  GpuFacts card = h100();
  card.slot = "0000:3b:00";
  EXPECT_EQ(gpu_machine(card).uuid, "") << "the database makes one of name and hardware";
  EXPECT_EQ(gpu_machine(card).hostname, host_machine().hostname + " GPU 0000:3b:00");
  card.slot.clear();
  EXPECT_EQ(gpu_machine(card).hostname, host_machine().hostname);
}

}  // namespace
}  // namespace nimble::db
