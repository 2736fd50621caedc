#include "vm/executable/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "vm/base/error.h"
#include "vm/base/file.h"
#include "vm/base/hash.h"
#include "vm/executable/disassembler.h"
#include "vm/executable/opcodes.h"
#include "vm/executable/reader.h"
#include "vm/executable/test/sample.h"
#include "vm/executable/writer.h"

namespace nimble::exec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void expect_same(const Executable& a, const Executable& b) {
  EXPECT_EQ(serialize(a), serialize(b));
  DisassembleOptions everything;
  everything.max_constant_elements = INT64_MAX;
  EXPECT_EQ(disassemble(a, everything), disassemble(b, everything));
}

TEST(FormatTest, MemoryRoundTrip) {
  const Executable e = sample();
  const Executable back = deserialize(serialize(e));
  expect_same(e, back);
  EXPECT_EQ(back.provenance.kernels.at("dense"), "{\"trials\":12}");
  EXPECT_EQ(back.provenance.options.at("precision"), "bf16");
  EXPECT_EQ(back.images[1].features, (std::vector<std::string>{"sse4_2", "popcnt"}));
  for (const Constant& c : back.constants)
    EXPECT_EQ(reinterpret_cast<uintptr_t>(c.bytes.data()) % kConstantAlignment, 0u);
  for (const NativeImage& i : back.images)
    EXPECT_EQ(reinterpret_cast<uintptr_t>(i.bytes.data()) % kDataAlignment, 0u);
}

TEST(FormatTest, AnEmptyExecutable) {
  expect_same({}, deserialize(serialize({})));
}

class FileFormatTest : public ::testing::Test {
 protected:
  std::string path_ =
      ::testing::TempDir() + "nimble-format-" + std::to_string(::getpid()) + ".nimble";
  void TearDown() override { std::filesystem::remove(path_); }
};

TEST_F(FileFormatTest, FileRoundTripServesConstantsFromTheMapping) {
  const Executable e = sample();
  write(e, path_);
  Executable back = read(path_);
  expect_same(e, back);
  const Constant w = back.constants[0];
  back = {};  // the constant keeps the mapping alive
  EXPECT_EQ(std::memcmp(w.bytes.data(), e.constants[0].bytes.data(), w.bytes.size()), 0);
  EXPECT_EQ(read_file(path_), serialize(e));
}

TEST_F(FileFormatTest, EveryFlippedByteIsDetected) {
  std::vector<uint8_t> bytes = serialize(sample());
  ASSERT_LT(bytes.size(), 40000u);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (uint8_t mask : {uint8_t{0x01}, uint8_t{0x80}, uint8_t{0xff}}) {
      bytes[i] ^= mask;
      bool detected = false;
      try {
        deserialize(bytes);
      } catch (const Error& e) {
        detected = e.status() == Status::kCorrupt || e.status() == Status::kIncompatible;
      }
      ASSERT_TRUE(detected) << "byte " << i << " xor " << int{mask};
      bytes[i] ^= mask;
    }
  }
}

std::string error_of(std::span<const uint8_t> bytes, Status status = Status::kCorrupt) {
  try {
    deserialize(bytes, {}, "m.nimble");
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), status) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    EXPECT_EQ(e.place().rfind("m.nimble", 0), 0u);
    EXPECT_FALSE(e.remedy().empty());
    return e.what();
  }
  return "no error";
}

TEST_F(FileFormatTest, EveryTruncationSaysTheSizes) {
  const std::vector<uint8_t> bytes = serialize(sample());
  EXPECT_THAT(error_of({}), HasSubstr("is not a nimble executable"));
  for (size_t n = 1; n < bytes.size(); n += 13) {
    const std::string text = error_of(std::span(bytes).first(n));
    EXPECT_THAT(text, AllOf(HasSubstr("is truncated"), HasSubstr(fmt::format("{} there", n))));
    if (n >= kHeaderSize) {
      EXPECT_THAT(text, HasSubstr(fmt::format("{} bytes expected", bytes.size())));
    }
  }
}

