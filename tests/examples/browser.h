// Opens a page in a headless Chromium, if one is installed (Debian: chromium).
#pragma once

#include <cstdlib>

#include "tests/examples/program.h"

namespace sinter::test {

inline std::string browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (std::system(str("command -v ", name, " >/dev/null 2>&1").c_str()) == 0) return name;
  }
  return "";
}

// The document once its scripts have run, and what the browser said; REQUIRES: browser() is one.
struct Opened {
  std::string dom, log;
  // A line that the page printed, if any.
  bool said_something() const { return log.find("CONSOLE") != std::string::npos; }
};
// With a script of tests/examples behind the page's own.
inline Opened open_page(
    const std::string& folder, const std::string& page, const std::string& script, int width) {
  std::string text = text_of(folder + "/" + page);
  text.insert(text.rfind("</body>"),
      "<script>" + text_of(SINTER_SOURCE_DIR "/tests/examples/" + script) + "</script>");
  std::ofstream(folder + "/driven.html") << text;
  const std::string command = str("timeout 120 ", browser(),
      " --headless --no-sandbox --disable-gpu --enable-logging=stderr --user-data-dir=", folder,
      "/browser --window-size=", width, ",900 --dump-dom 'file://", folder, "/driven.html' >",
      folder, "/dom 2>", folder, "/log");
  EXPECT_EQ(std::system(command.c_str()), 0);
  return {text_of(folder + "/dom"), text_of(folder + "/log")};
}

}  // namespace sinter::test
