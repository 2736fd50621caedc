// What templates of a GPU's kernels share: who a thread is, values that lanes, warps and blocks
// make together, loops that a team of threads walks, and the launch around them.
//
// A team is some threads that work on one row: neighbours by number, a power of two up to a warp,
// or a whole block. All functions keep to uniform control: what meets others (shuffles, barriers)
// is appended to the statements given, which must stand where all threads of the block come.
// Results do not depend on timing: values are combined in the order of the threads' numbers, or in
// pairs.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/loops.h"
#include "vm/executable/launch.h"

namespace nimble::kernels::gpu {

// ---------------------------------------------------------------- who a thread is

kir::Dim block(int axis = 0);  // block_x, block_y, block_z
kir::Dim thread();             // in its block
kir::Dim warp();               // in its block
kir::Dim lane();               // in its warp

inline constexpr int kMaxThreads = exec::Launch::kMaxThreads;   // of a block
inline constexpr int64_t kMaxBlocksAcross = exec::kMaxGrid[1];  // along the second and third axis
inline constexpr int kAccessBytes = 16;        // that a lane loads or stores at once
inline constexpr int kArgumentAlignment = 64;  // of tensors in planned storage, in bytes

// Whether a block may have so many: whole warps.
bool is_block(int64_t threads);

// ---------------------------------------------------------------- a function

// make_frame(), whose buffers have the alignment of a GPU's tensors.
Frame make_gpu_frame(const Workload& w);
// The function as a GPU's. `threads`: of a block.
kir::Function launched(kir::Function f, std::array<kir::Dim, 3> grid, int threads,
                       std::vector<kir::BufferRef> shared = {});
// A block's memory.
kir::BufferRef shared_buffer(const std::string& name, DType t, const kir::Dim& extent);
// Bytes that blocks with buffers of so many elements take.
struct SharedPart {
  DType type;
  int64_t elements;
};
int64_t shared_bytes(const std::vector<SharedPart>& parts);
// The kernel of all shapes. Its blocks are the launch's: there is nothing to split.
Lowered one_gpu_kernel(kir::Function f);

// ---------------------------------------------------------------- values

// `v` bound to a local of that name, which is returned.
kir::ValueRef named(std::vector<kir::StmtRef>& out, const std::string& name, kir::ValueRef v);
// Two values as the lanes of one.
kir::ValueRef pair_of(const kir::ValueRef& a, const kir::ValueRef& b);
// The fragment of a warp that multiplies such operands as they are, or, where that is allowed, of
// f32 rounded to tf32; nullptr if no row does. Whether a target has it, its feature says.
const kir::WarpFragmentRow* fragment_of(DType a, DType b, DType sum, bool tf32 = false);
// Whether an operator's kernel may round factors of f32 so (its attribute `tf32`).
bool allows_tf32(const ir::Expr& call);

// ---------------------------------------------------------------- values made together

// Two values to one. Commutative, up to the bits of a NaN.
using Combine = std::function<kir::ValueRef(const kir::ValueRef& a, const kir::ValueRef& b)>;

// The combined value of `size` neighbouring lanes (a power of two up to kWarpLanes), for each of
// them. `v` is one lane wide; `name` begins the names of locals, and is nobody else's.
kir::ValueRef all_of_lanes(std::vector<kir::StmtRef>& out, const std::string& name, kir::ValueRef v,
                           int size, const Combine& combine);
// The same of a block of `threads`, over shared memory that is appended to `shared`. Within a loop
// a barrier must follow before the next round.
kir::ValueRef all_of_block(std::vector<kir::StmtRef>& out, const std::string& name, kir::ValueRef v,
                           int threads, const Combine& combine,
                           std::vector<kir::BufferRef>& shared);
// The same of the `rows` threads whose numbers are equal modulo `columns`; v may have any lanes.
kir::ValueRef all_of_column(std::vector<kir::StmtRef>& out, const std::string& name,
                            kir::ValueRef v, int columns, int rows, const Combine& combine,
                            std::vector<kir::BufferRef>& shared);

// ---------------------------------------------------------------- loops of a team

struct Team {
  int size = 1;   // threads
  kir::Dim rank;  // of this one: 0 <= rank < size; 0 if alone
};

// Elements [0, extent) in vectors of `lanes`, which divides the extent: neighbouring threads of the
// team take neighbouring vectors, each `unroll` of them a step (Slice::slot). All threads go
// through the loops alike; only what is left over at the end stands under a condition, less what
// the team has in common there.
kir::StmtRef team_loop(const std::string& var, const kir::Dim& extent, int lanes, int unroll,
                       const Team& team, const SliceBody& body);
// `body` of a slice at `at`, where that is below `extent`. What does not depend on the symbols
// `varying` stands ahead of the condition.
kir::StmtRef where_below(const kir::Dim& at, const kir::Dim& extent,
                         const std::set<std::string>& varying, std::vector<kir::StmtRef> body);

// The types of a group's parameters but those that are nothing but indices, which lanes share.
std::vector<ir::Type> types_in_vectors(const Workload& w, const Frame& f);
// Lanes of which one access holds the widest elements among tensors of more than one.
int access_lanes(const std::vector<ir::Type>& types);
// The most lanes, a power of two up to `most`, that divide an extent.
int dividing_lanes(const Workload& w, const kir::Dim& extent, int most);

}  // namespace nimble::kernels::gpu
