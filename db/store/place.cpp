#include "db/store/place.h"

#include <cstdlib>
#include <filesystem>

#include "vm/base/error.h"
#include "vm/base/url.h"

namespace nimble::db {
namespace {

// Parameters of a URL that hold no secret; all others are left out.
constexpr std::string_view kPublic[] = {"host", "hostaddr", "port",        "dbname",
                                        "user", "sslmode",  "sslrootcert", "service"};

}  // namespace

bool names_server(std::string_view place) {
  return place.starts_with("postgresql://") || place.starts_with("postgres://");
}

std::string printable_place(std::string_view place) {
  if (!names_server(place)) return std::string(place);
  return "postgresql" + without_password(place.substr(place.find("://")), kPublic);
}

std::string local_prefix(const std::string& place, std::string_view identity) {
  if (!names_server(place)) return place;
  namespace fs = std::filesystem;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const fs::path base = cache && *cache == '/' ? fs::path(cache)
                        : home && *home == '/' ? fs::path(home) / ".cache"
                                               : fs::temp_directory_path();
  const fs::path folder = base / "nimble";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Error(Status::kIo, folder.string(), fmt::format("cannot be made ({})", error.message()),
                "make it, or set XDG_CACHE_HOME to a folder that you may write to");
  return (folder / identity).string();
}

}  // namespace nimble::db
