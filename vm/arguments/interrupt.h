// What Ctrl-C asks of a program that has something to bring to an end first.
#pragma once

#include <atomic>

namespace nimble {

// From now on SIGINT and SIGTERM set this flag instead of ending the process; the second of them
// ends it all the same: the user means it.
const std::atomic<bool>& note_interrupts();

}  // namespace nimble
