// What the files of the C interface share: how its calls fail, how structs of several versions are
// read and written, and the handle of a model. Not for users of the interface.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "vm/api/nimble.h"
#include "vm/base/error.h"
#include "vm/interpreter/model.h"

struct nimble_model {
  struct Port {
    std::vector<const char*> dims;
  };
  std::shared_ptr<const nimble::rt::Model> model;
  std::vector<std::vector<Port>> inputs, outputs;  // by entry
  std::vector<Port> types;
};

namespace nimble::capi {

// Remembers what the calling thread's last failure was.
nimble_status record(Status status, const char* text);

// Runs `body`, which throws on failure and may return a status that is none.
template <typename Body>
nimble_status guarded(Body body) {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return NIMBLE_OK;
    } else {
      return body();
    }
  } catch (const Error& e) {
    return record(e.status(), e.what());
  } catch (const std::bad_alloc&) {
    return record(Status::kExhausted, "the system has no more memory");
  } catch (const std::exception& e) {
    return record(Status::kInternal, e.what());
  } catch (...) {
    return record(Status::kInternal, "an unknown failure");
  }
}

[[noreturn]] inline void invalid(const std::string& place, const std::string& problem,
                                 const std::string& remedy) {
  throw Error(Status::kInvalidArgument, place, problem, remedy);
}

inline void require(bool condition, const char* function, const char* problem) {
  if (!condition) invalid(function, problem, "see vm/api/nimble.h");
}

// No struct of this interface will ever be so large; more is memory that nobody has set.
inline constexpr uint64_t kLargestStruct = 4096;

template <typename T>
void check_size(const T* given, const char* function) {
  require(given->struct_size >= sizeof(given->struct_size) && given->struct_size <= kLargestStruct,
          function, "struct_size is not set");
}

// A struct of the caller's, of an older or newer version than ours, as one of ours: what the
// caller does not have keeps our default. What we do not have must be 0, which is each later
// field's default, or the caller would wait for an effect in vain.
template <typename T>
T upgraded(const T* given, T defaults, const char* function) {
  if (!given) return defaults;
  check_size(given, function);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  const auto* end = bytes + given->struct_size;
  if (given->struct_size > sizeof(T) &&
      std::any_of(bytes + sizeof(T), end, [](unsigned char c) { return c != 0; }))
    throw Error(Status::kUnsupported, function,
                fmt::format("a struct of {} bytes sets a field beyond the {} bytes that this "
                            "library (interface version {}) knows",
                            given->struct_size, sizeof(T), NIMBLE_API_VERSION),
                "leave the newer fields 0 or use a newer libnimble");
  std::memcpy(static_cast<void*>(&defaults), given,
              std::min<uint64_t>(given->struct_size, sizeof(T)));
  defaults.struct_size = sizeof(T);
  return defaults;
}

// Writes the part of `ours` that the caller's struct has room for.
template <typename T>
void hand_back(const T& ours, T* theirs) {
  const uint64_t size = theirs->struct_size;
  std::memcpy(static_cast<void*>(theirs), &ours, std::min<uint64_t>(size, sizeof(T)));
  theirs->struct_size = size;
}

// Of an array of structs as large as the caller's.
template <typename T>
T* element(T* array, size_t index) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(array) + index * array->struct_size);
}

}  // namespace nimble::capi
