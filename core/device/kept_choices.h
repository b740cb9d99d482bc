// What measuring on this card has decided (chooser.h), kept between processes: which kernel makes a
// product fastest, whether a group is better fused. Each choice answers a question, a line of text
// that names all that it depends on but for what the file as a whole depends on, its first line:
// card, driver, the versions of cuBLASLt and cuDNN, or that there is none, and the program's file,
// since own kernels are part of that. Where one of these has changed, all is measured anew.
//
// There is a file of the cache folder (core/cache.h) per card and program, written whole at each
// new choice; of two processes at once the later one's stays. Nothing here throws: a file that is
// damaged is as none, and the note says so. Thread-safe.
#pragma once

#include <optional>
#include <string>

namespace sinter {

// The answer kept to a question, by an earlier process or by this one. In a build without CUDA none
// is kept.
std::optional<std::string> kept_choice(const std::string& question);
// REQUIRES: neither has a line break or a tab.
void keep_choice(const std::string& question, const std::string& answer);
// Why choices of before are ignored, or why new ones are not kept, in words; "" if all is well.
std::string kept_choices_note();
// Off: none is read and none written, for programs that measure to report the times. On at first.
void set_keep_choices(bool on);

}  // namespace sinter
