// A process to which Linux refuses the tile registers of AMX, for tests of what happens then.
#pragma once

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>

#include "vm/base/test/run_command.h"

namespace nimble {

// From now on this process, and each that it starts, is refused, whatever was granted before: the
// call that asks fails, as it does where a sandbox forbids it. False if that can't be arranged.
inline bool refuse_tile_registers() {
#if defined(__x86_64__)
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x1023, 0, 1),  // ARCH_REQ_XCOMP_PERM
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
#else
  return true;
#endif
}

// Whether this process was granted them; asks for nothing.
inline bool has_tile_permission() {
#if defined(__x86_64__)
  unsigned long granted = 0;
  constexpr int kGetPermission = 0x1022, kTileData = 18;  // ARCH_GET_XCOMP_PERM
  return syscall(SYS_arch_prctl, kGetPermission, &granted) == 0 && (granted >> kTileData & 1);
#else
  return false;
#endif
}

// What `body` returns in a process of its own that is refused; kNoRefusal if none can be had.
constexpr int kNoRefusal = 77;
template <class Body>
int refused_exit_code(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(refuse_tile_registers() ? body() : kNoRefusal);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// 0 if the disabled test of that name passes in a new run of this program.
inline int exit_code_of_test(const std::string& name) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  // Not the part of the tests that falls to this process: that one, whoever runs it.
  const CommandResult ran = run_command("env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX '" + self +
                                        "' --gtest_also_run_disabled_tests --gtest_filter=" + name);
  if (ran.exit_code == 0 && ran.out.find("[  PASSED  ] 1 test") != std::string::npos) return 0;
  std::fputs(ran.out.c_str(), stderr);
  return 1;
}

}  // namespace nimble
