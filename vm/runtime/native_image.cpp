#include "vm/runtime/native_image.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "vm/base/cpu.h"
#include "vm/base/error.h"

namespace nimble::rt {

namespace {
// This program's architecture in ELF's numbers: of the machine, and of its two kinds of relocation
// that an image may have.
struct Machine {
  uint16_t number;
  uint32_t none, relative;
};
#if defined(__x86_64__)
constexpr Machine kHere = {EM_X86_64, R_X86_64_NONE, R_X86_64_RELATIVE};
#elif defined(__aarch64__)
constexpr Machine kHere = {EM_AARCH64, R_AARCH64_NONE, R_AARCH64_RELATIVE};
#else
constexpr Machine kHere = {EM_NONE, 0, 0};
#endif

std::string name_of_machine(uint16_t number) {
  switch (number) {
    case EM_X86_64:
      return std::string(name_of(CpuArchitecture::kX86_64));
    case EM_AARCH64:
      return std::string(name_of(CpuArchitecture::kAArch64));
    case EM_NONE:
      return "one without native code";
    default:
      return fmt::format("number {} of ELF", number);
  }
}

// Far more than any model's kernels; keeps a damaged size from reserving the address space.
constexpr uint64_t kMaxImage = uint64_t{1} << 32;
}  // namespace

// The steps of loading, each checking what it reads: nothing in the file is believed.
class ElfLoader {
 public:
  ElfLoader(std::span<const uint8_t> elf, const std::string& place, uint64_t page_bytes)
      : elf_(elf), place_(place), page_(page_bytes) {}

  std::shared_ptr<const NativeImage> load() {
    read_headers();
    map_segments();
    read_dynamic();
    relocate();
    read_symbols();
    protect();
    return image_;
  }

 private:
  uint64_t page_down(uint64_t v) const { return v / page_ * page_; }
  uint64_t page_up(uint64_t v) const { return (v + page_ - 1) / page_ * page_; }
  [[noreturn]] void corrupt(const std::string& problem) const {
    throw Error(Status::kCorrupt, place_, "native image: " + problem, "compile the model again");
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(Status::kUnsupported, place_, "native image: " + what + ", which is not allowed",
                "link kernels without it and compile the model again");
  }

  template <typename T>
  T from_file(uint64_t offset) const {
    if (offset > elf_.size() || sizeof(T) > elf_.size() - offset) corrupt("it ends early");
    T value;
    std::memcpy(&value, elf_.data() + offset, sizeof value);
    return value;
  }
  // `address` to `address + bytes` must lie in the mapped span.
  uint8_t* at(uint64_t address, uint64_t bytes) const {
    if (address < low_ || address > high_ || bytes > high_ - address)
      corrupt("a table lies outside of its segments");
    return image_->base_ + (address - low_);
  }
  template <typename T>
  T from_image(uint64_t address) const {
    T value;
    std::memcpy(&value, at(address, sizeof(T)), sizeof value);
    return value;
  }

