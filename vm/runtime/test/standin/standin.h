// What tests ask of each stand-in for a library of NVIDIA's, beside what the library's own
// functions do. It is opened at run time, and a function of its own gives these.
#pragma once

#include <dlfcn.h>

#include <cstddef>

struct StandIn {
  // Forgets all but what is alive, and what was set.
  void (*reset)();
  // Lets the n-th call of a function from now (1: the next; 0: none) give that result.
  void (*fail)(const char* function, int nth, int result);
  // Calls of a function since the reset.
  int (*calls)(const char* function);
  // What was against the library's rules, a line each; "" if nothing was.
  const char* (*violations)();
  // Of what the library makes, how much was not given back.
  size_t (*alive)();
};

// What `function` of the library in a file gives: a StandIn and what the library's tests ask
// beyond.
template <class Table>
const Table& open_standin(const char* file, const char* function) {
  void* library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  return *reinterpret_cast<const Table* (*)()>(::dlsym(library, function))();
}
