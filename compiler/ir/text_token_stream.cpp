// Tokens on demand, so that dims can be read by their own parser at the same position.
#include <algorithm>
#include <charconv>

#include "compiler/ir/text_parse.h"

namespace nimble::ir {
namespace {

constexpr int kMaxDepth = 200;

}  // namespace

bool is_capitalised(std::string_view name) {
  return !name.empty() && name[0] >= 'A' && name[0] <= 'Z';
}

TokenStream::TokenStream(std::shared_ptr<const std::string> text, std::string file)
    : owner_(std::move(text)), text_(*owner_), file_(std::move(file)), diagnostics_(owner_) {
  for (size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }
  advance();
}

void TokenStream::advance() {
  if (is("{")) ++braces_;
  if (is("}")) --braces_;
  token_ = lex(text_, pos_);
  pos_ = std::max(token_.end, pos_);
}

Location TokenStream::location(size_t at) const {
  auto it = std::upper_bound(line_starts_.begin(), line_starts_.end(), at);
  const auto line = static_cast<size_t>(it - line_starts_.begin());
  return {file_, static_cast<int>(line), static_cast<int>(at - line_starts_[line - 1]) + 1, {}};
}

void TokenStream::fail(const Token& t, const std::string& problem, const std::string& remedy) {
  if (t.kind == Kind::kFault) {
    note(t, t.text, "remove or correct it");
  } else {
    note(t, problem, remedy);
  }
  throw SyntaxFault{};
}

std::string TokenStream::shown(const Token& t) const {
  if (t.kind == Kind::kEnd) return "the end of the text";
  return fmt::format("`{}`", text_.substr(t.begin, t.end - t.begin));
}

bool TokenStream::take(std::string_view punctuation) {
  if (!is(punctuation)) return false;
  advance();
  return true;
}

bool TokenStream::take_word(std::string_view word) {
  if (!is_word(word)) return false;
  advance();
  return true;
}

void TokenStream::expect(std::string_view punctuation, const char* where) {
  if (take(punctuation)) return;
  fail(token_, fmt::format("expected `{}` {} but found {}", punctuation, where, shown(token_)),
       fmt::format("write `{}`", punctuation));
}

std::string TokenStream::expect_kind(Kind kind, const char* what) {
  if (token_.kind != kind) {
    fail(token_, fmt::format("expected {} but found {}", what, shown(token_)),
         fmt::format("write {} here", what));
  }
  std::string text = token_.text;
  advance();
  return text;
}

int64_t TokenStream::integer(const Token& t) {
  const std::string& s = t.text;
  int64_t v = 0;
  const auto r = std::from_chars(s.data(), s.data() + s.size(), v);
  if (r.ec != std::errc() || r.ptr != s.data() + s.size()) {
    fail(t, fmt::format("`{}` is not an integer of 64 bits", s), "write an integer such as 3");
  }
  return v;
}

TokenStream::Nesting::Nesting(TokenStream& s) : stream(s) {
  if (++s.depth_ > kMaxDepth) {
    s.note(s.token_, "the text is nested too deeply", "split it into functions");
    --s.depth_;
    throw SyntaxFault{};
  }
}

}  // namespace nimble::ir
