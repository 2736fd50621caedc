# Cross compilation for 64-bit ARM with Debian's compiler; the preset aarch64 names this file.
# Libraries come from a sysroot of unpacked packages (scripts/aarch64-sysroot). Programs that the
# build itself runs, and tests, run under qemu's user mode.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(NIMBLE_AARCH64_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build-aarch64/sysroot" CACHE PATH
    "The libraries' packages for arm64, unpacked")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NIMBLE_AARCH64_SYSROOT)
if(NOT EXISTS "${NIMBLE_AARCH64_SYSROOT}/usr")
  message(FATAL_ERROR "${NIMBLE_AARCH64_SYSROOT} is no sysroot: scripts/aarch64-sysroot makes it")
endif()
get_filename_component(sysroot "${NIMBLE_AARCH64_SYSROOT}" REALPATH)
set(CMAKE_FIND_ROOT_PATH "${sysroot}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(mode LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${mode} ONLY)
endforeach()
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${sysroot}")
set(ENV{PKG_CONFIG_LIBDIR}
    "${sysroot}/usr/lib/aarch64-linux-gnu/pkgconfig:${sysroot}/usr/share/pkgconfig")

# Shared objects that others open are in the sysroot, too.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${sysroot}/usr/lib/aarch64-linux-gnu")

# The C library is the cross compiler's.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