// Rewrites the header checksum after `bytes` was changed on purpose.
void reseal(std::vector<uint8_t>* bytes, size_t sections) {
  const size_t end = kHeaderSize + sections * kTableEntrySize;
  const uint64_t hash = hash64(std::span(*bytes).first(end));
  std::memcpy(bytes->data() + end, &hash, sizeof hash);
}

// A section of a file that has all of them, and what the reader says where a byte of it is another.
class SectionBytes {
 public:
  SectionBytes(std::vector<uint8_t> file, Section section) : file_(std::move(file)) {
    EXPECT_EQ(file_[16], kSectionCount);
    while (file_[entry_] != static_cast<uint8_t>(section)) entry_ += kTableEntrySize;
    std::memcpy(&offset_, file_.data() + entry_ + 8, sizeof offset_);
    std::memcpy(&size_, file_.data() + entry_ + 16, sizeof size_);
  }

  uint64_t size() const { return size_; }
  uint8_t flag() const { return file_[entry_ + 4]; }

  std::string error_with(uint64_t at, uint8_t was, uint8_t value) const {
    std::vector<uint8_t> bytes = file_;
    EXPECT_EQ(bytes[offset_ + at], was);
    bytes[offset_ + at] = value;
    const uint64_t hash = hash64({bytes.data() + offset_, size_});
    std::memcpy(bytes.data() + entry_ + 24, &hash, sizeof hash);
    reseal(&bytes, kSectionCount);
    return error_of(bytes);
  }

 private:
  std::vector<uint8_t> file_;
  size_t entry_ = kHeaderSize;
  uint64_t offset_ = 0, size_ = 0;
};

TEST_F(FileFormatTest, EachFaultHasItsMessage) {
  const std::vector<uint8_t> good = serialize(sample());
  std::vector<uint8_t> text = {'#', '!', '/', 'b', 'i', 'n'};
  EXPECT_THAT(error_of(text), HasSubstr("is not a nimble executable"));

  std::vector<uint8_t> newer = good;
  newer[8] = kFormatVersion + 1;
  EXPECT_THAT(error_of(newer, Status::kIncompatible),
              HasSubstr(fmt::format("format version {}, this nimble reads up to {}",
                                    kFormatVersion + 1, kFormatVersion)));
  std::vector<uint8_t> older = good;
  older[8] = 1;
  EXPECT_THAT(error_of(older, Status::kIncompatible),
              HasSubstr(fmt::format("format version 1, this nimble reads from {} on",
                                    kOldestFormatVersion)));

  std::vector<uint8_t> longer = good;
  longer.push_back(0);
  EXPECT_THAT(error_of(longer), HasSubstr("bytes expected"));

  // Flip a byte inside each section: the message names it.
  for (uint32_t i = 0; i < kSectionCount; ++i) {
    uint32_t id;
    uint64_t offset, size;
    const uint8_t* entry = good.data() + kHeaderSize + i * kTableEntrySize;
    std::memcpy(&id, entry, sizeof id);
    std::memcpy(&offset, entry + 8, sizeof offset);
    std::memcpy(&size, entry + 16, sizeof size);
    ASSERT_GT(size, 0u);
    std::vector<uint8_t> damaged = good;
    damaged[offset + size / 2] ^= 4;
    EXPECT_THAT(error_of(damaged), HasSubstr(fmt::format("checksum of section \"{}\"",
                                                         name_of(static_cast<Section>(id)))));
  }
}

