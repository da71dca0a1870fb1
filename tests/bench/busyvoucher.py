"""A voucher as a thread of a process that has other work: what a thread in the agent would be. Started by vouching.py.

The main thread does each second what an agent does once it has heard of a change in a large cluster: it reads and sorts
2,000 objects. The arguments are those of the voucher's process.
"""

import json
import sys
import threading
import time

from arpguard.runtime.voucher.__main__ import main

OBJECTS = json.dumps([{"name": f"vip.{n}", "spec": {"holder": f"node-{n % 97}", "epoch": n}} for n in range(2000)])


def work() -> None:
    while True:
        began = time.monotonic()
        by_holder: dict[str, list[str]] = {}
        for each in json.loads(OBJECTS):
            by_holder.setdefault(each["spec"]["holder"], []).append(each["name"])
        sorted(by_holder.items())
        time.sleep(max(0.0, began + 1 - time.monotonic()))


if __name__ == "__main__":
    del sys.argv[1:4]  # the interpreter, -m and the module, which this stands for
    threading.Thread(target=work, daemon=True).start()
    sys.exit(main())