  void read_headers() {
    const auto header = from_file<Elf64_Ehdr>(0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) corrupt("it is not an ELF file");
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
      throw Error(Status::kIncompatible, place_,
                  "native image: it is not for a little-endian machine of 64 bits",
                  "compile the model for this machine");
    if (header.e_machine != kHere.number)
      throw Error(Status::kIncompatible, place_,
                  fmt::format("native image: its machine is {}, and this one is {}",
                              name_of_machine(header.e_machine), name_of_machine(kHere.number)),
                  "compile the model for this machine");
    if (header.e_type != ET_DYN) corrupt("it is not a shared object");
    if (header.e_phentsize != sizeof(Elf64_Phdr)) corrupt("its program headers have a wrong size");
    uint64_t low = UINT64_MAX, high = 0;
    for (int i = 0; i < header.e_phnum; ++i) {
      const auto p = from_file<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
      switch (p.p_type) {
        case PT_LOAD:
          if (p.p_filesz > p.p_memsz || p.p_offset > elf_.size() ||
              p.p_filesz > elf_.size() - p.p_offset)
            corrupt("a segment lies outside of the file");
          if (p.p_vaddr > kMaxImage || p.p_memsz > kMaxImage) corrupt("a segment is too large");
          if ((p.p_flags & PF_W) && (p.p_flags & PF_X))
            refuse("a segment is both writable and executable");
          if (p.p_memsz == 0) break;
          for (const Elf64_Phdr& q : segments_) keep_apart(p, q);
          low = std::min(low, page_down(p.p_vaddr));
          high = std::max(high, page_up(p.p_vaddr + p.p_memsz));
          segments_.push_back(p);
          break;
        case PT_DYNAMIC:
          dynamic_ = p;
          break;
        case PT_GNU_RELRO:
          if (p.p_vaddr > kMaxImage || p.p_memsz > kMaxImage) corrupt("a segment is too large");
          relro_ = p;
          break;
        case PT_TLS:
          refuse("it has thread-local storage");
        case PT_INTERP:
          refuse("it asks for an interpreter");
        case PT_GNU_STACK:
          if (p.p_flags & PF_X) refuse("it asks for an executable stack");
          break;
        default:
          break;  // notes and tables that only debuggers read
      }
    }
    if (segments_.empty()) corrupt("it has no segments");
    if (dynamic_.p_memsz == 0) corrupt("it has no dynamic section");
    low_ = low;
    high_ = high;
  }

  // Pages have one protection, so segments that share one cannot be loaded.
  void keep_apart(const Elf64_Phdr& p, const Elf64_Phdr& q) const {
    if (p.p_vaddr < q.p_vaddr + q.p_memsz && q.p_vaddr < p.p_vaddr + p.p_memsz)
      corrupt("segments overlap");
    if (page_down(p.p_vaddr) < page_up(q.p_vaddr + q.p_memsz) &&
        page_down(q.p_vaddr) < page_up(p.p_vaddr + p.p_memsz))
      throw Error(
          Status::kIncompatible, place_,
          fmt::format("native image: its segments share pages, which have {} bytes here", page_),
          "compile the model again: today's images are linked for this machine's pages");
  }

  void map_segments() {
    image_ = std::shared_ptr<NativeImage>(new NativeImage);
    const size_t size = high_ - low_;
    void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
      throw Error(Status::kExhausted, place_,
                  fmt::format("no memory for {} bytes of native code", size), "free some memory");
    image_->base_ = static_cast<uint8_t*>(base);
    image_->size_ = size;
    for (const Elf64_Phdr& p : segments_)
      std::memcpy(image_->base_ + (p.p_vaddr - low_), elf_.data() + p.p_offset, p.p_filesz);
  }

  void read_dynamic() {
    uint64_t init_array = 0, preinit_array = 0, plt_size = 0, rel_size = 0;
    bool ended = false;  // whatever size the section says that it has
    for (uint64_t i = 0; !ended && i + sizeof(Elf64_Dyn) <= dynamic_.p_memsz;
         i += sizeof(Elf64_Dyn)) {
      const auto d = from_image<Elf64_Dyn>(dynamic_.p_vaddr + i);
      const uint64_t v = d.d_un.d_val;
      switch (d.d_tag) {
        case DT_NULL:
          ended = true;
          break;
        case DT_NEEDED:
          refuse("it needs another library");
        case DT_TEXTREL:
          refuse("it relocates its code");
        case DT_INIT:
        case DT_FINI:
          refuse("it has a constructor or destructor");
        case DT_INIT_ARRAYSZ:
          init_array += v;
          break;
        case DT_FINI_ARRAYSZ:
          init_array += v;
          break;
        case DT_PREINIT_ARRAYSZ:
          preinit_array = v;
          break;
        case DT_PLTRELSZ:
          plt_size = v;
          break;
        case DT_RELSZ:
          rel_size = v;
          break;
        case DT_RELA:
          rela_ = v;
          break;
        case DT_RELASZ:
          rela_size_ = v;
          break;
        case DT_RELAENT:
          if (v != sizeof(Elf64_Rela)) corrupt("its relocations have a wrong size");
          break;
        case 35 /* DT_RELRSZ */:
          if (v > 0) refuse("it has packed relocations (RELR)");
          break;
        case DT_FLAGS:
          if (v & DF_TEXTREL) refuse("it relocates its code");
          if (v & DF_STATIC_TLS) refuse("it has thread-local storage");
          break;
        case DT_SYMTAB:
          symtab_ = v;
          break;
        case DT_STRTAB:
          strtab_ = v;
          break;
        case DT_STRSZ:
          strtab_size_ = v;
          break;
        case DT_HASH:
          hash_ = v;
          break;
        case DT_GNU_HASH:
          gnu_hash_ = v;
          break;
        default:
          break;
      }
    }
    if (init_array > 0 || preinit_array > 0) refuse("it has a constructor or destructor");
    if (plt_size > 0) refuse("it calls other objects through a procedure linkage table");
    if (rel_size > 0) refuse("it has relocations of the REL kind");
    if (symtab_ == 0 || strtab_ == 0) corrupt("it has no symbol table");
  }