// The header of a file that version 3 wrote: the version is read before anything that has changed
// since, so the message is this one whatever comes after.
TEST_F(FileFormatTest, FilesOfEarlierVersionsAreRefusedByName) {
  constexpr std::string_view kVersion3 =
      "8f4e494d424c450a03000000000000000b0000000000000000100000000000000100000001000000"
      "c0010000000000002b0000000000000085ce8e49bdf9f0d802000000010000000002000000000000"
      "0f00000000000000bca1f16afe29b1d4030000000100000040020000000000000100000000000000"
      "dbec4e07f4df4bc4040000000100000080020000000000004d000000000000008caaf611cf87d685"
      "050000000100000000030000000000000100000000000000dbec4e07f4df4bc40600000001000000"
      "400300000000000021000000000000003e0a8e7fb7bd873c07000000010000008003000000000000"
      "0100000000000000dbec4e07f4df4bc40800000000000000c0030000000000000500000000000000"
      "4232273a89e564e80c0000000000000000040000000000000100000000000000dbec4e07f4df4bc4"
      "090000000100000000100000000000000000000000000000c294d3380580062d0a00000001000000"
      "00100000000000000000000000000000c294d3380580062d3279d3cc4476bea2";
  std::vector<uint8_t> file;
  for (size_t i = 0; i < kVersion3.size(); i += 2)
    file.push_back(
        static_cast<uint8_t>(std::stoi(std::string(kVersion3.substr(i, 2)), nullptr, 16)));
  EXPECT_THAT(error_of(file, Status::kIncompatible),
              AllOf(HasSubstr("has format version 3, this nimble reads from 4 on"),
                    HasSubstr("compile the model anew")));
}

TEST_F(FileFormatTest, UnknownSectionsAreSkippedUnlessRequired) {
  std::vector<uint8_t> bytes = serialize(sample());
  // Provenance is optional: give its entry an unknown number.
  for (uint32_t i = 0; i < kSectionCount; ++i) {
    uint8_t* entry = bytes.data() + kHeaderSize + i * kTableEntrySize;
    if (entry[0] != static_cast<uint8_t>(Section::kProvenance)) continue;
    ASSERT_EQ(entry[4], 0) << "provenance is optional";
    entry[0] = 77;
    reseal(&bytes, kSectionCount);
    const Executable e = deserialize(bytes);
    EXPECT_EQ(e.functions.size(), 3u);
    EXPECT_EQ(e.provenance.compiler, "");
    entry[4] = kRequired;
    reseal(&bytes, kSectionCount);
    EXPECT_THAT(error_of(bytes, Status::kIncompatible), HasSubstr("unknown section 77"));
  }
}

// Files from before say nothing of options.
TEST_F(FileFormatTest, OptionsMayBeMissing) {
  std::vector<uint8_t> bytes = serialize(sample());
  bool found = false;
  for (uint32_t i = 0; i < kSectionCount; ++i) {
    uint8_t* entry = bytes.data() + kHeaderSize + i * kTableEntrySize;
    if (entry[0] != static_cast<uint8_t>(Section::kOptions)) continue;
    found = true;
    EXPECT_EQ(entry[4], 0) << "older readers skip it";
    entry[0] = 77;
  }
  ASSERT_TRUE(found);
  reseal(&bytes, kSectionCount);
  const Executable e = deserialize(bytes);
  EXPECT_EQ(e.provenance.compiler, "nimble 0.1");
  EXPECT_TRUE(e.provenance.options.empty());
}

// What runs on the CPU alone needs no reader that knows of devices.
TEST_F(FileFormatTest, DevicesComeBack) {
  const Executable e = sample();
  const Executable back = deserialize(serialize(e));
  for (size_t i = 0; i < e.kernels.size(); ++i)
    EXPECT_EQ(back.kernels[i].device, e.kernels[i].device);
  for (size_t i = 0; i < e.constants.size(); ++i)
    EXPECT_EQ(back.constants[i].device, e.constants[i].device);
}

