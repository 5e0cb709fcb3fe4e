"""Run the quick tests of the arm64 wheel under a kernel with large pages: ``python release/arm64.py DIRECTORY KERNEL``.

KERNEL is an arm64 kernel with its drivers built in, an Image or a compressed EFI program (vmlinuz): Ubuntu's package
linux-image-unsigned-*-generic-64k has one with pages of 64 KiB. Debian for arm64 comes from the mirror that this
machine's apt has, what the tests need from the registry of its pip; nothing of it runs before it is booted in QEMU,
which emulates the processor: ten to twenty times slower than a real one.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import zstandard

from installed import copy
from roots import mirror

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHON: Final = "3.11"  # that of the suite
SUITE: Final = "bookworm"
PACKAGES: Final = "python3,procps,iproute2"
TAGS: Final = ("manylinux_2_17_aarch64", "manylinux2014_aarch64", "manylinux_2_28_aarch64", "manylinux_2_34_aarch64")
TESTS: Final = ("-m", "'not servers and not real'", "-q", "--timeout", "1200", "-p", "no:cacheprovider")
# The first process of the machine.
INIT: Final = """#!/bin/bash
export PATH=/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb PYTHONPATH=/srv/tree
mount -t proc proc /proc; mount -t sysfs sys /sys; mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t tmpfs tmp /tmp
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
ip link set lo up
date --set "@$(sed 's/.*epoch=\\([0-9]*\\).*/\\1/' /proc/cmdline)"
uname --all
cd /srv
python -m pip install --quiet --no-index --no-deps --find-links wheels inferlog inferlog-listener &&
python first_request.py /tmp/logs && inference-logging verify /tmp/logs && cd tree && python -m pytest {tests}
echo "exit status $?"
sync
python -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321FEDC)'
"""


def main() -> int:
    """Make the root, boot it, and judge by what it prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, help="where the wheels are")
    parser.add_argument("kernel", type=Path)
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "arm64", help="where the root is made")
    parser.add_argument(
        "--pytest",
        nargs=argparse.REMAINDER,
        default=[],
        help="all that follows is for pytest; the quick tests unless given",
    )
    given = parser.parse_args()
    root = given.work / "root"
    make(root)
    add_python(root)
    shutil.copytree(given.directory, root / "srv" / "wheels")
    shutil.copy(ROOT / "release" / "first_request.py", root / "srv")
    copy(root / "srv" / "tree")
    init = root / "init.sh"
    init.write_text(INIT.format(tests=" ".join([*TESTS, *given.pytest])), encoding="utf-8")
    init.chmod(0o755)
    image = given.work / "Image"
    image.write_bytes(unpacked(given.kernel.read_bytes()))
    return boot(image, root, given.work / "disk")


def make(root: Path) -> None:
    """Unpack Debian for arm64, without running anything of it."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    options = ["--arch=arm64", "--foreign", "--variant=minbase", f"--include={PACKAGES}"]
    subprocess.run(["debootstrap", *options, SUITE, root, mirror()], check=True)
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as files:
            unpack = ["tar", "--extract", "--keep-directory-symlink", "--directory", str(root)]
            subprocess.run(unpack, stdin=files.stdout, check=True)
        package.unlink()
    for name in ("proc", "sys"):
        place = root / name
        if place.is_symlink():  # where debootstrap may not mount
            place.unlink()
        place.mkdir(exist_ok=True)
    for name in ("passwd", "group"):  # which the packages' scripts would make
        shutil.copy(root / "usr/share/base-passwd" / f"{name}.master", root / "etc" / name)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n", encoding="utf-8")


def add_python(root: Path) -> None:
    """Make a virtual environment with what the tests need, as wheels for arm64."""
    environment = root / "venv"
    packages = environment / "lib" / f"python{PYTHON}" / "site-packages"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n", encoding="utf-8")
    for name in ("python", "python3"):
        (environment / "bin" / name).symlink_to("/usr/bin/python3")
    platforms = [f"--platform={tag}" for tag in (*TAGS, "any")]
    abis = [f"--abi={abi}" for abi in (f"cp{PYTHON.replace('.', '')}", "abi3", "none")]
    target = ["--target", str(packages), f"--python-version={PYTHON}", "--implementation=cp", "--only-binary=:all:"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *target, *abis, *platforms]
    subprocess.run([*pip, "pip", "--group", f"{ROOT / 'pyproject.toml'}:test"], check=True)
    for script in (packages / "bin").iterdir():
        first, _, rest = script.read_bytes().partition(b"\n")
        place = environment / "bin" / script.name
        place.write_bytes(b"\n".join([b"#!/venv/bin/python" if b"python" in first else first, rest]))
        place.chmod(0o755)


def unpacked(kernel: bytes) -> bytes:
    """Return the kernel as QEMU boots it; an EFI program has it inside, compressed (Linux: zboot-header.S)."""
    if kernel[4:8] != b"zimg":
        return gzip.decompress(kernel) if kernel[:2] == b"\x1f\x8b" else kernel
    start, size = struct.unpack_from("<II", kernel, 8)
    kind = kernel[24:56].split(b"\0")[0].decode()
    inside = kernel[start : start + size]
    if kind == "gzip":
        return gzip.decompress(inside)
    if kind == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(inside)
    raise ValueError(f"the kernel is compressed with {kind}: neither gzip nor zstd")


def boot(image: Path, root: Path, disk: Path) -> int:
    """Boot, print what the machine prints, and return the tests' exit status."""
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", root, disk, "4G"], check=True)
    append = f"root=/dev/vda rw init=/init.sh console=ttyAMA0 panic=-1 loglevel=4 epoch={int(time.time())}"
    command = ["qemu-system-aarch64", "-M", "virt", "-cpu", "max,pauth-impdef=on", "-smp", "2", "-m", "4096"]
    command += ["-nic", "none", "-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot"]
    command += ["-kernel", str(image), "-append", append]
    command += [
        "-drive",
        f"file={disk},format=raw,if=none,id=disk,cache=unsafe",
        "-device",
        "virtio-blk-device,drive=disk",
    ]
    status = 1
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as run:
        for line in run.stdout or ():
            print(line, end="", flush=True)
            if line.startswith("exit status "):
                status = int(line.split()[2])
    return status


if __name__ == "__main__":
    sys.exit(main())
