"""The reference answer to "what must happen to this frame?", in Python, for both families.

The programs in bpf/ say the same in C; tests/bpf compares verdict, reasons and bytes of the two on random frames.
Written for reading, not for speed. `table` is the verdict table; what a frame says, and what can be made of it, is
`arp`'s and `nd`'s to tell; `reading` finds out which of the two it is.
"""

from reference.reading import MAX_TAGS
from reference.situation import Judgement, Response, Situation
from reference.table import respond_egress, respond_ingress

__all__ = ["MAX_TAGS", "Judgement", "Response", "Situation", "respond_egress", "respond_ingress"]
