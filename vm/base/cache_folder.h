// Where programs of nimble keep what they can make again.
#pragma once

#include <string>

namespace nimble {

// "nimble" in the user's cache: XDG_CACHE_HOME, ~/.cache, else the folder of temporary files. It is
// made if it is not there; Error(kIo) where it cannot be.
std::string cache_folder();

}  // namespace nimble
