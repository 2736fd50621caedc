#include "tuner/measure/confine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/measure/confined_paths.h"
#include "vm/base/error.h"
#include "vm/executable/vendor_routines.h"

namespace nimble::tuner {
namespace {

constexpr rlim_t kFileBytes = rlim_t{64} << 20;
constexpr rlim_t kDescriptors = 256;
constexpr rlim_t kGpuDescriptors = 1024;  // NVIDIA's driver takes one for a mapping of memory

// Landlock's interface (Linux, include/uapi/linux/landlock.h), whose header is older than the
// kernels in use.
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
struct Ruleset {
  uint64_t files = 0, net = 0, scoped = 0;
};
struct PathRule {
  uint64_t allowed;
  int32_t folder;
} __attribute__((packed));
constexpr uint32_t kVersionFlag = 1;
constexpr int kPathBeneath = 1;
constexpr uint64_t kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadFolder = 1 << 3;
constexpr uint64_t kControlDevice = 1 << 15;  // from version 5
// Rights that a version of the interface knows: all those below this bit.
constexpr int kFileBits[] = {0, 13, 14, 15, 15, 16};
constexpr uint64_t kTcp = 3;             // to bind and to connect; from version 4
constexpr uint64_t kOutsideSignals = 3;  // and abstract sockets; from version 6

int landlock_version() {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, kVersionFlag);
  return version > 0 ? static_cast<int>(version) : 0;
}

// Lets the ruleset open what is at `path` and, if it is a folder, beneath it.
void allow(int ruleset, const std::string& path, uint64_t rights) {
  const int folder = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  if (folder < 0) return;  // what is not there needs no right
  PathRule rule{rights, folder};
  if (::syscall(SYS_landlock_add_rule, ruleset, kPathBeneath, &rule, 0) != 0 && errno == EINVAL) {
    rule.allowed &= ~kReadFolder;  // a file has no right of folders
    ::syscall(SYS_landlock_add_rule, ruleset, kPathBeneath, &rule, 0);
  }
  ::close(folder);
}

uint64_t rights_of(Access access) {
  switch (access) {
    case Access::kRead:
      return kReadFile | kReadFolder;
    case Access::kReadAndWrite:
      return kReadFile | kWriteFile;
    case Access::kDevice:
      return kReadFile | kWriteFile | kControlDevice;
  }
  NIMBLE_UNREACHABLE();
}

// Lets the ruleset read the library that the environment names, a file or its folder, and the
// libraries beside it, which are parts of it. Not the folder: it may be somebody's home.
void allow_libraries(int ruleset, const std::string& named) {
  std::error_code ignored;
  std::filesystem::path folder = named;
  if (!std::filesystem::is_directory(folder, ignored)) {
    folder = folder.parent_path();
    if (folder.empty()) return;  // a name that the system looks for
    allow(ruleset, named, kReadFile);
  }
  for (std::filesystem::directory_iterator at(folder, ignored), end; at != end;
       at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    std::error_code unknown;
    if (name.starts_with("lib") && name.find(".so") != std::string::npos &&
        at->is_regular_file(unknown))
      allow(ruleset, at->path().string(), kReadFile);
  }
}

bool confine_files(int version, bool gpu) {
  if (version == 0) return false;
  Ruleset rules;
  rules.files = (uint64_t{1} << kFileBits[version < 5 ? version : 5]) - 1;
  if (version >= 4) rules.net = kTcp;
  if (version >= 6) rules.scoped = kOutsideSignals;
  const int ruleset =
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0));
  if (ruleset < 0) return false;
  for (const ConfinedPath& row : kConfinedPaths) {
    if (row.gpu && !gpu) continue;
    glob_t found{};
    if (::glob(row.pattern, 0, nullptr, &found) == 0)
      for (size_t i = 0; i < found.gl_pathc; ++i)
        // A right that this version does not know is not kept from anybody.
        allow(ruleset, found.gl_pathv[i], rights_of(row.access) & rules.files);
    ::globfree(&found);
  }
  if (const char* list = std::getenv("LD_LIBRARY_PATH")) {
    std::string_view rest = list;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(':'), rest.size());
      if (end > 0) allow(ruleset, std::string(rest.substr(0, end)), kReadFile | kReadFolder);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  if (gpu)
    for (const std::string& variable : exec::gpu_library_variables()) {
      const char* named = std::getenv(variable.c_str());
      if (named && *named) allow_libraries(ruleset, named);
    }
  const bool done = ::syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
  ::close(ruleset);
  return done;
}

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

// Calls that reach another process or machine. Each answers EPERM.
constexpr int kRefused[] = {
    SYS_socket,           SYS_connect,           SYS_execve,         SYS_execveat,
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_io_uring_setup,
#ifdef SYS_pidfd_getfd
    SYS_pidfd_getfd,
#endif
    SYS_add_key,          SYS_request_key,       SYS_keyctl,         SYS_open_by_handle_at,
};

bool confine_calls() {
  constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
  const auto load = [](size_t offset) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
  };
  const sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, kRefuse);
  std::vector<sock_filter> program = {
      load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      refuse,  // calls of 32-bit programs, whose numbers mean others
      load(offsetof(seccomp_data, nr)),
#ifdef __x86_64__
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
      refuse,  // the same of x32
#endif
  };
  for (const int call : kRefused) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    program.push_back(refuse);
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  // Threads that there are already, such as a driver's, are bound, too, where the kernel can.
  constexpr unsigned long kMine = SECCOMP_FILTER_FLAG_SPEC_ALLOW;
  for (const unsigned long flags : {kMine | SECCOMP_FILTER_FLAG_TSYNC, kMine})
    if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter) == 0) return true;
  return false;
}

// Never above what is allowed already.
void lower(__rlimit_resource resource, rlim_t to) {
  rlimit limit;
  if (::getrlimit(resource, &limit) != 0) return;
  limit.rlim_max = limit.rlim_max < to ? limit.rlim_max : to;
  limit.rlim_cur = limit.rlim_cur < to ? limit.rlim_cur : to;
  ::setrlimit(resource, &limit);
}

}  // namespace

std::string Confinement::text() const {
  const auto said = [](bool b) { return b ? "yes" : "no"; };
  return fmt::format("privileges {}, files {} (Landlock {}), calls {}", said(privileges),
                     said(files), landlock, said(calls));
}

Confinement confine(bool gpu) {
  Confinement c;
  lower(RLIMIT_CORE, 0);
  lower(RLIMIT_FSIZE, kFileBytes);
  lower(RLIMIT_NOFILE, gpu ? kGpuDescriptors : kDescriptors);
  c.privileges = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
  if (!c.privileges) return c;  // the kernel asks for it before the next two
  c.landlock = landlock_version();
  c.files = confine_files(c.landlock, gpu);
  c.calls = confine_calls();
  return c;
}

}  // namespace nimble::tuner
