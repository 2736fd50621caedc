// Zip, as far as NumPy's archives need it. The central directory at the end of the file is the
// truth about members; local headers only tell where a member's data begins. NumPy writes zip64
// extra fields even for small members, so the 64-bit fields are read where the 32-bit ones are
// saturated.
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "vm/base/bytes.h"
#include "vm/base/error.h"
#include "vm/base/file.h"
#include "vm/base/npy.h"

namespace nimble {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr size_t kEndSize = 22, kLocatorSize = 20;

struct Member {
  std::string name;
  uint16_t flags = 0, method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0, offset = 0;
};

[[noreturn]] void corrupt(const std::string& place, std::string problem) {
  throw Error(Status::kCorrupt, place, std::move(problem), "save the arrays anew with numpy.savez");
}

ByteReader reader_at(std::span<const uint8_t> file, uint64_t offset, const std::string& place) {
  if (offset > file.size()) corrupt(place, "a zip record lies outside the file");
  return ByteReader(file.subspan(static_cast<size_t>(offset)), place);
}

struct Directory {
  uint64_t entries = 0, offset = 0;
};

Directory find_directory(std::span<const uint8_t> file, const std::string& place) {
  if (file.size() < kEndSize) corrupt(place, "is no .npz file");
  // The end record may be followed by a comment of up to 64 KiB.
  const size_t lowest = file.size() - std::min(file.size(), kEndSize + 0xffff);
  for (size_t at = file.size() - kEndSize + 1; at-- > lowest;) {
    ByteReader in = reader_at(file, at, place);
    if (in.u32() != kEnd) continue;
    in.skip(6);
    Directory d;
    d.entries = in.u16();
    in.skip(4);
    d.offset = in.u32();
    const bool saturated = d.entries == 0xffff || d.offset == 0xffffffffu;
    if (!saturated || at < kLocatorSize) return d;
    ByteReader locator = reader_at(file, at - kLocatorSize, place);
    if (locator.u32() != kLocator64) return d;
    locator.skip(4);
    ByteReader end64 = reader_at(file, locator.u64(), place);
    if (end64.u32() != kEnd64) corrupt(place, "the zip64 end record is missing");
    end64.skip(28);
    d.entries = end64.u64();
    end64.skip(8);
    d.offset = end64.u64();
    return d;
  }
  corrupt(place, "is no .npz file, or is truncated");
}

Member read_central(ByteReader* in, const std::string& place) {
  if (in->u32() != kCentral) corrupt(place, "the zip directory is damaged");
  Member m;
  in->skip(4);
  m.flags = in->u16();
  m.method = in->u16();
  in->skip(4);
  m.crc = in->u32();
  m.packed = in->u32();
  m.size = in->u32();
  const size_t name = in->u16(), extra = in->u16(), comment = in->u16();
  in->skip(8);
  m.offset = in->u32();
  const std::span<const uint8_t> text = in->bytes(name);
  m.name.assign(text.begin(), text.end());
  ByteReader fields(in->bytes(extra), place);
  in->skip(comment);
  while (fields.left() >= 4) {
    const uint16_t id = fields.u16();
    const size_t size = fields.u16();
    ByteReader field(fields.bytes(size), place);
    if (id != 1) continue;
    for (uint64_t* value : {&m.size, &m.packed, &m.offset})
      if (*value == 0xffffffffu) *value = field.u64();
  }
  return m;
}

std::vector<uint8_t> inflate_raw(std::span<const uint8_t> packed, size_t size,
                                 const std::string& place) {
  // deflate packs at best about 1:1032, so a larger claim is a lie not worth allocating for.
  if (size / 1040 > packed.size()) corrupt(place, "claims an impossible size");
  std::vector<uint8_t> out(size);
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
    throw Error(Status::kExhausted, place, "not enough memory to decompress", "free some memory");
  size_t consumed = 0, produced = 0;
  int code = Z_OK;
  uint8_t nothing = 0;
  while (code == Z_OK) {  // zlib counts in 32 bits, so both sides are fed in pieces
    const uInt in_now = static_cast<uInt>(std::min<size_t>(packed.size() - consumed, 1u << 30));
    const uInt out_now = static_cast<uInt>(std::min<size_t>(size - produced, 1u << 30));
    stream.next_in = const_cast<Bytef*>(packed.data() + consumed);
    stream.avail_in = in_now;
    stream.next_out = out_now ? out.data() + produced : &nothing;
    stream.avail_out = out_now;
    code = inflate(&stream, Z_NO_FLUSH);
    consumed += in_now - stream.avail_in;
    produced += out_now - stream.avail_out;
  }
  inflateEnd(&stream);
  if (code != Z_STREAM_END || produced != size) corrupt(place, "the compressed data is damaged");
  return out;
}

// Where a member's data lies; its local header comes before.
struct Place {
  uint64_t begin = 0, end = 0;
  std::string member;
};

// Members that share bytes are a bomb: one compressed stream behind ten thousand names.
void expect_apart(std::vector<Place> places) {
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < places.size(); ++i)
    if (places[i].begin < places[i - 1].end)
      corrupt(places[i].member, fmt::format("lies over {}", places[i - 1].member));
}

