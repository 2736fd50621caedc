// Matrix registers to LLVM IR, for AMX. Each region numbers its registers from 0, in the order of
// its shapes, and the intrinsics take the numbers as immediates: what a template keeps in a matrix
// register stays there, and LLVM neither allocates nor spills them. A region begins by loading the
// configuration (the shape of every register) and ends by releasing it, so that the system need not
// save the registers of a thread that does not use them, and other code finds the unit as it was.
//
// For targets without matrix registers the module gets another function (kernels/tiles.h).
#include <llvm/IR/IntrinsicsX86.h>

#include <array>

#include "compiler/codegen/llvm/emitter.h"
#include "vm/base/error.h"

namespace nimble::codegen {
namespace {

using llvm::Intrinsic::ID;

// The layout of a configuration, in bytes.
constexpr int kConfigBytes = 64, kRowBytesAt = 16, kRowsAt = 48;
constexpr uint8_t kPalette = 1;  // 8 registers of 16 rows of 64 bytes
constexpr int kParts = kConfigBytes / 8;

ID intrinsic_of(kir::TileFragment f) {
  switch (f) {
    case kir::TileFragment::kBf16Tiles:
      return llvm::Intrinsic::x86_tdpbf16ps;
    case kir::TileFragment::kF16Tiles:
      return llvm::Intrinsic::x86_tdpfp16ps;
    case kir::TileFragment::kU8S8Tiles:
      return llvm::Intrinsic::x86_tdpbusd;
  }
  NIMBLE_UNREACHABLE();
}

}  // namespace

// The configuration as eight i64; all numbers of rows lie in one of them.
llvm::Value* Emitter::tile_config(const kir::Stmt& s) {
  std::array<uint64_t, kParts> parts{};
  const auto set = [&](int byte, uint64_t value) { parts[byte / 8] |= value << (8 * (byte % 8)); };
  set(0, kPalette);
  llvm::Value* rows = nullptr;  // those that are not known
  int next = 0;
  for (const kir::TileShape& shape : s.shapes) {
    const kir::Buffer& b = *shape.tile;
    tile_numbers_[&b] = next;
    const auto known = shape.rows.as_constant();
    NIMBLE_CHECK(!known || (*known >= 1 && *known <= b.rows), "{} rows of {}", *known, b.name);
    llvm::Value* several = nullptr;  // the same for each register of the buffer
    for (int64_t end = next + constant(b.extent); next < end; ++next) {
      set(kRowBytesAt + 2 * next, static_cast<uint64_t>(b.lanes) * size_of(b.dtype));
      if (known) {
        set(kRowsAt + next, static_cast<uint64_t>(*known));
        continue;
      }
      llvm::Value* one = b_.CreateShl(dim(shape.rows), b_.getInt64(8 * next));
      several = several ? b_.CreateOr(several, one) : one;
    }
    if (several) rows = rows ? b_.CreateOr(rows, several) : several;
  }
  llvm::SmallVector<llvm::Constant*, kParts> constants;
  for (const uint64_t p : parts) constants.push_back(b_.getInt64(p));
  llvm::Value* config = llvm::ConstantVector::get(constants);
  if (!rows) return config;
  constexpr int kPart = kRowsAt / 8;
  return b_.CreateInsertElement(config, b_.CreateOr(rows, constants[kPart]), uint64_t{kPart});
}

void Emitter::tiles(const kir::Stmt& s) {
  if (!tile_memory_) {
    llvm::BasicBlock& entry = fn_->getEntryBlock();
    llvm::IRBuilder<> at(&entry, entry.begin());
    tile_memory_ =
        at.CreateAlloca(llvm::ArrayType::get(b_.getInt8Ty(), kConfigBytes), nullptr, "tile.config");
    tile_memory_->setAlignment(llvm::Align(16));  // more would cost each call a frame
  }
  b_.CreateAlignedStore(tile_config(s), tile_memory_, tile_memory_->getAlign());
  b_.CreateIntrinsic(llvm::Intrinsic::x86_ldtilecfg, {}, {tile_memory_});
  statement(*s.body[0]);
  b_.CreateIntrinsic(llvm::Intrinsic::x86_tilerelease, {}, {});
  tile_numbers_.clear();
}

llvm::Value* Emitter::tile(const kir::TileRef& t) {
  return b_.getInt8(static_cast<uint8_t>(tile_numbers_.at(t.buffer.get()) + constant(t.number)));
}

void Emitter::tile_statement(const kir::Stmt& s) {
  const auto pitch = [&] { return dim(s.stride * static_cast<int64_t>(size_of(s.buffer->dtype))); };
  switch (s.kind) {
    case kir::StmtKind::kTiles:
      return tiles(s);
    case kir::StmtKind::kTileZero:
      b_.CreateIntrinsic(llvm::Intrinsic::x86_tilezero, {}, {tile(s.tiles[0])});
      return;
    case kir::StmtKind::kTileLoad:
      b_.CreateIntrinsic(llvm::Intrinsic::x86_tileloadd64, {},
                         {tile(s.tiles[0]), address(*s.buffer, s.index), pitch()});
      return;
    case kir::StmtKind::kTileStore:
      b_.CreateIntrinsic(llvm::Intrinsic::x86_tilestored64, {},
                         {tile(s.tiles[0]), address(*s.buffer, s.index), pitch()});
      return;
    case kir::StmtKind::kTileDot:
      b_.CreateIntrinsic(intrinsic_of(s.tile_fragment), {},
                         {tile(s.tiles[0]), tile(s.tiles[1]), tile(s.tiles[2])});
      return;
    default:
      NIMBLE_UNREACHABLE();
  }
}

}  // namespace nimble::codegen
