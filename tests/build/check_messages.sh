#!/usr/bin/env bash
# check_messages.sh ROOT: the library's texts name no command-line flag, since a user of the library
# has none; the words that the programs put flags for (kFlagWords in cli/process.cpp) are
# words of the library; and no text or number depends on the locale of the host program
# (core/classic.h). Exit status 1 if one is not so.
set -euo pipefail
cd "$1"
folders="core profiler ops autograd capture measure nn data distributed train"
bad=0

# String literals with a long flag.
# shellcheck disable=SC2086
if found=$(grep -rnoP '"(?:[^"\\\n]|\\.)*"' $folders --include=*.cpp --include=*.h \
           --include=*.cu --include=*.cuh |
           grep -P '(^|[ "=(,])--[a-z]'); then
  echo "$found"
  echo "check_messages: name the field; the program adds the flag (cli/process.cpp)"
  bad=1
fi
while read -r words; do
  # shellcheck disable=SC2086
  grep -rqF --include="*.cpp" -e "$words" $folders ||
    { echo "check_messages: no text of the library has '$words'"; bad=1; }
done < <(sed -n '/kFlagWords\[\]/,/^};/p' cli/process.cpp | grep -oP '^ *\{"\K[^"]*')

# Streams, numbers by the C library, kinds of letters, errors in the user's language.
of_locale='(?<!<)std::[io]?(string|f)stream\b|\b(sto(f|d|ld)|strto(f|d|ld)|atof|strerror)\('
of_locale+='|\b(isal(num|pha)|is(space|print|punct|upper|lower)|to(upper|lower))\('
of_locale+='|"[^"]*%[-+0-9.*]*l?[aefgAEFG]\b[^"]*"|\{[^{}"]*:[^{}"]*L\}'
# shellcheck disable=SC2086
if grep -rnP "$of_locale" $folders cli examples/mnist --include=*.cpp --include=*.h \
     --include=*.cu --include=*.cuh | grep -vE '^core/classic\.h:'; then
  echo "check_messages: core/classic.h, std::to_chars, std::from_chars or fmt, which know no locale"
  bad=1
fi
exit $bad