// A reader that skips the section runs all with one share a thread; indices are of what is there.
TEST_F(FileFormatTest, DivisibleImplementationsComeBack) {
  Executable e = sample();
  const std::vector<uint8_t> good = serialize(e);
  const Executable back = deserialize(good);
  size_t divisible = 0;
  for (size_t k = 0; k < e.kernels.size(); ++k)
    for (size_t i = 0; i < e.kernels[k].implementations.size(); ++i) {
      EXPECT_EQ(back.kernels[k].implementations[i].divisible,
                e.kernels[k].implementations[i].divisible);
      divisible += e.kernels[k].implementations[i].divisible;
    }
  ASSERT_EQ(divisible, 1u);
  const SectionBytes section(good, Section::kDivisible);
  EXPECT_EQ(section.flag(), 0);
  ASSERT_EQ(section.size(), 3u);  // a count, a kernel, an implementation
  EXPECT_THAT(section.error_with(0, 1, 100),
              HasSubstr("number of divisible implementations is 100"));
  EXPECT_THAT(section.error_with(1, 0, 99), HasSubstr("of kernel 99 is divisible and not there"));
  EXPECT_THAT(section.error_with(2, 1, 9), HasSubstr("implementation 9 of kernel"));
  for (exec::Kernel& k : e.kernels)
    for (exec::Implementation& i : k.implementations) i.divisible = false;
  EXPECT_EQ(serialize(e)[16], kSectionCount - 1);
}

// What has no GPU's code is written as before there was any, and is read without that section.
TEST_F(FileFormatTest, OnlyFilesWithCodeOfGpusHaveItsSection) {
  Executable e = sample();
  const Executable back = deserialize(serialize(e));
  for (size_t k = 0; k < e.kernels.size(); ++k)
    for (size_t i = 0; i < e.kernels[k].implementations.size(); ++i)
      EXPECT_EQ(back.kernels[k].implementations[i].launch, e.kernels[k].implementations[i].launch);
  EXPECT_EQ(back.kernels[4].implementations[1].launch->threads, 1024u);
  EXPECT_EQ(back.kernels[4].implementations[0].launch->alignment, exec::Launch::kMaxAlignment);
  EXPECT_EQ(back.kernels[4].implementations[1].launch->alignment, 8u);
  EXPECT_FALSE(back.kernels[4].implementations[0].launch->steps);
  EXPECT_TRUE(back.kernels[4].implementations[1].launch->steps);
  for (size_t i = 0; i < e.images.size(); ++i) EXPECT_EQ(back.images[i].device, e.images[i].device);
  e.kernels.pop_back();
  e.images.pop_back();
  const std::vector<uint8_t> bytes = serialize(e);
  EXPECT_EQ(bytes[16], kSectionCount - 3);
  for (uint32_t i = 0; i < bytes[16]; ++i)
    for (const Section s : {Section::kGpu, Section::kGpuSteps, Section::kTensorMaps})
      EXPECT_NE(bytes[kHeaderSize + i * kTableEntrySize], static_cast<uint8_t>(s));
  expect_same(e, deserialize(bytes));
}

TEST_F(FileFormatTest, OnlyFilesWithStepsHaveTheirSection) {
  Executable e = sample();
  e.kernels[4].implementations[1].launch->steps.reset();
  const std::vector<uint8_t> bytes = serialize(e);
  EXPECT_EQ(bytes[16], kSectionCount - 1);
  expect_same(e, deserialize(bytes));
}

// Its bytes: one launch, by the indices of its kernel and implementation, and a program.
TEST_F(FileFormatTest, StepsAreOfLaunchesThatAreThere) {
  const std::vector<uint8_t> good = serialize(sample());
  const SectionBytes section(good, Section::kGpuSteps);
  EXPECT_EQ(section.flag(), kRequired) << "a reader that skips it would start one step";
  EXPECT_THAT(section.error_with(0, 1, 100), HasSubstr("number of launches with steps is 100"));
  EXPECT_THAT(section.error_with(1, 4, 5), HasSubstr("steps of implementation 1 of kernel 5"));
  EXPECT_THAT(section.error_with(1, 4, 0), HasSubstr("which has some or no launch"));
  EXPECT_THAT(section.error_with(2, 1, 9), HasSubstr("steps of implementation 9 of kernel 4"));
}