  void relocate() {
    if (rela_size_ == 0) return;
    at(rela_, rela_size_);
    for (uint64_t i = 0; i + sizeof(Elf64_Rela) <= rela_size_; i += sizeof(Elf64_Rela)) {
      const auto r = from_image<Elf64_Rela>(rela_ + i);
      const uint32_t type = ELF64_R_TYPE(r.r_info);
      if (type == kHere.none) continue;
      if (type != kHere.relative)
        refuse(fmt::format("it has a relocation of type {} (only relative ones are known)", type));
      if (!in_writable(r.r_offset)) refuse("it relocates a page that is not writable");
      const uint64_t value =
          reinterpret_cast<uint64_t>(image_->base_) - low_ + static_cast<uint64_t>(r.r_addend);
      std::memcpy(at(r.r_offset, 8), &value, 8);
    }
  }

  bool in_writable(uint64_t address) const {
    for (const Elf64_Phdr& p : segments_)
      if ((p.p_flags & PF_W) && address >= p.p_vaddr && p.p_memsz >= 8 &&
          address - p.p_vaddr <= p.p_memsz - 8)
        return true;
    return false;
  }

  // ELF does not say how many dynamic symbols there are; the hash tables know.
  uint64_t symbol_count() const {
    if (hash_) return from_image<uint32_t>(hash_ + 4);
    if (!gnu_hash_) corrupt("it has no symbol hash table");
    const uint32_t buckets = from_image<uint32_t>(gnu_hash_);
    const uint32_t first = from_image<uint32_t>(gnu_hash_ + 4);
    const uint32_t bloom = from_image<uint32_t>(gnu_hash_ + 8);
    const uint64_t bucket_table = gnu_hash_ + 16 + uint64_t{bloom} * 8;
    at(bucket_table, uint64_t{buckets} * 4);
    uint64_t last = 0;
    for (uint64_t i = 0; i < buckets; ++i)
      last = std::max<uint64_t>(last, from_image<uint32_t>(bucket_table + 4 * i));
    if (last < first) return first;
    const uint64_t chains = bucket_table + uint64_t{buckets} * 4;
    while (!(from_image<uint32_t>(chains + 4 * (last - first)) & 1)) ++last;
    return last + 1;
  }

  std::string symbol_name(uint64_t offset) const {
    if (offset >= strtab_size_) corrupt("a symbol's name lies outside of the string table");
    const char* begin = reinterpret_cast<const char*>(at(strtab_ + offset, strtab_size_ - offset));
    const size_t length = ::strnlen(begin, strtab_size_ - offset);
    if (length == strtab_size_ - offset) corrupt("a symbol's name does not end");
    return {begin, length};
  }

