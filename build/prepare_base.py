"""Prepares the last stage of the Dockerfile for the packages in ``/opt/rolecall``, using only Python.

Creates the user 1001 with its directories, ``/tini``, and the programs in ``/usr/local/bin``. The interpreters of the
base, which roles call as ``/usr/bin/python3`` or ``/usr/local/bin/python3``, can then import the packages. An
interpreter of another version stays unchanged, because the base's package manager might need it.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

USER = "ansible:x:1001:0:rolecall:/opt/ansible:/sbin/nologin"
USER_ID = 1001
HOME = Path("/opt/ansible")
DIRECTORIES = (HOME, HOME / "roles", HOME / "playbooks", HOME / ".ansible", HOME / ".ansible/tmp")
PROGRAMS = ("ansible-operator", "rolecall")
INTERPRETERS = (Path("/usr/bin/python3"), Path("/usr/local/bin/python3"))
DESCRIBE = "import site, sys; print('%d.%d' % sys.version_info[:2], (site.getsitepackages() or [''])[0])"


def add_user(accounts: Path) -> None:
    """Give the ID 1001 to our user, even if the base has another user with that ID."""
    others = [line for line in accounts.read_text().splitlines() if line.split(":")[2:3] != [str(USER_ID)]]
    accounts.write_text("\n".join([*others, USER, ""]))
    for directory in DIRECTORIES:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o775)
        os.chown(directory, USER_ID, 0)


def add_programs(packages: Path) -> None:
    """Link our programs, and write ``/tini``, which is process 1 of the container."""
    for name in PROGRAMS:
        Path("/usr/local/bin", name).symlink_to(Path(sys.prefix, "bin", name))
    tini = Path("/tini")
    guard = packages / "rolecall/runner/election/supervisor.py"
    tini.write_text(f'#!/bin/sh\nexec {sys.prefix}/bin/python -I -S {guard} --init "$@"\n')
    tini.chmod(0o755)


def share_packages(packages: Path) -> None:
    """Let the interpreters of the base import the packages. Their own packages take precedence there."""
    own = Path(sys.executable).resolve()
    for interpreter in INTERPRETERS:
        if not interpreter.exists():
            interpreter.symlink_to(own)
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    for interpreter in {own, *(each.resolve() for each in INTERPRETERS)}:
        command = (str(interpreter), "-I", "-c", DESCRIBE)
        version, place = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
        if version == ours:
            Path(place).mkdir(parents=True, exist_ok=True)
            # Python doesn't process .pth files in a directory added this way, so the collections need a line too.
            Path(place, "rolecall.pth").write_text(f"{packages}\n{packages}/rolecall/collections\n")
        else:
            sys.stderr.write(f"{interpreter} is Python {version}, so it cannot import the packages of Python {ours}\n")


def main() -> None:
    """Prepare the base; run this with the interpreter of the environment that has the packages."""
    packages = Path(sysconfig.get_path("purelib"))
    add_user(Path("/etc/passwd"))
    add_programs(packages)
    share_packages(packages)


if __name__ == "__main__":
    main()
