// Whether a function that is declared here anew may be called in the place of a library's own: as
// many parameters, of which pointers are pointers and others are passed alike.
#pragma once

#include <type_traits>

namespace nimble::rt {

template <class Ours, class Theirs>
inline constexpr bool kPassedAlike = std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
                                     sizeof(Ours) == sizeof(Theirs);

template <class R, class... A, class S, class... B>
constexpr bool same_function(R (*)(A...), S (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B))
    return false;
  else
    return kPassedAlike<R, S> && (kPassedAlike<A, B> && ...);
}

}  // namespace nimble::rt
