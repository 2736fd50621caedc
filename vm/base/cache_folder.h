// Where programs of nimble keep what they can make again.
#pragma once

#include <string>

namespace nimble {

// "nimble" in the user's cache: XDG_CACHE_HOME, ~/.cache, else the folder of temporary files. It is
// made if it is not there; Error(kIo) where it cannot be.
std::string cache_folder();

// Whether an open file is this user's and nobody else writes it: what a cache holds is run, and
// signed. A link (which O_NOFOLLOW refuses), or another name of a file that is elsewhere, would be
// cut short there.
bool is_own_file(int fd);

}  // namespace nimble