// What the members may have in all, decompressed. Honest arrays pack at 1:1000 if they are nothing
// but zeros, and are then small.
uint64_t largest_total(size_t file) {
  return std::max<uint64_t>(uint64_t{1} << 30, uint64_t{64} * file);
}

uint32_t crc_of(std::span<const uint8_t> bytes) {
  return static_cast<uint32_t>(crc32_z(crc32_z(0, nullptr, 0), bytes.data(), bytes.size()));
}

}  // namespace

NamedArrays parse_npz(std::span<const uint8_t> file, const std::string& place) {
  const Directory directory = find_directory(file, place);
  ByteReader in = reader_at(file, directory.offset, place);
  if (directory.entries > in.left() / 46) corrupt(place, "claims an impossible number of members");
  // All of the directory is checked before anything is decompressed.
  std::vector<Member> members;
  std::vector<std::span<const uint8_t>> contents;
  std::vector<Place> places;
  uint64_t total = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const Member m = read_central(&in, place);
    if (m.name.ends_with('/')) continue;
    const std::string inner = place + ":" + m.name;
    if (m.flags & 1) throw Error(Status::kUnsupported, inner, "is encrypted", "save it plainly");
    ByteReader local = reader_at(file, m.offset, inner);
    if (local.u32() != kLocal) corrupt(inner, "its local header is damaged");
    local.skip(22);
    const size_t name = local.u16(), extra = local.u16();
    local.skip(name + extra);
    if (m.packed > local.left()) corrupt(inner, "is truncated");
    contents.push_back(local.bytes(static_cast<size_t>(m.packed)));
    places.push_back({m.offset, m.offset + local.offset(), inner});
    const uint64_t most = largest_total(file.size());
    if (m.size > most - total)
      throw Error(Status::kExhausted, inner,
                  fmt::format("the arrays are larger than {} bytes, unpacked", most),
                  "save them as .npy files");
    total += m.size;
    members.push_back(m);
  }
  expect_apart(std::move(places));
  NamedArrays out;
  for (size_t i = 0; i < members.size(); ++i) {
    const Member& m = members[i];
    const std::string inner = place + ":" + m.name;
    const std::span<const uint8_t> packed = contents[i];
    std::vector<uint8_t> inflated;
    std::span<const uint8_t> data = packed;
    if (m.method == 8) {
      inflated = inflate_raw(packed, static_cast<size_t>(m.size), inner);
      data = inflated;
    } else if (m.method != 0) {
      throw Error(Status::kUnsupported, inner,
                  fmt::format("is packed with zip method {}", m.method),
                  "use numpy.savez or numpy.savez_compressed");
    }
    if (crc_of(data) != m.crc) corrupt(inner, "its check sum does not match");
    std::string key = m.name.ends_with(".npy") ? m.name.substr(0, m.name.size() - 4) : m.name;
    out.emplace_back(std::move(key), parse_npy(data, inner));
  }
  return out;
}

NamedArrays read_npz(const std::string& path) {
  return parse_npz(MappedFile::open(path)->bytes(), path);
}

void write_npz(const std::string& path, const NamedArrays& arrays) {
  ByteWriter out, central;
  if (arrays.size() >= 0xffff)
    throw Error(Status::kUnsupported, path, "too many arrays for one .npz file", "use .npy files");
  for (const auto& [name, array] : arrays) {
    const std::vector<uint8_t> data = serialize_npy(array.dtype, array.shape, array.bytes);
    if (data.size() + out.size() >= 0xffffffffu)
      throw Error(Status::kUnsupported, path, "an .npz file of 4 GiB or more", "use .npy files");
    const std::string member = name + ".npy";
    if (member.size() > 0xffff)
      throw Error(Status::kUnsupported, path,
                  fmt::format("a name of {} characters in an .npz file", name.size()),
                  "use .npy files");
    const uint32_t offset = static_cast<uint32_t>(out.size());
    auto common = [&](ByteWriter* w) {
      w->u16(20);           // version needed
      w->u16(1u << 11);     // names are UTF-8
      w->u16(0);            // stored
      w->u32(0x00210000u);  // 1980-01-01: the same arrays give the same bytes
      w->u32(crc_of(data));
      w->u32(static_cast<uint32_t>(data.size()));
      w->u32(static_cast<uint32_t>(data.size()));
      w->u16(static_cast<uint16_t>(member.size()));
      w->u16(0);  // extra
    };
    const std::span<const uint8_t> text(reinterpret_cast<const uint8_t*>(member.data()),
                                        member.size());
    out.u32(kLocal);
    common(&out);
    out.bytes(text);
    out.bytes(data);
    central.u32(kCentral);
    central.u16(20);  // version made by
    common(&central);
    central.u16(0);  // comment
    central.u16(0);  // disk
    central.u16(0);  // internal attributes
    central.u32(0);  // external attributes
    central.u32(offset);
    central.bytes(text);
  }
  const uint32_t offset = static_cast<uint32_t>(out.size());
  out.bytes(central.view());
  out.u32(kEnd);
  out.u32(0);  // disks
  out.u16(static_cast<uint16_t>(arrays.size()));
  out.u16(static_cast<uint16_t>(arrays.size()));
  out.u32(static_cast<uint32_t>(central.size()));
  out.u32(offset);
  out.u16(0);  // comment
  write_file_atomically(path, out.view());
}

}  // namespace nimble