// Its bytes: two launches, each of them with the indices of a kernel and an implementation; at the
// end, one image with its device and two modules, each of them with a name of five letters.
TEST_F(FileFormatTest, LaunchesAndDevicesAreOfWhatIsThere) {
  const std::vector<uint8_t> good = serialize(sample());
  const SectionBytes section(good, Section::kGpu);
  EXPECT_EQ(section.flag(), kRequired) << "a reader that skips it would run code of another device";
  EXPECT_EQ(section.error_with(0, 2, 2), "no error");
  EXPECT_THAT(section.error_with(0, 2, 100), HasSubstr("number of launches is 100"));
  EXPECT_THAT(section.error_with(1, 4, 5), HasSubstr("a launch of implementation 0 of kernel 5"));
  EXPECT_THAT(section.error_with(2, 0, 2), HasSubstr("a launch of implementation 2 of kernel 4"));
  EXPECT_THAT(section.error_with(2, 0, 1), HasSubstr("a launch of implementation 1 of kernel 4"))
      << "the second one is of the same";
  constexpr uint64_t kModules = 2 * (1 + 5 + 2);
  EXPECT_THAT(section.error_with(section.size() - kModules - 4, 1, 9),
              HasSubstr("number of images is 9"));
  EXPECT_THAT(section.error_with(section.size() - kModules - 3, 2, 3),
              HasSubstr("the device of image 3"));
  EXPECT_THAT(section.error_with(section.size() - kModules - 1, 2, 9),
              HasSubstr("number of modules is 9"));
}

// Its bytes: one launch, the indices of its kernel and implementation, one map, of the first tensor
// and of two axes.
TEST_F(FileFormatTest, TensorMapsComeBackWithTheirLaunches) {
  Executable e = sample();
  ASSERT_EQ(e.kernels[4].implementations[0].launch->maps.size(), 1u);
  const std::vector<uint8_t> good = serialize(e);
  const Executable back = deserialize(good);
  EXPECT_EQ(back.kernels[4].implementations[0].launch->maps,
            e.kernels[4].implementations[0].launch->maps);
  EXPECT_TRUE(back.kernels[4].implementations[1].launch->maps.empty());
  const SectionBytes section(good, Section::kTensorMaps);
  EXPECT_EQ(section.flag(), kRequired) << "a reader that skips it would launch without them";
  EXPECT_EQ(section.error_with(0, 1, 1), "no error");
  EXPECT_THAT(section.error_with(0, 1, 100),
              HasSubstr("number of launches with tensor maps is 100"));
  EXPECT_THAT(section.error_with(1, 4, 9),
              HasSubstr("tensor maps of implementation 0 of kernel 9"));
  EXPECT_THAT(section.error_with(1, 4, 0), HasSubstr("tensor maps of implementation 0 of kernel 0"))
      << "it has no launch";
  EXPECT_THAT(section.error_with(2, 0, 7),
              HasSubstr("tensor maps of implementation 7 of kernel 4"));
  EXPECT_THAT(section.error_with(3, 1, 0), HasSubstr("no tensor map of kernel 4"));
  EXPECT_THAT(section.error_with(3, 1, 100), HasSubstr("number of tensor maps is 100"));
  EXPECT_THAT(section.error_with(5, 2, 100), HasSubstr("rank of a tensor map is 100"));
  e.kernels[4].implementations[0].launch->maps.clear();
  EXPECT_EQ(serialize(e)[16], kSectionCount - 1);
}

