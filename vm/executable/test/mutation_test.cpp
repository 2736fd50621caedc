// Random damage to files whose checksums are then made right again, so that it reaches the
// parsers and the verifier behind them. Nothing may crash, hang, or allocate without bound: run
// under the address and undefined-behaviour sanitizers for full effect.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "vm/base/error.h"
#include "vm/base/hash.h"
#include "vm/executable/disassembler.h"
#include "vm/executable/format.h"
#include "vm/executable/reader.h"
#include "vm/executable/test/sample.h"
#include "vm/executable/verifier.h"
#include "vm/executable/writer.h"

namespace nimble::exec {
namespace {

struct Place {
  uint64_t offset, size;
};

Place section_place(const std::vector<uint8_t>& file, uint32_t index) {
  Place p;
  const uint8_t* entry = file.data() + kHeaderSize + index * kTableEntrySize;
  std::memcpy(&p.offset, entry + 8, 8);
  std::memcpy(&p.size, entry + 16, 8);
  return p;
}

void reseal(std::vector<uint8_t>* file) {
  for (uint32_t i = 0; i < kSectionCount; ++i) {
    const Place p = section_place(*file, i);
    if (p.offset > file->size() || p.size > file->size() - p.offset) continue;
    const uint64_t hash = hash64(std::span(*file).subspan(p.offset, p.size));
    std::memcpy(file->data() + kHeaderSize + i * kTableEntrySize + 24, &hash, sizeof hash);
  }
  const size_t end = kHeaderSize + kSectionCount * kTableEntrySize;
  const uint64_t hash = hash64(std::span(*file).first(end));
  std::memcpy(file->data() + end, &hash, sizeof hash);
}

// What a program that opens the file would do with it. Returns how far it came.
enum class Outcome { kRefusedByReader, kRefusedByVerifier, kAccepted };
Outcome open_and_use(const std::vector<uint8_t>& file) {
  try {
    const Executable e = deserialize(file);
    (void)disassemble(e);
    if (!find_violations(e).empty()) return Outcome::kRefusedByVerifier;
    // What the verifier accepts, the writer can write and the reader read.
    EXPECT_EQ(serialize(deserialize(serialize(e))), serialize(e));
    return Outcome::kAccepted;
  } catch (const Error& e) {
    EXPECT_NE(e.status(), Status::kInternal);
    return Outcome::kRefusedByReader;
  }
}

TEST(MutationTest, ReaderAndVerifierSurviveAnyContents) {
  const std::vector<uint8_t> good = serialize(sample());
  std::mt19937_64 random(20210406);
  auto below = [&](uint64_t n) { return random() % n; };
  int counts[3] = {};
  for (int trial = 0; trial < 6000; ++trial) {
    std::vector<uint8_t> file = good;
    // The sections before the bulk data are where structure is.
    const Place p = section_place(file, static_cast<uint32_t>(below(kSectionCount - 2)));
    const uint64_t edits = 1 + below(4);
    for (uint64_t i = 0; i < edits; ++i) {
      uint8_t& byte = file[p.offset + below(p.size)];
      switch (below(4)) {
        case 0:
          byte = static_cast<uint8_t>(random());
          break;
        case 1:
          byte ^= static_cast<uint8_t>(1u << below(8));
          break;
        case 2:
          byte = static_cast<uint8_t>(byte + (below(2) ? 1 : 255));
          break;
        default:
          byte = below(2) ? 0xff : 0x00;
          break;
      }
    }
    reseal(&file);
    ++counts[static_cast<int>(open_and_use(file))];
  }
  // All three happen, or the damage would not reach as deep as it should.
  for (int c : counts) EXPECT_GT(c, 100);
}

TEST(MutationTest, ReaderSurvivesAnyTable) {
  const std::vector<uint8_t> good = serialize(sample());
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<uint8_t> file = good;
    const size_t table = kSectionCount * kTableEntrySize;
    for (uint64_t i = 0; i < 1 + random() % 3; ++i)
      file[kHeaderSize - 8 + random() % (table + 8)] = static_cast<uint8_t>(random());
    reseal(&file);
    open_and_use(file);
  }
}

TEST(MutationTest, ReaderSurvivesNoise) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<uint8_t> file(random() % 2000);
    for (uint8_t& b : file) b = static_cast<uint8_t>(random());
    std::memcpy(file.data(), kMagic, std::min(file.size(), sizeof kMagic));
    EXPECT_EQ(open_and_use(file), Outcome::kRefusedByReader);
  }
}

}  // namespace
}  // namespace nimble::exec