  void read_symbols() {
    const uint64_t count = symbol_count();
    if (count > kMaxImage / sizeof(Elf64_Sym)) corrupt("it has too many symbols");
    at(symtab_, count * sizeof(Elf64_Sym));
    std::string undefined;
    for (uint64_t i = 1; i < count; ++i) {
      const auto s = from_image<Elf64_Sym>(symtab_ + i * sizeof(Elf64_Sym));
      const int type = ELF64_ST_TYPE(s.st_info), bind = ELF64_ST_BIND(s.st_info);
      std::string name = symbol_name(s.st_name);
      if (s.st_shndx == SHN_UNDEF) {
        if (!undefined.empty()) undefined += ", ";
        undefined += name;
        continue;
      }
      if (type == STT_TLS) refuse("it has thread-local storage");
      if (type == STT_GNU_IFUNC) refuse(fmt::format("{} is an indirect function", name));
      if (bind == STB_LOCAL || s.st_shndx == SHN_ABS) continue;
      at(s.st_value, 0);
      image_->symbols_[std::move(name)] = {s.st_value - low_, s.st_size, type == STT_FUNC};
    }
    if (!undefined.empty()) refuse("it refers to outside symbols (" + undefined + ")");
  }

  void protect() {
    auto set = [&](uint64_t begin, uint64_t end, int protection) {
      if (::mprotect(image_->base_ + (begin - low_), end - begin, protection) != 0)
        throw Error(Status::kUnsupported, place_, "the system refuses to map native code",
                    "check the security policy of this machine (noexec, SELinux)");
    };
    // What was written as data is to be fetched as instructions; not every machine sees to that by
    // itself.
    auto* begin = reinterpret_cast<char*>(image_->base_);
    __builtin___clear_cache(begin, begin + image_->size_);
    // Gaps between segments stay unreadable.
    set(low_, high_, PROT_NONE);
    for (const Elf64_Phdr& p : segments_)
      set(page_down(p.p_vaddr), page_up(p.p_vaddr + p.p_memsz),
          (p.p_flags & PF_R ? PROT_READ : 0) | (p.p_flags & PF_W ? PROT_WRITE : 0) |
              (p.p_flags & PF_X ? PROT_EXEC : 0));
    if (relro_.p_memsz > 0) {
      const uint64_t begin = page_down(relro_.p_vaddr);
      const uint64_t end = page_down(relro_.p_vaddr + relro_.p_memsz);
      if (end > begin) {
        at(begin, end - begin);
        set(begin, end, PROT_READ);
      }
    }
  }

  std::span<const uint8_t> elf_;
  const std::string& place_;
  const uint64_t page_;
  std::vector<Elf64_Phdr> segments_;
  Elf64_Phdr dynamic_{}, relro_{};
  uint64_t low_ = 0, high_ = 0;  // page-aligned span of all segments
  uint64_t rela_ = 0, rela_size_ = 0, symtab_ = 0, strtab_ = 0, strtab_size_ = 0;
  uint64_t hash_ = 0, gnu_hash_ = 0;
  std::shared_ptr<NativeImage> image_;
};

std::shared_ptr<const NativeImage> NativeImage::load(std::span<const uint8_t> elf,
                                                     const std::string& place,
                                                     uint64_t page_bytes) {
  const auto system = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  NIMBLE_CHECK(page_bytes == 0 || (page_bytes >= system && page_bytes % system == 0));
  return ElfLoader(elf, place, page_bytes ? page_bytes : system).load();
}

NativeImage::~NativeImage() {
  if (base_) ::munmap(base_, size_);
}

const void* NativeImage::find(std::string_view symbol) const {
  const auto it = symbols_.find(std::string(symbol));
  return it == symbols_.end() ? nullptr : base_ + it->second.address;
}

void NativeImage::write_perf_map() const {
  std::string text;
  for (const auto& [name, symbol] : symbols_)
    if (symbol.function)
      text += fmt::format("{:x} {:x} {}\n", reinterpret_cast<uint64_t>(base_) + symbol.address,
                          symbol.size, name);
  const std::string path = fmt::format("/tmp/perf-{}.map", ::getpid());
  // /tmp is shared: never follow a link that another user may have put there.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) throw Error(Status::kIo, path, "cannot write the perf map", "unset NIMBLE_PERF_MAP");
  const ssize_t written = ::write(fd, text.data(), text.size());
  ::close(fd);
  if (written != static_cast<ssize_t>(text.size()))
    throw Error(Status::kIo, path, "cannot write the perf map", "free space in /tmp");
}

}  // namespace nimble::rt
