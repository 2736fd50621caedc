#include "db/store/place.h"

#include "vm/base/cache_folder.h"
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
  return cache_folder() + "/" + std::string(identity);
}

}  // namespace nimble::db
