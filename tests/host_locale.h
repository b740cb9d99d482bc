// A host program with a locale of its own, for a scope: that of C++ (std::locale::global()), in
// which 1234.5 is "1.234,5", and that of C (setlocale()), in which it is "1234,5".
#pragma once

#include <clocale>
#include <locale>
#include <string>

#include "tests/test_util.h"

namespace sinter::test {

class HostLocale {
 public:
  explicit HostLocale(char thousands = '.')
      : before_(std::locale::global(std::locale(std::locale::classic(), new Numbers(thousands)))) {
    // glibc's file of a decimal comma: six offsets, then "," and "." and groups of three, these
    // again as wide characters, and the character set. So no locale need be installed.
    static constexpr char kFile[] =
        "\x14\x11\x03\x20\6\0\0\0\x20\0\0\0\x22\0\0\0\x24\0\0\0\x28\0\0\0\x2c\0\0\0\x30\0\0\0"
        ",\0.\0\3\3\0\0,\0\0\0.\0\0\0UTF-8\0";
    std::filesystem::create_directory(folder_.file("comma"));
    folder_.write("comma/LC_NUMERIC", std::string(kFile, sizeof kFile - 1));
    const ScopedEnv path("LOCPATH", folder_.path().c_str());
    of_c_ = std::setlocale(LC_NUMERIC, "comma") != nullptr;
  }
  ~HostLocale() {
    std::setlocale(LC_NUMERIC, "C");
    std::locale::global(before_);
  }
  HostLocale(const HostLocale&) = delete;
  HostLocale& operator=(const HostLocale&) = delete;

  // False where the C library is another: then the locale of C is the classic one.
  bool of_c() const { return of_c_; }

 private:
  struct Numbers : std::numpunct<char> {
    explicit Numbers(char thousands) : thousands(thousands) {}
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return thousands; }
    std::string do_grouping() const override { return "\3"; }
    std::string do_truename() const override { return "wahr"; }
    std::string do_falsename() const override { return "falsch"; }
    char thousands;
  };
  const TempDir folder_;
  const std::locale before_;
  bool of_c_ = false;
};

}  // namespace sinter::test
