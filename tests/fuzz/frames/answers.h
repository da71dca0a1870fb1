/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that hold for every frame, read without any of the programs' code. */
#ifndef ARPGUARD_ANSWERS_H
#define ARPGUARD_ANSWERS_H

#include "programs.h"

/* What is wrong with what became of a frame, given `world`; null: nothing. */
const char *objection(const struct arrival *a, const __u8 *frame, const struct departure *d);

#endif
