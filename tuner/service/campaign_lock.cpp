#include "tuner/service/campaign_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "db/store/hash.h"
#include "db/store/host_records.h"
#include "db/store/place.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

// Start time of a process in clock ticks since boot: with the process id, it names a process even
// after its number has been given to another.
std::string start_time(int64_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(in, text);
  // The second field, the name, is in parentheses and may hold anything.
  const size_t close = text.rfind(')');
  if (close == std::string::npos) return "";
  std::istringstream rest(text.substr(close + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) rest >> field;  // field 22 of the line
  return field;
}

// Where a process number means the same process: a boot of a kernel and a namespace of process
// numbers. Hosts may share a name, and containers a kernel.
std::string where_numbers_hold() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(in, boot);
  char space[64] = "";
  const ssize_t n = ::readlink("/proc/self/ns/pid", space, sizeof space - 1);
  return db::hash_of(boot + std::string(space, static_cast<size_t>(std::max<ssize_t>(n, 0))))
      .substr(0, 12);
}

// Of the host, whatever it measures on: who tuned for one of its GPUs is as dead as who did for its
// CPU.
std::string host_part() {
  return fmt::format("{}/{}", db::host_machine().hostname, where_numbers_hold());
}

}  // namespace

std::string owner_name() {
  return fmt::format("{}:{}:{}", host_part(), ::getpid(), start_time(::getpid()));
}

void release_dead(db::Store& store, const db::Uuid& campaign) {
  const std::string here = host_part();
  for (const std::string& owner : store.lease_owners(campaign)) {
    const size_t a = owner.find(':'), b = owner.rfind(':');
    if (a == std::string::npos || a == b || owner.substr(0, a) != here) continue;
    const int64_t pid = std::atoll(owner.substr(a + 1, b - a - 1).c_str());
    const std::string started = start_time(pid);
    if (started.empty() || started != owner.substr(b + 1)) store.release(campaign, owner);
  }
}

CampaignFiles::CampaignFiles(const std::string& database, const db::Store& store,
                             const db::Uuid& campaign) {
  const std::string stem =
      fmt::format("{}.{}", db::local_prefix(database, store.identity()), campaign.substr(0, 8));
  lock = stem + ".lock";
  work = stem + ".work";
}

CampaignLock::CampaignLock(db::Store& store, const std::string& path, const db::Uuid& campaign)
    : path_(path) {
  bool here = true;
  for (bool again = true; again;) {
    fd_ = ::open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    here = fd_ < 0 || ::fcntl(fd_, F_SETLK, &lock) == 0;
    // Whoever had it may have removed the file since it was opened: a lock on that is none.
    struct stat own {
    }, there{};
    again = fd_ >= 0 && here && ::fstat(fd_, &own) == 0 &&
            (::stat(path_.c_str(), &there) != 0 || own.st_ino != there.st_ino);
    if (again) ::close(fd_);
  }
  if (!here || !store.hold(campaign)) {
    if (fd_ >= 0) ::close(fd_);
    throw Error(Status::kInvalidArgument, store.path(),
                "this campaign is running already, in another process",
                "wait for it, or give another --seed");
  }
}

CampaignLock::~CampaignLock() {
  if (fd_ < 0) return;
  ::unlink(path_.c_str());
  ::close(fd_);
}

}  // namespace nimble::tuner
