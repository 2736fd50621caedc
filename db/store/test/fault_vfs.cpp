#include "db/store/test/fault_vfs.h"

#include <sqlite3.h>

#include <atomic>
#include <climits>
#include <cstring>

namespace nimble::db {
namespace {

// A program's threads may each have a connection.
std::atomic<long> g_left{LONG_MAX};
std::atomic<int> g_code{SQLITE_IOERR};
std::atomic<bool> g_injected{false};
std::atomic<long> g_syncs{0};

bool due() {
  for (long left = g_left; left > 0;)
    if (g_left.compare_exchange_weak(left, left - 1)) return false;
  g_injected = true;
  return true;
}

// Our file, with the default VFS's file behind it in the same allocation.
struct File {
  sqlite3_file base;
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};
sqlite3_file* real(sqlite3_file* f) {
  return reinterpret_cast<File*>(f)->real();
}

int x_close(sqlite3_file* f) {
  return real(f)->pMethods->xClose(real(f));
}
int x_read(sqlite3_file* f, void* data, int n, sqlite3_int64 at) {
  return real(f)->pMethods->xRead(real(f), data, n, at);
}
int x_write(sqlite3_file* f, const void* data, int n, sqlite3_int64 at) {
  if (due()) return g_code == SQLITE_FULL ? SQLITE_FULL : SQLITE_IOERR_WRITE;
  return real(f)->pMethods->xWrite(real(f), data, n, at);
}
int x_truncate(sqlite3_file* f, sqlite3_int64 size) {
  if (due()) return SQLITE_IOERR_TRUNCATE;
  return real(f)->pMethods->xTruncate(real(f), size);
}
int x_sync(sqlite3_file* f, int flags) {
  if (due()) return g_code == SQLITE_FULL ? SQLITE_FULL : SQLITE_IOERR_FSYNC;
  ++g_syncs;
  return real(f)->pMethods->xSync(real(f), flags);
}
int x_size(sqlite3_file* f, sqlite3_int64* size) {
  return real(f)->pMethods->xFileSize(real(f), size);
}
int x_lock(sqlite3_file* f, int level) {
  return real(f)->pMethods->xLock(real(f), level);
}
int x_unlock(sqlite3_file* f, int level) {
  return real(f)->pMethods->xUnlock(real(f), level);
}
int x_reserved(sqlite3_file* f, int* out) {
  return real(f)->pMethods->xCheckReservedLock(real(f), out);
}
int x_control(sqlite3_file* f, int op, void* arg) {
  return real(f)->pMethods->xFileControl(real(f), op, arg);
}
int x_sector(sqlite3_file* f) {
  return real(f)->pMethods->xSectorSize(real(f));
}
int x_device(sqlite3_file* f) {
  return real(f)->pMethods->xDeviceCharacteristics(real(f));
}
int x_shm_map(sqlite3_file* f, int page, int size, int extend, void volatile** out) {
  return real(f)->pMethods->xShmMap(real(f), page, size, extend, out);
}
int x_shm_lock(sqlite3_file* f, int offset, int n, int flags) {
  return real(f)->pMethods->xShmLock(real(f), offset, n, flags);
}
void x_shm_barrier(sqlite3_file* f) {
  real(f)->pMethods->xShmBarrier(real(f));
}
int x_shm_unmap(sqlite3_file* f, int erase) {
  return real(f)->pMethods->xShmUnmap(real(f), erase);
}

const sqlite3_io_methods kMethods = {
    2,        x_close,   x_read,     x_write,       x_truncate, x_sync,
    x_size,   x_lock,    x_unlock,   x_reserved,    x_control,  x_sector,
    x_device, x_shm_map, x_shm_lock, x_shm_barrier, x_shm_unmap};

int x_open(sqlite3_vfs* vfs, const char* name, sqlite3_file* f, int flags, int* out_flags) {
  auto* under = static_cast<sqlite3_vfs*>(vfs->pAppData);
  f->pMethods = nullptr;
  const int code = under->xOpen(under, name, real(f), flags, out_flags);
  if (code == SQLITE_OK) f->pMethods = &kMethods;
  return code;
}

}  // namespace

void register_faulty_vfs() {
  static sqlite3_vfs vfs;
  if (vfs.zName) return;
  sqlite3_vfs* under = sqlite3_vfs_find(nullptr);
  vfs = *under;
  vfs.pNext = nullptr;
  vfs.zName = "nimble-faulty";
  vfs.szOsFile = static_cast<int>(sizeof(File)) + under->szOsFile;
  vfs.pAppData = under;
  vfs.xOpen = x_open;
  sqlite3_vfs_register(&vfs, 0);
}

void fail_after(long operations, int code) {
  g_left = operations;
  g_code = code;
  g_injected = false;
}

void fill_up_after(long operations) {
  fail_after(operations, SQLITE_FULL);
}

bool stop_failing() {
  g_left = LONG_MAX;
  return g_injected;
}

long syncs() {
  return g_syncs;
}

}  // namespace nimble::db
