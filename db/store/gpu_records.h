// How a GPU names itself in the database. It is hardware of its own: what is measured on it is of
// no CPU, and of no other kind of GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "db/store/records.h"
#include "vm/base/gpu_facts.h"

namespace nimble::db {

// The isa of what stands for every GPU that runs some code, and is none itself: jobs that are
// packed are for it until a worker takes them.
inline constexpr char kAnyGpu[] = "any";

Hardware gpu_hardware(const GpuFacts& gpu);
// A card as a machine of its own: times of two of a kind in one computer are told apart as those of
// two computers are. Which it is says the card's own UUID, whichever host, container or program
// asks; the name, of the host and the place on its bus where it was first met, is for people. Of a
// driver that does not tell UUIDs, it is the name that decides, as of a CPU's machine.
Machine gpu_machine(const GpuFacts& gpu);
// "13.0" of 13000: a driver by CUDA's version (GpuFacts::driver).
std::string driver_text(int64_t driver);
// The option of a campaign's key that names a driver: where its code is assembly, the driver makes
// machine code of it, and what one has made tells nothing of another's. Workers that have another
// one pass such a campaign over.
inline constexpr char kDriverOption[] = "driver";
// The driver that a campaign is for; 0: any.
int64_t driver_of(const CampaignKey& campaign);
// The capability of a GPU, 90 of 9.0; nothing if the hardware is none.
std::optional<int> gpu_capability(const Hardware& hardware);

}  // namespace nimble::db
