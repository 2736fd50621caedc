// What a process is at, told to whoever kills it to see that nothing is lost (scripts/kill-fleet).
#pragma once

namespace nimble {

// While this lives the process is at `name`; then it is again at what it was at before. Where the
// environment variable NIMBLE_STAGES names a folder, the file PID there holds the name, padded with
// zero bytes to 32: memory that is shared with the file, so that it is true also of a process that
// was killed. Without the variable, and where the file cannot be made, nothing happens. Of the main
// thread alone; other threads help it.
class Stage {
 public:
  explicit Stage(const char* name);  // a literal
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

 private:
  const char* before_ = nullptr;  // nothing: nobody is told
};

}  // namespace nimble
