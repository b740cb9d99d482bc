// docs/GLOSSARY.md, for `explain` of the programs.
#pragma once

namespace sinter {

extern const char kGlossary[];

}  // namespace sinter
