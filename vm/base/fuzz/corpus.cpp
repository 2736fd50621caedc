#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "vm/base/fuzz/fuzz.h"

namespace nimble::fuzz {
namespace {

namespace fs = std::filesystem;

void write_whole(const std::string& path, std::string_view contents) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  const bool ok = file && std::fwrite(contents.data(), 1, contents.size(), file) == contents.size();
  if (file) std::fclose(file);
  if (!ok) throw Error(Status::kIo, path, "cannot be written", "check the folder and its room");
}

// A word as a dictionary's line has it.
std::string quoted(const std::string& word) {
  std::string out = "\"";
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || byte < 0x20 || byte > 0x7e)
      out += fmt::format("\\x{:02X}", byte);
    else
      out += c;
  }
  return out + "\"\n";
}

}  // namespace

void write_corpus(const std::string& folder) {
  fs::create_directories(folder);
  for (const Seed& s : seeds()) write_whole(folder + "/" + s.name, s.bytes);
  std::string words;
  for (const std::string& w : dictionary())
    if (!w.empty()) words += quoted(w);
  write_whole(folder + ".dict", words);
}

ScratchFolder::ScratchFolder() {
  const fs::path root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path();
  path_ = (root / "nimble-fuzz-XXXXXX").string();
  if (!mkdtemp(path_.data()))
    throw Error(Status::kIo, path_, "cannot be created", "set TMPDIR to a folder with room");
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void ScratchFolder::write(const std::string& name, std::string_view contents) const {
  write_whole(file(name), contents);
}

}  // namespace nimble::fuzz
