#include "vm/executable/assembler_lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "vm/base/error.h"
#include "vm/base/half.h"

namespace nimble::exec {

void AssemblerLexer::fail(const std::string& problem) const {
  const std::string_view before = text_.substr(0, at_);
  const size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  const size_t column = at_ - (before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1) + 1;
  throw Error(Status::kInvalidArgument, fmt::format("line {}:{}", line, column), problem,
              "see the grammar in vm/executable/disassembler.h");
}

bool AssemblerLexer::accept(std::string_view token) {
  if (!peek(token)) return false;
  // A word must not end inside a longer one.
  if (is_word(token.back()) && at_ + token.size() < text_.size() &&
      is_word(text_[at_ + token.size()]))
    return false;
  at_ += token.size();
  skip();
  return true;
}

std::string AssemblerLexer::word() {
  const size_t begin = at_;
  while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  if (at_ == begin) fail("a word expected");
  const std::string out(text_.substr(begin, at_ - begin));
  skip();
  return out;
}

std::string AssemblerLexer::raw(std::string_view delimiters) {
  const size_t begin = at_;
  while (at_ < text_.size() && !std::isspace(static_cast<unsigned char>(text_[at_])) &&
         delimiters.find(text_[at_]) == delimiters.npos)
    ++at_;
  if (at_ == begin) fail("a value expected");
  const std::string out(text_.substr(begin, at_ - begin));
  skip();
  return out;
}

int64_t AssemblerLexer::integer() {
  int64_t value = 0;
  const char* begin = text_.data() + at_;
  const char* end = text_.data() + text_.size();
  const auto [p, code] = std::from_chars(begin, end, value);
  if (code != std::errc()) fail("an integer expected");
  at_ += static_cast<size_t>(p - begin);
  skip();
  return value;
}

uint32_t AssemblerLexer::index() {
  const int64_t v = integer();
  if (v < 0 || v > int64_t{UINT32_MAX}) fail(fmt::format("{} is out of range", v));
  return static_cast<uint32_t>(v);
}

uint64_t AssemblerLexer::hexadecimal() {
  if (!peek("0x")) fail("a hexadecimal number expected");
  uint64_t value = 0;
  const char* begin = text_.data() + at_ + 2;
  const auto [p, code] = std::from_chars(begin, text_.data() + text_.size(), value, 16);
  if (code != std::errc()) fail("a hexadecimal number expected");
  at_ += 2 + static_cast<size_t>(p - begin);
  skip();
  return value;
}

std::string AssemblerLexer::string() {
  if (at_end() || text_[at_] != '"') fail("a string expected");
  std::string out;
  for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
    if (text_[at_] != '\\') {
      out += text_[at_];
      continue;
    }
    if (++at_ == text_.size()) break;
    const char c = text_[at_];
    if (c == 'x') {
      unsigned value = 0;
      const char* begin = text_.data() + at_ + 1;
      const char* end = std::min(begin + 2, text_.data() + text_.size());
      const auto [p, code] = std::from_chars(begin, end, value, 16);
      if (code != std::errc() || p != begin + 2) fail("two hexadecimal digits expected");
      out += static_cast<char>(value);
      at_ += 2;
    } else if (c == '"' || c == '\\') {
      out += c;
    } else if (c == 'n' || c == 't') {
      out += c == 'n' ? '\n' : '\t';
    } else {
      fail("unknown escape");
    }
  }
  if (at_end()) fail("unterminated string");
  ++at_;
  skip();
  return out;
}

DType AssemblerLexer::dtype() {
  const std::string name = word();
  const std::optional<DType> t = dtype_from_name(name);
  if (!t) fail(fmt::format("\"{}\" is not a dtype", name));
  return *t;
}

int64_t AssemblerLexer::numbered(std::string_view prefix) {
  const AssemblerLexer where = *this;
  const std::string text = word();
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [p, code] =
      std::from_chars(text.data() + std::min(prefix.size(), text.size()), end, value);
  if (!text.starts_with(prefix) || code != std::errc() || p != end || value < 0 ||
      value > int64_t{UINT32_MAX})
    where.fail(fmt::format("{}N expected", prefix));
  return value;
}

