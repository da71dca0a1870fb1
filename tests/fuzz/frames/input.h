/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzzer's bytes say: maps with up to four VIPs, two ranges and a term, how a frame comes, and the frame. */
#ifndef ARPGUARD_FUZZ_INPUT_H
#define ARPGUARD_FUZZ_INPUT_H

#include "programs.h"

#define INPUT_VIPS 4
#define INPUT_RANGES 2
#define INPUT_HEAD (4 + 6 * INPUT_VIPS + INPUT_RANGES + 2) /* bytes in front of the frame */

/* Sets `world` and `a` as the head says. Returns 0 where no frame follows it, or one that is too long. */
int read_input(const __u8 *data, size_t size, struct arrival *a);

#endif
