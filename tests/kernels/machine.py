"""A virtual machine with a kernel of its own and this machine's files, which it cannot change.

It has no disk. The host's `/` comes over 9p, read-only, with memory over it for what is written; one folder is shared
both ways. A machine of another architecture has a root of its own instead, and this checkout at its place. The
processor is emulated (tcg), so everything takes about ten times as long as outside.
"""

import lzma
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from arpguard_lab.netns import Netns
from kernels.packages import Kernel

SCRIPT = Path(__file__).parent / "guest.sh"
_CHECKOUT = Path(__file__).parents[2]
_NEEDED = ("busybox", "cpio", "depmod", "modprobe")
_EARLY = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
_MEMORY_MB, PROCESSORS = 3072, 2
_LOOK_S = 1.0
_HOST = "trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro"
_INIT = f"""#!/bin/busybox sh
busybox=/bin/busybox
$busybox mkdir -p /proc /dev /host /top /root
$busybox mount -t proc proc /proc
$busybox mount -t devtmpfs dev /dev
for module in $($busybox cat /order); do $busybox insmod /modules/$module; done
$busybox mount -t 9p -o {_HOST} host /host
$busybox mount -t tmpfs top /top
$busybox mkdir /top/upper /top/work
$busybox mount -t overlay -o lowerdir=/host,upperdir=/top/upper,workdir=/top/work root /root
{{checkout}}
exec $busybox switch_root /root /bin/sh {{script}} {{shared}} {{modules}}
"""
_MOUNT_CHECKOUT = f"$busybox mkdir -p /root{_CHECKOUT}; $busybox mount -t 9p -o {_HOST} checkout /root{_CHECKOUT}"


@dataclass(frozen=True)
class Emulator:
    """The QEMU of an architecture: what tells it of the machine, and where the kernel's messages come out."""

    name: str
    words: tuple[str, ...]
    console: str


EMULATORS = {
    "amd64": Emulator("qemu-system-x86_64", ("-cpu", "max"), "ttyS0"),
    "arm64": Emulator("qemu-system-aarch64", ("-machine", "virt", "-cpu", "cortex-a72"), "ttyAMA0"),
}


def missing(architecture: str = "amd64") -> str | None:
    """Why there can be no machine; None where there can."""
    needed = (EMULATORS[architecture].name, *_NEEDED)
    lacking = [name for name in needed if shutil.which(name) is None]
    if lacking:
        return f"{', '.join(lacking)} missing"
    return None if Path("/dev/net/tun").exists() else "there is no /dev/net/tun"


@dataclass(frozen=True)
class Cable:
    """A tap device in a namespace of this machine."""

    place: Netns
    tap: str
    queues: int = 1

    def words(self) -> list[str]:
        """What tells QEMU of it."""
        netdev = f"tap,id={self.tap},ifname={self.tap},script=no,downscript=no"
        device = f"virtio-net-pci,netdev={self.tap},romfile="
        if self.queues > 1:
            netdev += f",queues={self.queues}"
            device += f",mq=on,vectors={2 * self.queues + 2}"
        return ["-netdev", netdev, "-device", device]


