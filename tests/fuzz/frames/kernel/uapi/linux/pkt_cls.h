/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/pkt_cls.h>
