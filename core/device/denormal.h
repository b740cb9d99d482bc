// Denormal numbers: those below the smallest normal one, 1.2e-38 in f32. A core takes a hundred
// cycles for each where it takes one for others.
//
// Note [Averages that never reach zero]
//   Where a gradient stays zero, as at a ReLU that has died, an optimizer's average decays by 0.9 a
//   step. It does not end at zero: 0.9 times four of the smallest denormals rounds to four of them.
//   So from some 900 steps on the update is slow for good: 6 % of Adam's averages after 5 epochs of
//   digits, and a third of them in a step of one image, which then takes 3 to 6 times as long.
#pragma once

namespace sinter {

// Take denormal operands and results for zero, as torch.set_flush_denormal() does: in the calling
// thread and in all that it starts later, so call it first in main(). No result changes that has
// nothing to do with numbers that small. Our programs turn it on; the library, as PyTorch, leaves
// it off. False where it cannot be had (it can on x86).
bool set_flush_denormal(bool on);

}  // namespace sinter
