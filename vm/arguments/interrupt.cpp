#include "vm/arguments/interrupt.h"

#include <signal.h>

namespace nimble {
namespace {

std::atomic<bool> interrupted{false};

void on_signal(int number) {
  if (interrupted.exchange(true)) {
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
}

}  // namespace

const std::atomic<bool>& note_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  return interrupted;
}

}  // namespace nimble