// A constant's record ends with where its data lies; these have offsets of one byte.
TEST_F(FileFormatTest, DataOfTwoConstantsDoesNotOverlap) {
  Executable e;
  const std::vector<uint8_t> ones(256, 1), twos(64, 2);
  e.constants.push_back({"a", DType::kU8, {256}, ones, nullptr, true, 0});
  e.constants.push_back({"b", DType::kU8, {64}, twos, nullptr, true, 0});
  std::vector<uint8_t> bytes = serialize(e);
  EXPECT_EQ(deserialize(bytes).constants.size(), 2u);
  // The last record: flag, offset 256 as a varint, size 64.
  for (uint32_t i = 0; i < 16; ++i) {
    uint8_t* entry = bytes.data() + kHeaderSize + i * kTableEntrySize;
    if (entry[0] != static_cast<uint8_t>(Section::kConstants)) continue;
    uint64_t offset, size;
    std::memcpy(&offset, entry + 8, sizeof offset);
    std::memcpy(&size, entry + 16, sizeof size);
    uint8_t* end = bytes.data() + offset + size;
    ASSERT_EQ(end[-3], 0x80);
    ASSERT_EQ(end[-2], 0x02);
    ASSERT_EQ(end[-1], 64);
    end[-3] = 0xc0;  // offset 192, inside the first one
    end[-2] = 0x01;
    const uint64_t hash = hash64({bytes.data() + offset, size});
    std::memcpy(entry + 24, &hash, sizeof hash);
    reseal(&bytes, bytes[16]);
    EXPECT_THAT(error_of(bytes), HasSubstr("the data of two constants overlaps"));
    return;
  }
  FAIL() << "no section of constants";
}

// Files hold the numbers: a row of Sections.def that moves makes old files other ones.
TEST(FormatTest, SectionsKeepTheirNumbers) {
  const std::pair<uint32_t, Section> sections[] = {
      {1, Section::kFunctions},   {4, Section::kKernels}, {10, Section::kImageData},
      {11, Section::kPortable},   {14, Section::kGpu},    {16, Section::kGpuSteps},
      {17, Section::kTensorMaps},
  };
  for (const auto& [number, section] : sections)
    EXPECT_EQ(static_cast<uint32_t>(section), number) << name_of(section);
  EXPECT_EQ(name_of(Section::kTensorMaps), "tensor maps");
  EXPECT_EQ(name_of(static_cast<Section>(kSectionCount + 1)), "unknown");
}

// Whoever may write to a file that nobody trusts cannot change it after it was checked.
TEST_F(FileFormatTest, WithoutTrustAFileMayChangeAfterItWasRead) {
  const Executable e = sample();
  write(e, path_);
  const Executable copied = read(path_), mapped = read(path_, {.trust = true});
  const std::vector<uint8_t> size(read_file(path_).size());
  // In place, as no honest program would: writing anew makes another file.
  std::FILE* file = std::fopen(path_.c_str(), "r+b");
  ASSERT_TRUE(file);
  ASSERT_EQ(std::fwrite(size.data(), 1, size.size(), file), size.size());
  std::fclose(file);
  expect_same(e, copied);
  const std::span<const uint8_t> changed = mapped.constants[0].bytes;
  EXPECT_TRUE(std::all_of(changed.begin(), changed.end(), [](uint8_t b) { return b == 0; }));
  ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
  expect_same(e, copied);
}

// The caller's buffer is his own, during the call and afterwards.
TEST_F(FileFormatTest, WhatIsReadFromMemoryIsCopied) {
  std::vector<uint8_t> bytes = serialize(sample());
  for (bool trust : {false, true}) {
    std::vector<uint8_t> given = bytes;
    const Executable e = deserialize(given, {.trust = trust});
    std::fill(given.begin(), given.end(), 0);
    expect_same(sample(), e);
  }
}

Status status_with(const LoadLimits& limits, const std::string& path, bool trust = false) {
  try {
    read(path, {trust, limits});
  } catch (const Error& e) {
    EXPECT_FALSE(e.remedy().empty());
    return e.status();
  }
  return Status::kOk;
}

