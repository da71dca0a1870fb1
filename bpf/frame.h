/* SPDX-License-Identifier: Apache-2.0 */
/* Where in a frame the ARP body is: Ethernet header, then any number of VLAN tags with VID 0.
 *
 * Linux reads priority tags (VID 0) through however deep they are nested (__netif_receive_skb_core()).
 */
#ifndef ARPGUARD_FRAME_H
#define ARPGUARD_FRAME_H

#include "arp.h"

/* A mask that all lengths of tags fit in. */
#define MAX_WALK (2 * MAX_TAGS * VLAN_TAG_LEN - VLAN_TAG_LEN)

/* What is needed of a frame: the deepest header walked to, and the body behind it. */
#define FRAME_HEAD_LEN (ETH_HEADER_LEN + MAX_TAGS * VLAN_TAG_LEN + ARP_BODY_LEN)

/* Fills `f` from the frame in [data, end); f->tags counts on from what the caller put there.
 * Returns REASON_UNSET when `f` is complete, else why there is nothing to judge. */
static __always_inline __u8 frame_parse(struct arp_facts *f, void *data, void *end)
{
	__u16 *type = data + ETH_HEADER_LEN - 2;
	__u64 walked = 0;
	int i;

	for (i = 0; i < MAX_TAGS; i++) {
		if ((void *)(type + 3) > end)
			return REASON_NOT_ARP;
		if (!is_vlan(type[0]))
			break;
		if (type[1] & BE16(0x0fff))
			return REASON_OTHER_VLAN;
		/* What is added to the length of the tag is 0, as was just seen; but the verifier does not know that,
		 * and so it looks at the code behind this loop once, and not once for each number of tags. */
		walked += VLAN_TAG_LEN + (*(volatile __u16 *)&type[1] & BE16(0x0fff));
		walked &= MAX_WALK;
		asm volatile("" : "+r"(walked));
		type = data + ETH_HEADER_LEN - 2 + walked;
	}
	f->tags += walked / VLAN_TAG_LEN;
	if ((void *)(type + 1) > end)
		return REASON_NOT_ARP;
	if (is_vlan(type[0]))
		return REASON_UNWALKABLE;
	if (type[0] != ETHERTYPE_ARP || (void *)(type + 1 + ARP_BODY_LEN / 2) > end)
		return REASON_NOT_ARP;
	return arp_parse(f, data, type + 1) ? REASON_UNSET : REASON_NOT_ARP;
}

#endif
