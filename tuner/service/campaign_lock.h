// Who works at a campaign: one process at a time, and what the dead ones held.
#pragma once

#include <string>

#include "db/store/store.h"

namespace nimble::tuner {

// Names this process as an owner of leases: "host/where numbers of processes hold:process:start
// time".
std::string owner_name();
// Gives back what dead processes of this host hold. Of one before the last boot, or of another
// container, nobody here can tell: its leases run out.
void release_dead(db::Store& store, const db::Uuid& campaign);

// The files that whoever works at a campaign keeps beside its database on this machine
// (db::local_prefix). Whether they tune at once or serve a fleet, they meet at the same ones.
struct CampaignFiles {
  CampaignFiles(const std::string& database, const db::Store& store, const db::Uuid& campaign);
  std::string lock;  // for CampaignLock
  std::string work;  // for WorkCache
};

// One tuning process per campaign: two would fight for the cores and spoil each other's times.
class CampaignLock {
 public:
  // `path`: CampaignFiles::lock. A server's campaign is held there, too, since others reach it.
  // Error(kInvalidArgument) if another process has it.
  CampaignLock(db::Store& store, const std::string& path, const db::Uuid& campaign);
  ~CampaignLock();
  CampaignLock(const CampaignLock&) = delete;
  CampaignLock& operator=(const CampaignLock&) = delete;

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace nimble::tuner
