// What the measuring process gives up before it runs the first candidate.
//
// A candidate is machine code and does what it likes within its process, so the process gets
// little: no environment but a stated list and no descriptors but its pipes (runner.cpp starts it
// so), and, by its own word, no way back to anything else. Each step is the kernel's and needs no
// rights; a kernel that lacks one leaves it out, and what is in force can be told:
//
//   privileges   programs that would raise them (setuid) don't (PR_SET_NO_NEW_PRIVS)
//   limits       no core files, which hold memory; files of at most 64 MiB; few descriptors
//   files        reads the system's libraries and state, writes nowhere; no TCP, no signals to and
//                no look into processes outside (Landlock)
//   calls        makes no socket and starts no program (seccomp)
//
// The filter of calls is installed so that it leaves the processor's speculation as it is: kernels
// before 5.16 would otherwise slow down loads after stores, and with them what is measured.
//
// It bounds what a mistake, or a candidate that passed for a signed one, can reach. It is no prison
// for code that attacks the kernel.
#pragma once

#include <string>

namespace nimble::tuner {

struct Confinement {
  bool privileges = false, files = false, calls = false;
  int landlock = 0;  // version of its interface; 0: the kernel has none
  std::string text() const;
};

// For the calling process, for good. To be called before it has further threads: of those that
// there are already the calls alone are bound, and these where the kernel can. `gpu`: it has opened
// a GPU, and its driver may open what it needs later.
Confinement confine(bool gpu = false);

}  // namespace nimble::tuner
