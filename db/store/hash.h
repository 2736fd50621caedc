// Content keys and UUIDs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace nimble::db {

// xxHash128 of `data` as 32 lower-case hex digits.
std::string hash_of(std::string_view data);

// xxHash128 over `fields`, each preceded by its length, so that ("ab","c") and ("a","bc") differ.
// `kind` keeps the keys of different tables apart.
std::string hash_of_fields(std::string_view kind, std::initializer_list<std::string_view> fields);

// xxHash128 of a file's bytes; throws Error(kIo, kNotFound).
std::string hash_of_file(const std::string& path);

// BLAKE2b-256 (RFC 7693) as 64 lower-case hex digits: for what is signed, and for what must not be
// passed off as something else.
std::string digest_of(std::span<const uint8_t> bytes);
// Whether `text` has the form of a digest.
bool is_digest(std::string_view text);

// A random UUID (RFC 9562, version 4).
std::string new_uuid();

// The UUID (version 8) that 32 hex digits stand for, always the same.
std::string uuid_from_hash(std::string_view hash);

// Whether `text` has the form of a UUID in lower case.
bool is_uuid(std::string_view text);

}  // namespace nimble::db
