"""Shutting a process in: Linux namespaces, bubblewrap, or another user."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CLONE_ALL = 0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000
"""New user, mount, process, network, IPC and host-name namespaces."""
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MS_REC, MS_PRIVATE, MNT_DETACH = 16384, 1 << 18, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
SYS_MOUNT_SETATTR = 442
SIGKILL = 9
NOBODY = 65534
WORK = "/box"
DEVICES = ("null", "zero", "full", "random", "urandom")


def unshare() -> None:
    """Enter namespaces of one's own; children form the new process namespace."""
    _check(_libc().unshare(CLONE_ALL), "unshare")


def map_ids(pid: int) -> None:
    """Give the child's user namespace its users: the caller; and for root, nobody besides."""
    uid, gid = os.geteuid(), os.getegid()
    further = f"{NOBODY} {NOBODY} 1\n" if uid == 0 else ""
    if uid != 0:
        _write_file(f"/proc/{pid}/setgroups", "deny")
    _write_file(f"/proc/{pid}/uid_map", f"{uid} {uid} 1\n{further}")
    _write_file(f"/proc/{pid}/gid_map", f"{gid} {gid} 1\n{further}")


def _write_file(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def become(uid: int) -> None:
    """Give up being root for good."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(uid, uid, uid)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [None if one is None else one.encode() for one in (source, target, kind, data)]
    _check(_libc().mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), f"mount {target}")


def build_root(visible: list[str], room: int) -> None:
    """A root of its own: system and interpreter read-only, some devices, and a small folder in memory."""
    os.umask(0o022)
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    _mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0755")
    os.chdir("/tmp")
    os.mkdir("old")
    _check(_libc().pivot_root(b".", b"old"), "pivot_root")
    os.chdir("/")
    for path in visible:
        _show(path)
    os.makedirs("/dev", exist_ok=True)
    for name in DEVICES:
        _bind(f"/old/dev/{name}", f"/dev/{name}")
    os.mkdir(WORK)
    _mount("tmpfs", WORK, "tmpfs", MS_NOSUID | MS_NODEV, f"size={room},mode=0777")
    if not os.path.lexists("/tmp"):
        os.symlink(WORK, "/tmp")
    try:  # noqa: SIM105 (contextlib takes longer to import)
        _write_file("/old/proc/sys/user/max_user_namespaces", "0")
    except OSError:
        pass  # an older kernel: the program could make further namespaces, which give it nothing here
    _check(_libc().umount2(b"/old", MNT_DETACH), "umount old root")
    os.rmdir("/old")
    _mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir(WORK)


def _show(path: str) -> None:
    """Make a path of the old root visible, read-only; a symbolic link stays one."""
    old = f"/old{path}"
    if not os.path.lexists(old) or os.path.lexists(path):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.islink(old):
        os.symlink(os.readlink(old), path)
        return
    _bind(old, path)
    attributes = (ctypes.c_uint64 * 4)(MS_RDONLY | MS_NOSUID | MS_NODEV, 0, 0, 0)
    recursive = 0x8000
    done = _libc().syscall(
        SYS_MOUNT_SETATTR, -1, path.encode(), recursive, attributes, ctypes.sizeof(attributes)
    )
    if done != 0:  # before Linux 5.12: this mount only, keeping the flags that it must keep
        kept = os.statvfs(path).f_flag & (MS_NOEXEC | 1024 | 2048)
        _mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | kept)


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(source, target, None, MS_BIND | MS_REC)


def bubblewrap(program: str, visible: list[str], room: int) -> list[str]:
    """The command that runs what follows it in a sandbox like that of :func:`build_root`."""
    command = [program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for path in visible:
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            command += ["--ro-bind", path, path]
    for name in DEVICES:
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    command += ["--size", str(room), "--tmpfs", WORK, "--symlink", WORK, "/tmp"]
    return [*command, "--remount-ro", "/", "--chdir", WORK, "--"]


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)  # the C library of this process


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(option: int, value: int) -> None:
    """Set a property of this process."""
    _check(_libc().prctl(option, value, 0, 0, 0), f"prctl {option}")