int32_t AssemblerLexer::device() {
  const AssemblerLexer where = *this;
  const int64_t number = numbered("d");
  if (number > 255) where.fail("devices are numbered up to 255");
  return static_cast<int32_t>(number);
}

void AssemblerLexer::skip() {
  while (at_ < text_.size()) {
    if (text_[at_] == ';')
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    else if (std::isspace(static_cast<unsigned char>(text_[at_])))
      ++at_;
    else
      return;
  }
}

DimProgram parse_program(AssemblerLexer* in) {
  static const auto kWords = [] {
    std::map<std::string, DimOp> words;
    for (size_t i = 0; i < kDimOpCount; ++i)
      if (kDimOps[i].operands > 0) words.emplace(kDimOps[i].word, static_cast<DimOp>(i));
    return words;
  }();
  auto number = [&](std::string_view text) {
    int64_t value = 0;
    const auto [p, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || p != text.data() + text.size())
      in->fail(fmt::format("\"{}\" is not a dim instruction", text));
    return value;
  };
  DimProgram program;
  bool counted = false;
  in->expect("[");
  while (!in->accept("]")) {
    const std::string word = in->raw("]");
    if (const size_t arrow = word.find("->"); arrow != word.npos && word.back() == ':') {
      program.arguments = static_cast<uint32_t>(number(word.substr(0, arrow)));
      program.results =
          static_cast<uint32_t>(number(word.substr(arrow + 2, word.size() - arrow - 3)));
      counted = true;
    } else if (auto op = kWords.find(word); op != kWords.end()) {
      program.code.push_back({op->second});
    } else if (word[0] == 'a' && word.size() > 1) {
      const int64_t index = number(word.substr(1));
      program.code.push_back({DimOp::kArg, index});
      if (!counted)
        program.arguments = std::max(program.arguments, static_cast<uint32_t>(index) + 1);
    } else {
      program.code.push_back({DimOp::kConst, number(word)});
    }
  }
  return program;
}

void append_element(AssemblerLexer* in, DType dtype, std::vector<uint8_t>* out) {
  const std::string text = in->raw(",}");
  auto put = [&](auto value) {
    const size_t at = out->size();
    out->resize(at + sizeof value);
    std::memcpy(out->data() + at, &value, sizeof value);
  };
  auto put_width = [&](uint64_t bits) {
    const size_t at = out->size();
    out->resize(at + size_of(dtype));
    std::memcpy(out->data() + at, &bits, size_of(dtype));
  };
  const char* end = text.data() + text.size();
  auto parse = [&](auto value, const char* begin, auto... base) {
    const auto [p, code] = std::from_chars(begin, end, value, base...);
    if (code != std::errc() || p != end)
      in->fail(fmt::format("\"{}\" is not a valid {}", text, name_of(dtype)));
    return value;
  };
  if (text.starts_with("0x")) return put_width(parse(uint64_t{}, text.data() + 2, 16));
  if (dtype == DType::kF64) return put(parse(double{}, text.data()));
  if (is_float(dtype)) {
    const float value = parse(float{}, text.data());
    if (dtype == DType::kF32) return put(value);
    return put(dtype == DType::kF16 ? f16_from_f32(value) : bf16_from_f32(value));
  }
  if (dtype == DType::kU64) return put(parse(uint64_t{}, text.data()));
  const int64_t value = parse(int64_t{}, text.data());
  const int bits = 8 * static_cast<int>(size_of(dtype));
  const bool fits = dtype == DType::kBool  ? value == 0 || value == 1
                    : dtype == DType::kI64 ? true
                    : is_unsigned_int(dtype)
                        ? value >= 0 && value >> bits == 0
                        : value >> (bits - 1) == 0 || value >> (bits - 1) == -1;
  if (!fits) in->fail(fmt::format("{} does not fit {}", value, name_of(dtype)));
  put_width(static_cast<uint64_t>(value));
}

}  // namespace nimble::exec
