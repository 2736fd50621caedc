#include "db/store/place.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "vm/base/error.h"

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
  std::string_view rest = place.substr(place.find("://") + 3);
  std::string out = "postgresql://";
  // The last @ ends the password, also where somebody forgot to escape another one in it.
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    out += rest.substr(0, std::min(rest.find_first_of(":/?@"), at));
    out += '@';
    rest.remove_prefix(at + 1);
  }
  const size_t query = std::min(rest.find('?'), rest.size());
  out += rest.substr(0, query);
  rest.remove_prefix(std::min(query + 1, rest.size()));
  char separator = '?';
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view parameter = rest.substr(0, end);
    const std::string_view name = parameter.substr(0, parameter.find('='));
    if (std::find(std::begin(kPublic), std::end(kPublic), name) != std::end(kPublic)) {
      out += separator;
      out += parameter;
      separator = '&';
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

std::string printable_word(std::string_view word) {
  const size_t begin = word.starts_with('-') ? word.find('=') + 1 : 0;  // npos + 1 is 0
  return std::string(word.substr(0, begin)) + printable_place(word.substr(begin));
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
