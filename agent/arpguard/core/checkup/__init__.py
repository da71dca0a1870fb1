"""What is wrong with this node, and what to do about it: how `arpguard doctor` judges what it found.

    snapshot   what was looked at, or why it could not be
    picture    what follows from that for all checks: the VIPs, the links that face them, who guards them
    answering  which addresses the kernel answers for by itself, and what its settings do to that
    sysctls    the settings, and how the kernel combines those of `all` and of a link
    findings   a verdict with what was seen, and the fix
    table      all checks, in their order

Each check is a function from the picture to findings. Nothing here does IO.
"""
