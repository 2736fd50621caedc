// Texts that may hold URLs, as messages, logs and stored commands may tell them: without passwords.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace nimble {

// A word that is or ends in a URL ("postgresql://me:secret@host/db?sslmode=…", also after "--db=")
// without the password in it: what stands between the user's name and the last @ goes, and so do
// all parameters but those of these names. A word without "://" stays as it is. Of a URL with stray
// characters more than the password may be missing, never less.
std::string without_password(std::string_view word,
                             std::span<const std::string_view> public_parameters = {});

// The same of every word of a text; white space parts them.
std::string without_passwords(std::string_view text);

}  // namespace nimble