TEST_F(FileFormatTest, ReadingIsBounded) {
  Executable e = sample();
  write(e, path_);
  const uint64_t size = read_file(path_).size();
  const uint64_t needed = read(path_).memory;
  EXPECT_GT(needed, size);
  EXPECT_EQ(status_with({needed}, path_), Status::kOk);
  for (const uint64_t memory : {needed - 1, (size + needed) / 2, size, size - 1, uint64_t{1}})
    EXPECT_EQ(status_with({memory}, path_), Status::kExhausted) << memory;
  EXPECT_EQ(status_with({needed - size}, path_, true), Status::kOk) << "a mapping is not memory";
  EXPECT_EQ(status_with({needed - size - 1}, path_, true), Status::kExhausted);
  uint64_t constants = 0;
  for (const Constant& c : e.constants) constants += c.bytes.size();
  EXPECT_EQ(status_with({0, constants}, path_), Status::kOk);
  EXPECT_EQ(status_with({0, constants - 1}, path_), Status::kExhausted);
  // A file of holes takes no disk and would take all memory.
  ASSERT_EQ(::truncate(path_.c_str(), int64_t{1} << 40), 0);
  EXPECT_EQ(status_with({}, path_), Status::kExhausted);
}

// A byte of the file may become a hundred in memory, never a thousand: nothing is decoded before it
// is counted.
TEST_F(FileFormatTest, WhatIsDecodedIsCounted) {
  Executable e;
  e.texts.resize(100'000);
  const uint64_t memory = deserialize(serialize(e)).memory;
  EXPECT_GE(memory, e.texts.size() * sizeof(std::string));
  BytecodeFunction f{"f", 0, 1, {}, {}};
  f.code.assign(100'000, {Opcode::kGoto, {0}});
  e = {};
  e.functions.push_back(f);
  EXPECT_GE(deserialize(serialize(e)).memory, f.code.size() * (sizeof(Instruction) + 8));
  try {
    deserialize(serialize(e), {false, {1 << 20}}, "m.nimble");
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kExhausted);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("section \"functions\""), HasSubstr("--load-memory")));
  }
}

TEST_F(FileFormatTest, MissingFilesAndFolders) {
  EXPECT_THROW(read("/nonexistent/m.nimble"), Error);
  EXPECT_THROW(write(sample(), "/nonexistent/m.nimble"), Error);
}

TEST(OpcodesTest, EveryOpcodeSurvivesEncoding) {
  for (int op = 0; op < kOpcodeCount; ++op) {
    Instruction in{static_cast<Opcode>(op), {}};
    int64_t next = 1;
    for (const OperandSpec& spec : info_of(in.op).operands) {
      if (is_list(spec.kind)) in.operands.push_back(3);
      for (int i = 0; i < (is_list(spec.kind) ? 3 : 1); ++i)
        in.operands.push_back(spec.kind == OperandKind::kImm || spec.kind == OperandKind::kImms
                                  ? -(next *= 100)
                                  : next *= 7);
    }
    ByteWriter out;
    encode(in, &out);
    ByteReader reader(out.view(), "test");
    EXPECT_EQ(decode(&reader), in) << name_of(in.op);
    reader.expect_end();
    EXPECT_EQ(opcode_from_name(name_of(in.op)), in.op);
    EXPECT_TRUE(operands_of(in));
    Instruction longer = in, shorter = in;
    longer.operands.push_back(0);
    shorter.operands.pop_back();
    EXPECT_FALSE(operands_of(longer)) << name_of(in.op);
    EXPECT_FALSE(operands_of(shorter)) << name_of(in.op);
  }
  // The paper's Table C.1, whose numbers stay, and then our own.
  for (int i = 0; i < kOpcodeCount; ++i)
    EXPECT_EQ(info_of(static_cast<Opcode>(i)).origin == Origin::kPaper, i < 22) << i;
  EXPECT_EQ(opcode_from_name("Add"), std::nullopt);
}

TEST(OpcodesTest, CommonInstructionsAreShort) {
  ByteWriter out;
  encode({Opcode::kMove, {100, 101}}, &out);
  EXPECT_EQ(out.size(), 3u);
  encode({Opcode::kInvokePacked, {3, 4, 1, 2, 3, 4}}, &out);
  EXPECT_EQ(out.size(), 3u + 7u);
}

}  // namespace
}  // namespace nimble::exec