class Machine:
    """Boots, runs one command, and is gone."""

    def __init__(
        self, kernel: Kernel, shared: Path, cables: Sequence[Cable] = (), processors: int = PROCESSORS
    ) -> None:
        """`shared`: a folder, the same inside and outside. The guest's ends of the cables, all from one namespace, are
        eth0, eth1 and so on."""
        self._kernel = kernel
        self._shared = shared
        self._cables = cables
        self._processors = processors

    def run(
        self,
        words: Sequence[object],
        environment: dict[str, str],
        timeout_s: float,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> str:
        """What the command said; RuntimeError when it fails, or takes too long. `meanwhile` is called now and then."""
        exports = [f"export {name}='{text}'" for name, text in environment.items()]
        command = "\n".join([*exports, " ".join(map(str, words)), ""])
        (self._shared / "command").write_text(command, encoding="utf-8")
        console = self._shared / "console"
        with console.open("wb") as log, tempfile.TemporaryDirectory() as folder:
            initramfs = self._initramfs(Path(folder))
            place = self._cables[0].place.prefix() if self._cables else []
            qemu = [*place, *self._words(initramfs)]
            process = subprocess.Popen(qemu, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            deadline_s = time.monotonic() + timeout_s
            try:
                while not _ended(process):
                    meanwhile()
                    if time.monotonic() > deadline_s:
                        raise RuntimeError(f"the guest was not done after {timeout_s:g} s: {self._shared}")
            finally:
                process.kill()
                process.wait()
        return self._said(console)

    def _said(self, console: Path) -> str:
        status, output = self._shared / "status", self._shared / "output"
        if not status.exists():
            lines = console.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
            raise RuntimeError("the guest ended before its command did: " + "\n".join(lines))
        said = output.read_text(encoding="utf-8", errors="replace")
        if status.read_text(encoding="ascii").strip() != "0":
            raise RuntimeError(f"the command in the guest failed: {said}")
        return said

    def _words(self, initramfs: Path) -> list[str]:
        emulator, is_foreign = EMULATORS[self._kernel.architecture], self._kernel.is_foreign
        return [
            # QEMU emulates all processors in one thread. With a thread for each, a guest's kernel panicked: one
            # processor hit the breakpoint that the kernel sets while it patches its code from another (QEMU 7.2).
            *(emulator.name, *emulator.words, "-accel", "tcg,thread=single"),
            *("-smp", str(self._processors), "-m", str(_MEMORY_MB), "-nographic", "-no-reboot", "-nodefaults"),
            *("-serial", "stdio", "-kernel", str(self._kernel.image), "-initrd", str(initramfs)),
            *("-append", f"console={emulator.console} quiet panic=-1"),
            *_share(self._kernel.root if is_foreign else Path("/"), "host", "readonly=on"),
            *(_share(_CHECKOUT, "checkout", "readonly=on") if is_foreign else ()),
            *_share(self._shared, "shared"),
            *(("-nic", "none") if not self._cables else ()),
            *(word for cable in self._cables for word in cable.words()),
        ]

    def _initramfs(self, folder: Path) -> Path:
        """Enough to mount the host's files: busybox and a few modules."""
        root, archive = folder / "root", folder / "initramfs"
        for name in ("bin", "modules"):
            (root / name).mkdir(parents=True)
        busybox = self._kernel.root / "bin" / "busybox" if self._kernel.is_foreign else shutil.which("busybox")
        shutil.copy(str(busybox), root / "bin" / "busybox")
        order = []
        for file in self._kernel.files_of(*_EARLY):
            name = file.name.removesuffix(".xz")
            content = file.read_bytes()
            (root / "modules" / name).write_bytes(lzma.decompress(content) if name != file.name else content)
            order.append(name)
        (root / "order").write_text("\n".join(order), encoding="ascii")
        checkout = _MOUNT_CHECKOUT if self._kernel.is_foreign else ""
        init = _INIT.format(script=SCRIPT, shared=self._shared, modules=self._kernel.modules, checkout=checkout)
        (root / "init").write_text(init, encoding="ascii")
        (root / "init").chmod(0o755)
        names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
        with archive.open("wb") as file:
            subprocess.run(
                ["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names.encode(), stdout=file, check=True
            )
        return archive


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    """Whether it has, after a moment."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LOOK_S)
    return process.returncode is not None


def _share(folder: Path, tag: str, *options: str) -> list[str]:
    """What tells QEMU of a folder that the guest mounts by its tag."""
    words = ["local", f"path={folder}", f"mount_tag={tag}", "security_model=none", "multidevs=remap", *options]
    return ["-virtfs", ",".join(words)]
