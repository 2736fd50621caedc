#include "tuner/measure/machine_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "vm/base/printable.h"

namespace nimble::tuner {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(10);
// A measurement's length: who waits no longer has nothing to tell.
constexpr auto kPatience = std::chrono::seconds(1);

// What the holder wrote of itself; anybody may have written it.
std::string holder_of(int fd) {
  char text[200] = {};
  const ssize_t n = ::pread(fd, text, sizeof text, 0);
  const std::string holder(text, n > 0 ? static_cast<size_t>(n) : 0);
  return holder.empty() ? "another process" : printable(holder);
}

std::string path_of(const std::string& device) {
  const char* folder = std::getenv("NIMBLE_LOCK_FOLDER");
  return fmt::format("{}/nimble-measuring-{}.lock", folder && *folder ? folder : "/tmp", device);
}

class File {
 public:
  explicit File(const std::string& path) : path_(path) {
    constexpr int kOpen = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    for (bool again = true; again;) {
      // Another user's file in a folder that all share may be opened, but not with O_CREAT.
      fd_ = ::open(path.c_str(), kOpen);
      again = fd_ < 0 && errno == ENOENT;
      if (!again) break;
      // Ours alone gets rights for all.
      fd_ = ::open(path.c_str(), kOpen | O_CREAT | O_EXCL, 0666);
      if (fd_ >= 0) ::fchmod(fd_, 0666);
      again = fd_ < 0 && errno == EEXIST;
    }
    if (fd_ < 0) refuse(std::strerror(errno));
    // Who holds it cuts it short to write its name there: no pipe, and no other name of a file that
    // this user has elsewhere.
    struct stat info {};
    if (::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1) return;
    ::close(fd_);
    refuse("it is not a file of its own");
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void lock(Hold hold, const std::atomic<bool>& cancel, const std::function<void()>& waiting) {
    const int kind = hold == Hold::kAlone ? LOCK_EX : LOCK_SH;
    while (::flock(fd_, kind | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR)
        throw MachineLockError(Status::kIo, path_,
                               fmt::format("cannot lock: {}", std::strerror(errno)));
      waiting();
      if (cancel.load()) throw Error(Status::kCancelled, "tuning", "interrupted");
      std::this_thread::sleep_for(kPoll);
    }
  }
  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw MachineLockError(
        Status::kIo, path_, fmt::format("cannot lock: {}", why),
        "set NIMBLE_LOCK_FOLDER to a folder that may be written, the same for all who "
        "measure on this machine");
  }

  std::string path_;
  int fd_ = -1;
};

}  // namespace

MachineLock::MachineLock(const std::string& device, const std::string& purpose,
                         const std::atomic<bool>& cancel,
                         const std::function<void(const std::string&)>& waiting, Hold hold) {
  const std::string path = path_of(device);
  File file(path);
  bool told = false;
  const auto begin = std::chrono::steady_clock::now();
  const auto wait = [&] {
    if (told || std::chrono::steady_clock::now() - begin < kPatience) return;
    told = true;
    waiting(holder_of(file.fd()));
  };
  // Whoever comes back at once for the next measurement passes a gate in which somebody may stand
  // who waits: without it a worker that is never idle would keep its machine from the service, and
  // so would workers of several cards, one of which always holds it.
  File gate(path + ".next");
  gate.lock(Hold::kAlone, cancel, wait);
  file.lock(hold, cancel, wait);
  fd_ = file.release();
  const std::string self = fmt::format("process {}, {}", ::getpid(), purpose);
  // Only for messages: a full disk costs nothing but these.
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, self.data(), self.size(), 0) < 0) errno = 0;
}

MachineLock::~MachineLock() {
  if (::ftruncate(fd_, 0) != 0) errno = 0;
  ::close(fd_);
}

}  // namespace nimble::tuner
