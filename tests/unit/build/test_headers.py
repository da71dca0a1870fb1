"""Finding kernel headers in the trees that distributions install, made here of empty files."""

import platform
import shutil
from pathlib import Path

import pytest

from arpguard_build.errors import BuildError
from arpguard_build.headers import HeaderTree, find_headers

COMMON = ("include/linux/kconfig.h", "include/uapi/linux/bpf.h")
GENERATED = ("include/generated/autoconf.h",)
WHOLE = COMMON + GENERATED
ARCH = {"x86_64": "x86", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def a_tree(path: Path, files=WHOLE) -> Path:
    for name in files:
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return path


def a_link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def found(root: Path, **environ: str) -> HeaderTree:
    return find_headers(root, environ)


def test_named_tree_is_used(tmp_path):
    named = a_tree(tmp_path / "opt/headers")
    a_tree(tmp_path / "usr/src/linux-headers-6.1.0-1-amd64")
    assert found(tmp_path, BCC_KERNEL_SOURCE="/opt/headers") == HeaderTree(named)


@pytest.mark.parametrize("files", [(), COMMON, GENERATED], ids=["empty", "not_generated", "only_generated"])
def test_named_tree_that_is_none_is_refused_though_another_is_there(tmp_path, files):
    a_tree(tmp_path / "opt/headers", files)
    a_tree(tmp_path / "usr/src/linux-headers-6.1.0-1-amd64")
    with pytest.raises(BuildError, match="BCC_KERNEL_SOURCE=/opt/headers is not a kernel header tree"):
        found(tmp_path, BCC_KERNEL_SOURCE="/opt/headers")


def test_headers_of_the_running_kernel_come_first(tmp_path):
    running = a_tree(tmp_path / "lib/modules" / platform.release() / "build")
    a_tree(tmp_path / "usr/src/linux-headers-999.0.0-1-amd64")
    assert found(tmp_path) == HeaderTree(running)


def test_build_of_the_running_kernel_may_be_a_link(tmp_path):
    a_tree(tmp_path / "usr/src/kernels/running")
    build = tmp_path / "lib/modules" / platform.release() / "build"
    a_link(build, tmp_path / "usr/src/kernels/running")
    assert found(tmp_path).kernel_source.resolve() == build.resolve()


def test_dangling_build_of_the_running_kernel_is_passed_over(tmp_path):
    a_link(tmp_path / "lib/modules" / platform.release() / "build", tmp_path / "gone")
    other = a_tree(tmp_path / "usr/src/linux-headers-6.1.0-1-amd64")
    assert found(tmp_path) == HeaderTree(other)


def split_tree(sources: Path, version="6.1.0-56", flavour="amd64") -> tuple[Path, Path]:
    """Debian's two halves: (of the architecture, common)."""
    arch = a_tree(sources / f"linux-headers-{version}-{flavour}", (*GENERATED, f"arch/{ARCH}/include/generated/x.h"))
    common = a_tree(sources / f"linux-headers-{version}-common", (*COMMON, f"arch/{ARCH}/include/asm/x.h"))
    return arch, common


@pytest.mark.parametrize("flavour", ["amd64", "cloud-amd64", "rt-arm64"])
def test_halves_of_debian_are_joined(tmp_path, flavour):
    arch, common = split_tree(tmp_path / "usr/src", flavour=flavour)
    tree = found(tmp_path)
    assert tree.kernel_source == common
    assert {arch / "include", common / "include", arch / f"arch/{ARCH}/include/generated"} <= set(tree.include_dirs)
    assert all(folder.is_dir() for folder in tree.include_dirs)


def test_halves_of_debian_are_joined_behind_the_running_kernels_link(tmp_path):
    """They lie where nobody would look for them but by the link."""
    arch, common = split_tree(tmp_path / "elsewhere")
    a_link(tmp_path / "lib/modules" / platform.release() / "build", arch)
    tree = found(tmp_path)
    assert tree.kernel_source == common
    assert any(folder.resolve() == arch / "include" for folder in tree.include_dirs)


def test_half_of_debian_alone_is_no_tree(tmp_path):
    _, common = split_tree(tmp_path / "usr/src")
    shutil.rmtree(common)
    with pytest.raises(BuildError, match="no kernel headers"):
        found(tmp_path)


def test_common_half_alone_is_no_tree(tmp_path):
    arch, _ = split_tree(tmp_path / "usr/src")
    shutil.rmtree(arch)
    with pytest.raises(BuildError, match="no kernel headers"):
        found(tmp_path)


def test_halves_of_different_versions_are_not_joined(tmp_path):
    a_tree(tmp_path / "usr/src/linux-headers-6.1.0-56-amd64", GENERATED)
    a_tree(tmp_path / "usr/src/linux-headers-6.1.0-57-common", COMMON)
    with pytest.raises(BuildError, match="no kernel headers"):
        found(tmp_path)


def test_ubuntu_tree_is_found(tmp_path):
    """linux-headers-*-generic has links into linux-headers-*, and is whole."""
    a_tree(tmp_path / "usr/src/linux-headers-6.8.0-40", COMMON)
    generic = a_tree(tmp_path / "usr/src/linux-headers-6.8.0-40-generic", GENERATED)
    a_link(generic / "include/linux", tmp_path / "usr/src/linux-headers-6.8.0-40/include/linux")
    a_link(generic / "include/uapi", tmp_path / "usr/src/linux-headers-6.8.0-40/include/uapi")
    assert found(tmp_path) == HeaderTree(generic)


def test_fedora_tree_is_found(tmp_path):
    tree = a_tree(tmp_path / "usr/src/kernels/6.10.3-200.fc40.x86_64")
    assert found(tmp_path) == HeaderTree(tree)


def test_opensuse_tree_is_found(tmp_path):
    tree = a_tree(tmp_path / "usr/src/linux-6.4.0-150600-obj/x86_64/default")
    assert found(tmp_path) == HeaderTree(tree)


@pytest.mark.parametrize(
    ("older", "newest"),
    [("6.1.0-9", "6.1.0-10"), ("6.1.0-56", "6.12.0-1"), ("5.15.0-200", "6.1.0-1"), ("6.9.7-1", "6.10.3-1")],
)
def test_newest_tree_is_chosen(tmp_path, older, newest):
    for version in (newest, older):
        a_tree(tmp_path / f"usr/src/linux-headers-{version}-generic")
    assert found(tmp_path).kernel_source.name == f"linux-headers-{newest}-generic"


def test_newest_tree_that_is_whole_is_chosen(tmp_path):
    a_tree(tmp_path / "usr/src/linux-headers-6.12.0-1-generic", COMMON)
    whole = a_tree(tmp_path / "usr/src/linux-headers-6.1.0-1-generic")
    assert found(tmp_path) == HeaderTree(whole)


@pytest.mark.parametrize(
    ("os_release", "package"),
    [
        ("ID=debian\n", "apt-get install linux-headers-amd64"),
        ('PRETTY_NAME="Ubuntu 24.04"\nID=ubuntu\nID_LIKE=debian\n', "apt-get install linux-headers-generic"),
        ("ID=fedora\n", "dnf install kernel-devel"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install kernel-devel"),
        ("ID=linuxmint\nID_LIKE=ubuntu\n", "apt-get install linux-headers-generic"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "zypper install kernel-default-devel"),
        ("ID=alpine\n", "apk add"),
        ("ID=slackware\n", "your distribution's kernel headers"),
        ("", "your distribution's kernel headers"),
    ],
    ids=["debian", "ubuntu", "fedora", "rocky", "mint", "opensuse", "alpine", "unknown", "empty"],
)
def test_message_names_the_package_to_install(tmp_path, os_release, package):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(os_release)
    with pytest.raises(BuildError) as raised:
        found(tmp_path)
    assert package in str(raised.value)


def test_message_without_os_release_is_of_use(tmp_path):
    with pytest.raises(BuildError, match="or set BCC_KERNEL_SOURCE to a header tree"):
        found(tmp_path)
