// A VFS that passes everything to the default one until the N-th write, sync or truncation, and
// from then on fails, as a disk does that is full or gone.
#pragma once

namespace nimble::db {

// Registers the VFS "nimble-faulty" once; idempotent.
void register_faulty_vfs();
// The next `operations` modifying operations work, all later ones fail with `code`
// (SQLITE_FULL for writes; SQLITE_IOERR of the kind at hand otherwise).
void fail_after(long operations, int code);
// The same of a disk that is full.
void fill_up_after(long operations);
// No more failures; returns whether any was injected.
bool stop_failing();
// How often anything was synced, since the program began.
long syncs();

}  // namespace nimble::db
