#include "db/store/place.h"

#include <fmt/format.h>

#include <algorithm>

#include "vm/base/cache_folder.h"
#include "vm/base/error.h"
#include "vm/base/url.h"

namespace nimble::db {
namespace {

// Parameters of a URL that hold no secret; all others are left out.
constexpr std::string_view kPublic[] = {"host", "hostaddr", "port",        "dbname",
                                        "user", "sslmode",  "sslrootcert", "service"};

// Whether it begins as a URL does: a scheme (RFC 3986, 3.1), then "://".
bool is_url(std::string_view place) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const size_t end = place.find("://");
  if (end == std::string_view::npos || end == 0 || !letter(place[0])) return false;
  return std::ranges::all_of(place.substr(0, end), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
  });
}

}  // namespace

bool names_server(std::string_view place) {
  return place.starts_with("postgresql://") || place.starts_with("postgres://");
}

void require_place(std::string_view place) {
  if (names_server(place) || !is_url(place)) return;
  throw Error(Status::kInvalidArgument, printable_place(place),
              fmt::format("nimble has no databases at {}://", place.substr(0, place.find("://"))),
              "name a file by its path, or a server's database as postgresql://USER@HOST/DATABASE");
}

std::string printable_place(std::string_view place) {
  if (!names_server(place)) return is_url(place) ? without_password(place) : std::string(place);
  return "postgresql" + without_password(place.substr(place.find("://")), kPublic);
}

std::string local_prefix(const std::string& place, std::string_view identity) {
  if (!names_server(place)) return place;
  return cache_folder() + "/" + std::string(identity);
}

}  // namespace nimble::db
