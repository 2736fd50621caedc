#include "vm/base/url.h"

#include <algorithm>

namespace nimble {

std::string without_password(std::string_view word,
                             std::span<const std::string_view> public_parameters) {
  const size_t scheme = word.find("://");
  if (scheme == std::string_view::npos) return std::string(word);
  std::string out(word.substr(0, scheme + 3));
  std::string_view rest = word.substr(scheme + 3);
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
    if (std::find(public_parameters.begin(), public_parameters.end(), name) !=
        public_parameters.end()) {
      out += separator;
      out += parameter;
      separator = '&';
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

std::string without_passwords(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  std::string out;
  while (!text.empty()) {
    const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
    out += text.substr(0, begin);
    text.remove_prefix(begin);
    const size_t end = std::min(text.find_first_of(kSpace), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(end);
    // Marks of the sentence around it are no part of a URL.
    std::string_view marks = word;
    marks.remove_prefix(std::min(word.find_last_not_of(".,;:)\"'") + 1, word.size()));
    word.remove_suffix(marks.size());
    out += without_password(word);
    out += marks;
  }
  return out;
}

}  // namespace nimble
